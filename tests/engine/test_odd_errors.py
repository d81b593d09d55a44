"""Exceptions with messages that not every database can store as they are."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel, model_serializer

from mainspring import App, Retry, Settings, run
from mainspring.errors import NotSerializable, RemoteError


class Mute(Exception):
    """Cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


ODD = {
    "zero": ValueError("before\0after"),
    "half a pair": ValueError("\ud800 alone"),
    "mute": Mute(),
    "long": ValueError("x" * 9_000),
}


async def test_a_run_that_fails_with_an_odd_message_ends_and_holds_nobody_up(store_url: str) -> None:
    app = App(store_url, settings=Settings(poll=0.05))

    @app.step(retry=Retry(2, first=0.01))
    async def tries(what: str) -> None:
        raise ODD[what]

    @app.workflow
    async def fails(what: str) -> None:
        raise ODD[what]

    @app.workflow
    async def fails_inside(what: str) -> None:
        await tries(what)

    @app.workflow
    async def fine() -> str:
        return "fine"

    async with app:
        for what, error in ODD.items():
            for number, workflow in enumerate((fails, fails_inside)):
                with pytest.raises(type(error)):
                    await workflow.options(id=f"{what} {number}")(what)
                found = await app.runs.get(f"{what} {number}")
                assert (found.state, (found.reason or "").split(":")[0]) == ("failed", type(error).__name__)
            assert await fine() == "fine"


class Quit(BaseException):
    """Of a library that does not want to be caught."""


EXITS = {"exit": SystemExit, "cancelled": asyncio.CancelledError, "closed": GeneratorExit, "quit": Quit}


class Leaves:
    """Ends whatever looks at it."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __repr__(self) -> str:
        raise EXITS[self.how]


class LeavesInWords(Exception):
    def __str__(self) -> str:
        raise EXITS[self.args[0]]


class LeavesInNames(Exception):
    def __getattr__(self, name: str) -> Any:
        raise EXITS[self.args[0]]


class Model(BaseModel):
    how: str

    @model_serializer
    def write(self) -> dict[str, str]:
        raise EXITS[self.how]


def leave(where: str, how: str) -> Model:
    if where == "value":
        return Model(how=how)
    if where == "argument":
        raise ValueError(Leaves(how))
    if where == "attribute":
        error = ValueError("odd")
        error.thing = Leaves(how)  # type: ignore[attr-defined]
        raise error
    raise LeavesInNames(how) if where == "names" else LeavesInWords(how)


@pytest.mark.parametrize("where", ["words", "names", "argument", "attribute", "value"])
@pytest.mark.parametrize("how", EXITS)
async def test_an_outcome_that_ends_whatever_looks_at_it_ends_its_run_and_not_the_worker(
    store_url: str, where: str, how: str
) -> None:
    app = App(store_url, settings=Settings(poll=0.05))

    @app.workflow(retry=Retry(2, first=0.001))
    async def workflow(where: str) -> Model:
        return leave(where, how)

    @app.workflow
    def blocking_workflow(where: str) -> Model:
        return leave(where, how)

    @app.step(retry=Retry(2, first=0.001))
    async def step(where: str) -> Model:
        return leave(where, how)

    @app.step
    def blocking_step(where: str) -> Model:
        return leave(where, how)

    @app.step(batch=3)
    async def batch(where: list[str]) -> list[Any]:
        found: list[Any] = []
        for each in where:
            try:
                found.append(leave(each, how))
            except Exception as error:  # noqa: BLE001
                found.append(error)
        return found

    @app.workflow
    async def caller(where: str) -> list[str]:
        calls: list[Any] = [step(where), blocking_step.aio(where), workflow(where), batch(where)]
        found = await asyncio.gather(*calls, return_exceptions=True)
        return [type(each).__name__ for each in found if isinstance(each, Exception)]

    async with app, asyncio.timeout(20):
        functions: list[Any] = [workflow, blocking_workflow, step, blocking_step]
        for number, function in enumerate(functions):
            start = function.options(id=f"{number}").start
            handle = await getattr(start, "aio", start)(where)
            with pytest.raises((ValueError, LeavesInWords, NotSerializable, RemoteError)):
                await handle.result()
            assert (await app.runs.get(f"{number}")).state == "failed"
        assert len(await caller(where)) >= 3


@pytest.mark.parametrize("where", ["handler", "validator"])
async def test_a_handler_that_exits_answers_and_the_next_question_is_answered(store_url: str, where: str) -> None:
    app = App(store_url)

    def leave(number: int) -> int:
        if number < 0:
            raise SystemExit(3)
        return number

    @app.workflow
    async def answers() -> str:
        if where == "handler":
            run.answer("number", leave)
        else:
            run.answer("number", lambda number: number, validate=leave)
        return str(await run.receive("enough"))

    async with app, asyncio.timeout(20):
        await answers.options(id="a").start()
        with pytest.raises(Exception, match=r"SystemExit|3"):
            await app.ask("a", "number", -1)
        assert await app.ask("a", "number", 2) == 2
        await app.send("a", "enough", "yes")
