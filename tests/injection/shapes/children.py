"""Runs that start others: children, queues, keys, debouncing, and starts inside a transaction of one's own."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3

from mainspring import Debounce, run
from tests.injection.scene import Caller, Drive, Scene, shape


@shape({"r": ["one a", "two b"]})
def children(s: Scene) -> Drive:
    """A child that is called, and one that is started and awaited."""

    @s.app.step
    async def note(what: str) -> str:
        return await s.effect(what)

    @s.app.workflow
    async def child(name: str, what: str) -> str:
        await run.sleep(0.1)
        return f"{name} {await note(what)}"

    @s.app.workflow
    async def work() -> list[str]:
        handle = await child.start("two", "b")
        return [await child("one", "a"), await handle.result()]

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.results_of("r")

    return drive


@shape({"r": ["one a", "two b"]})
def def_children(s: Scene) -> Drive:
    """A `def` parent with `def` children."""

    @s.app.step
    def note(what: str) -> str:
        return s.effect_blocking(what)

    @s.app.workflow
    def child(name: str, what: str) -> str:
        run.sleep.sync(0.1)
        return f"{name} {note(what)}"

    @s.app.workflow
    def work() -> list[str]:
        handle = child.start.sync("two", "b")
        return [child("one", "a"), handle.result.sync()]

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.results_of("r")

    return drive


@shape({"r": ["a", "b", "c"]}, once=("a", "b", "c"), interrupted=("r", "r-0", "r-1", "r-2"))
def many_children(s: Scene) -> Drive:
    """Children that are started one by one, and whose steps are not to be begun twice."""

    @s.app.step(at_most_once=True)
    async def note(what: str) -> str:
        return await s.effect(what, 0.3)

    @s.app.workflow
    async def child(what: str) -> str:
        return await note(what)

    @s.app.workflow
    async def work() -> list[str]:
        handles = [await child.options(id=f"r-{number}").start(what) for number, what in enumerate("abc")]
        return [await handle.result() for handle in handles]

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.results_of("r")

    return drive


@shape({"r": ["a", "b", "c"], "m": ["d"], "n": ["e"]}, main=("r", "m", "n"), at_once=True)
def start_many(s: Scene) -> Drive:
    """Several runs started at once, inside a run and outside."""

    @s.app.step
    async def note(what: str) -> str:
        return await s.effect(what)

    @s.app.workflow
    async def child(what: str) -> list[str]:
        return [await note(what)]

    @s.app.workflow
    async def work() -> list[str]:
        handles = await s.app.start_many([child.bind(what) for what in "abc"])
        return [item for result in await s.app.gather(*handles) for item in result]

    async def drive(caller: Caller) -> None:
        calls = [child.options(id="m").bind("d"), child.options(id="n").bind("e"), work.options(id="r").bind()]
        await caller.do("start many", lambda: s.app.start_many(calls))
        await caller.results_of("r", "m", "n")

    return drive


@shape({"r": "went on", "r-c": "a", "r-o": "b"}, main=("r",), once=("b",), optional=("r-c", "r-o", "a", "b"))
def called_off_starts(s: Scene) -> Drive:
    """The workflow's own code cancels the start of a child while it is being committed."""

    @s.app.workflow
    async def child(what: str) -> str:
        return s.mark(what)

    @s.app.workflow(at_most_once=True)
    async def once(what: str) -> str:
        return s.mark(what)

    @s.app.workflow
    async def work() -> str:
        for function, run_id, what in ((child, "r-c", "a"), (once, "r-o", "b")):
            task = asyncio.create_task(function.options(id=run_id).start(what))
            for _ in range(3):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await run.sleep(0.5)
        return "went on"

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.results_of("r")

    return drive


@shape({"q1": ["a"], "q2": ["b"], "q3": ["c"]}, main=("q1", "q2"))
def queued(s: Scene) -> Drive:
    """A queue in which one run goes on at a time."""
    s.app.queue("narrow", concurrency=1)
    inside: set[str] = set()

    @s.app.step
    async def note(what: str) -> str:
        if inside and not s.life.dead:
            s.ledger.notes.append(f"queue: {run.id} goes on beside {sorted(inside)}")
        inside.add(run.id)
        try:
            return await s.effect(what)
        finally:
            inside.discard(run.id)

    @s.app.workflow
    async def work(what: str) -> list[str]:
        return [await note(what)]

    async def drive(caller: Caller) -> None:
        for run_id, what in (("q1", "a"), ("q2", "b"), ("q3", "c")):
            await caller.start(work, run_id, what, queue="narrow")
        await caller.results_of("q1", "q2", "q3")

    return drive


@shape({"r": ["a", "third"]}, optional=("r",))
def debounced(s: Scene) -> Drive:
    """Of three requests in a row one run comes, with the last input; they are made by a run."""

    @s.app.step
    async def note(what: str) -> str:
        return await s.effect(what)

    @s.app.workflow
    async def save(text: str) -> str:
        await note("a")
        return text

    @s.app.workflow
    async def work() -> list[str]:
        handle = None
        for text in ("first", "second", "third"):
            handle = await save.options(debounce=Debounce("me", wait=0.3)).start(text)
        assert handle is not None
        return ["a", await handle.result()]

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.results_of("r")

    return drive


@shape({"r": ["a", True, False], "k": "a"}, main=("r",))
def keyed(s: Scene) -> Drive:
    """Two requests with one key are one run."""

    @s.app.step
    async def note(what: str) -> str:
        return await s.effect(what)

    @s.app.workflow
    async def child() -> str:
        await run.sleep(20)
        return await note("a")

    @s.app.workflow
    async def work() -> list[object]:
        first = await child.options(id="k", key="one", key_mode="return_existing").start()
        second = await child.options(key="one", key_mode="return_existing").start()
        return [await second.result(), first.created, second.created]

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.results_of("r")

    return drive


@shape({"r": ["a", "joined"], "j": "joined"}, main=("r",), databases=("sqlite", "postgres"))
def joined(s: Scene) -> Drive:
    """A step that starts a run inside a transaction of its own."""

    @s.app.workflow
    async def child() -> str:
        return "joined"

    @s.app.step
    def begin(what: str) -> str:
        with contextlib.closing(_connect(s)) as connection:
            with s.app.joined(connection):
                child.options(id="j").start.sync()
            connection.commit()
        return s.effect_blocking(what)

    @s.app.workflow
    async def work() -> list[str]:
        return [await begin.aio("a"), await s.app.handle("j").result()]

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.results_of("r")

    return drive


def _connect(s: Scene) -> sqlite3.Connection:
    if s.database == "postgres":
        import psycopg  # noqa: PLC0415  (only where it is used)

        return psycopg.connect(s.life.app.url)  # type: ignore[return-value]
    return sqlite3.connect(s.life.app.url.removeprefix("sqlite:///"), timeout=0)


@shape({"r": "a", "later": "b"}, main=("r",))
def scheduled_functions(s: Scene) -> Drive:
    """A step that has another function run right after it, and one in a moment."""

    @s.app.step
    async def later(what: str) -> str:
        return await s.effect(what)

    @s.app.step
    async def note(what: str) -> str:
        await s.app.run_after(0, later.options(id="later").bind("b"))
        await s.app.run_after(0.3, later.bind("c"))
        return await s.effect(what)

    @s.app.workflow
    async def work() -> str:
        return await note("a")

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.results_of("r")

    return drive
