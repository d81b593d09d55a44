"""Steps: one after the other, retried, failing, at most once, and as runs of their own."""

from __future__ import annotations

import asyncio

from mainspring import Retry, run
from tests.injection.scene import Caller, Drive, Expected, Scene, shape


@shape({"r": ["a", "b", "c"]})
def steps(s: Scene) -> Drive:
    """Steps, one after the other."""

    @s.app.step
    async def note(what: str) -> str:
        return await s.effect(what)

    @s.app.workflow
    async def work() -> list[str]:
        return [await note("a"), await note("b"), await note("c")]

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.results_of("r")

    return drive


@shape({"r": ["a", "b"]})
def def_steps(s: Scene) -> Drive:
    """A `def` workflow with `def` steps."""

    @s.app.step
    def note(what: str) -> str:
        return s.effect_blocking(what)

    @s.app.workflow
    def work() -> list[str]:
        return [note("a"), note("b")]

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.results_of("r")

    return drive


@shape({"r": ["a", "b", "c"]})
def mixed_steps(s: Scene) -> Drive:
    """An `async def` workflow with `def` steps, and one that has no name but its place."""

    @s.app.step
    def note(what: str) -> str:
        return s.effect_blocking(what)

    @s.app.step
    async def note_async(what: str) -> str:
        return await s.effect(what)

    @s.app.workflow
    async def work() -> list[str]:
        return [await note.aio("a"), await note_async("b"), await run.step("third", s.effect, "c")]

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.results_of("r")

    return drive


@shape({"r": ["a", "b"], "d": ["c"]}, main=("r", "d"))
def long_steps(s: Scene) -> Drive:
    """Steps that take longer than the pause between two heartbeats, and less than the grace."""

    @s.app.step
    async def note(what: str) -> str:
        return await s.effect(what, 7)

    @s.app.step
    def note_blocking(what: str) -> str:
        return s.effect_blocking(what, 7)

    @s.app.workflow
    async def work() -> list[str]:
        return [await note("a"), await note("b")]

    @s.app.workflow
    def work_blocking() -> list[str]:
        return [note_blocking("c")]

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.start(work_blocking, "d")
        await caller.results_of("r", "d")

    return drive


@shape({"r": ["a", "b"], "d": ["c"]}, main=("r", "d"), tries={"a": 3, "c": 2})
def retried_steps(s: Scene) -> Drive:
    """Steps that fail and are retried after a pause."""

    @s.app.step(retry=Retry(5, first=0.2))
    async def stubborn(what: str) -> str:
        await s.effect(what)
        if run.attempt < 3:
            raise ConnectionError(what)
        return what

    @s.app.step(retry=Retry(5, first=0.2))
    def stubborn_blocking(what: str) -> str:
        s.effect_blocking(what)
        if run.attempt < 2:
            raise ConnectionError(what)
        return what

    @s.app.step
    async def note(what: str) -> str:
        return await s.effect(what)

    @s.app.workflow
    async def work() -> list[str]:
        return [await stubborn("a"), await note("b")]

    @s.app.workflow
    def work_blocking() -> list[str]:
        return [stubborn_blocking("c")]

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.start(work_blocking, "d")
        await caller.results_of("r", "d")

    return drive


@shape({"r": ["a", "b", 2], "d": ["c", 2]}, main=("r", "d"))
def retried_runs(s: Scene) -> Drive:
    """Workflows that fail after a step and are retried: the step is recorded and stays."""

    @s.app.step
    async def note(what: str) -> str:
        return await s.effect(what)

    @s.app.step
    def note_blocking(what: str) -> str:
        return s.effect_blocking(what)

    @s.app.workflow(retry=Retry(3, first=0.2))
    async def work() -> list[object]:
        first = await note("a")
        if run.attempt < 2:
            raise ConnectionError("after the step")
        return [first, await note("b"), run.attempt]

    @s.app.workflow(retry=Retry(3, first=0.2))
    def work_blocking() -> list[object]:
        first = note_blocking("c")
        if run.attempt < 2:
            raise ConnectionError("after the step")
        return [first, run.attempt]

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.start(work_blocking, "d")
        await caller.results_of("r", "d")

    return drive


@shape({"r": "failed: Expected", "d": "failed: Expected"}, main=("r", "d"))
def failing(s: Scene) -> Drive:
    """A step that raises, and a workflow that does."""

    @s.app.step
    async def fails(what: str) -> str:
        s.mark(what)
        raise Expected(what)

    @s.app.step
    def note(what: str) -> str:
        return s.effect_blocking(what)

    @s.app.workflow
    async def work() -> str:
        return await fails("a")

    @s.app.workflow
    def work_blocking() -> str:
        raise Expected(note("b"))

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.start(work_blocking, "d")
        await caller.results_of("r", "d")

    return drive


@shape(
    {
        "r": "failed: RuntimeError: RuntimeError: step 'leaves' raised GeneratorExit",
        "b": "failed: GeneratorExit: GeneratorExit: ",
    },
    main=("r", "b"),
)
def odd_errors(s: Scene) -> Drive:
    """A step and a body that raise what is no `Exception`."""

    @s.app.step
    async def leaves(what: str) -> str:
        s.mark(what)
        raise GeneratorExit

    @s.app.workflow
    async def work() -> str:
        return await leaves("a")

    @s.app.workflow
    async def body() -> str:
        raise GeneratorExit

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.start(body, "b")
        await caller.results_of("r", "b")

    return drive


@shape({"a": "a", "b": "b", "c": "c"}, main=("a", "b", "c"), tries={"c": 2})
def step_runs(s: Scene) -> Drive:
    """Steps that are runs of their own."""

    @s.app.step
    async def note(what: str) -> str:
        return await s.effect(what)

    @s.app.step
    def note_blocking(what: str) -> str:
        return s.effect_blocking(what)

    @s.app.step(retry=Retry(3, first=0.2))
    async def stubborn(what: str) -> str:
        await s.effect(what)
        if run.attempt < 2:
            raise ConnectionError(what)
        return what

    async def drive(caller: Caller) -> None:
        await caller.start(note, "a", "a")
        await caller.start(note_blocking, "b", "b")
        await caller.start(stubborn, "c", "c")
        await caller.results_of("a", "b", "c")

    return drive


@shape({"r": ["a", "b"]}, once=("a", "b"), interrupted=("r",))
def once_steps(s: Scene) -> Drive:
    """Steps that are begun at most once, in a workflow that is told when one was cut off."""

    @s.app.step(at_most_once=True)
    async def note(what: str) -> str:
        return await s.effect(what)

    @s.app.step(at_most_once=True)
    def note_blocking(what: str) -> str:
        return s.effect_blocking(what)

    @s.app.workflow
    async def work() -> list[str]:
        return [await note("a"), await note_blocking.aio("b")]

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.results_of("r")

    return drive


@shape(
    {"a": "a", "b": "b", "c": "c", "d": "d"},
    main=("a", "b", "c", "d"),
    once=("a", "b", "c", "d"),
    interrupted=("a", "b", "c", "d"),
)
def once_runs(s: Scene) -> Drive:
    """Runs that are begun at most once: steps, a workflow with a step, and a workflow without."""

    @s.app.step(at_most_once=True)
    async def note(what: str) -> str:
        return await s.effect(what)

    @s.app.step(at_most_once=True)
    def note_blocking(what: str) -> str:
        return s.effect_blocking(what)

    @s.app.step
    async def inner(what: str) -> str:
        return await s.effect(what)

    @s.app.workflow(at_most_once=True)
    async def work() -> str:
        return await inner("c")

    @s.app.workflow(at_most_once=True)
    def work_blocking() -> str:
        return s.effect_blocking("d")

    async def drive(caller: Caller) -> None:
        await caller.start(note, "a", "a")
        await caller.start(note_blocking, "b", "b")
        await caller.start(work, "c")
        await caller.start(work_blocking, "d")
        await caller.results_of("a", "b", "c", "d")

    return drive


@shape({"r": ["a", 2], "d": ["b", "c", "d"], "e": ["e", 2], "f": ["f", "g", "h"]}, main=("r", "d", "e", "f"))
def crowd(s: Scene) -> Drive:
    """`def` runs, whose threads commit by themselves, beside `async def` runs that end or fail right after a step."""

    @s.app.step
    async def note(what: str) -> str:
        return await s.effect(what)

    @s.app.step
    def note_blocking(what: str) -> str:
        return s.effect_blocking(what)

    @s.app.workflow(retry=Retry(3, first=0.2))
    async def work(what: str) -> list[object]:
        first = await note(what)
        if run.attempt < 2:
            raise ConnectionError("after the step")
        return [first, run.attempt]

    @s.app.workflow
    def work_blocking(whats: list[str]) -> list[str]:
        return [note_blocking(what) for what in whats]

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r", "a")
        await caller.start(work_blocking, "d", ["b", "c", "d"])
        await caller.start(work, "e", "e")
        await caller.start(work_blocking, "f", ["f", "g", "h"])
        await caller.results_of("r", "d", "e", "f")

    return drive


@shape({"r": ["a"]})
def blocking_caller(s: Scene) -> Drive:
    """Whoever waits for the result is a thread."""

    @s.app.step
    async def note(what: str) -> str:
        return await s.effect(what)

    @s.app.workflow
    async def work() -> list[str]:
        return [await note("a")]

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.do("wait", lambda: asyncio.to_thread(s.app.handle("r").result.sync), missing=True)

    return drive


@shape({"r": ["a"]}, while_leaving=True)
def late_waiter(s: Scene) -> Drive:
    """Nobody waits for the result until the app is being left."""

    @s.app.step
    async def note(what: str) -> str:
        return await s.effect(what)

    @s.app.workflow
    async def work() -> list[str]:
        return [await note("a")]

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.pause(0.1)

    return drive


@shape(
    {"r": ["a", "b", "c"], "d": ["d"], "j": "j", "k": "k", "l": "l"},
    main=("r", "j"),
    tries={"k": 2},
)
def batched(s: Scene) -> Drive:
    """Inputs of steps and of jobs that one call of a batch function serves."""

    @s.app.step(batch=10)
    async def note(places: list[tuple[str, str]]) -> list[str]:
        return await s.effects(places)

    @s.app.step(batch=2)
    def note_blocking(places: list[tuple[str, str]]) -> list[str]:
        return [s.mark_at(where, label) for where, label in places]

    @s.app.step(batch=10, retry=Retry(3, first=0.2))
    async def stubborn(places: list[tuple[str, str]]) -> list[str | Exception]:
        began = [s.ledger.count("end")[place] for place in places]
        labels = await s.effects(places)
        return [label if times else ConnectionError(label) for times, label in zip(began, labels, strict=True)]

    @s.app.workflow
    async def work() -> list[str]:
        return [*await asyncio.gather(note(("r", "a")), note(("r", "b"))), await note_blocking.aio(("r", "c"))]

    @s.app.workflow
    def work_blocking() -> list[str]:
        return [note.sync(("d", "d"))]

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.start(work_blocking, "d")
        await caller.start(note, "j", ("j", "j"))
        await caller.start(stubborn, "k", ("k", "k"))
        await caller.start(note_blocking, "l", ("l", "l"))
        await caller.results_of("r", "d", "j", "k", "l")

    return drive
