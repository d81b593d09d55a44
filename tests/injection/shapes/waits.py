"""Runs that wait: for a time, a message, an event, a stream, or for whichever comes first."""

from __future__ import annotations

import asyncio

from mainspring import run
from mainspring.errors import NotStarted
from tests.injection.scene import Caller, Drive, Scene, shape


@shape({"r": ["a", "b", "c"]})
def sleeps(s: Scene) -> Drive:
    """A short sleep and a long one."""

    @s.app.step
    async def note(what: str) -> str:
        return await s.effect(what)

    @s.app.workflow
    async def work() -> list[str]:
        done = [await note("a")]
        await run.sleep(0.03)
        done.append(await note("b"))
        await run.sleep(20)
        return [*done, await note("c")]

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.results_of("r")

    return drive


@shape({"r": "slept", "q": "slept"}, main=("r", "q"))
def short_sleeps(s: Scene) -> Drive:
    """Nothing but sleeps that are shorter than a slow commit, in two runs at once."""

    @s.app.workflow
    async def work() -> str:
        for _ in range(3):
            await run.sleep(0.02)
        return "slept"

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.start(work, "q")
        await caller.results_of("r", "q")

    return drive


@shape({"r": ["a", "b"]})
def def_sleeps(s: Scene) -> Drive:
    """The same in a `def` workflow."""

    @s.app.step
    def note(what: str) -> str:
        return s.effect_blocking(what)

    @s.app.workflow
    def work() -> list[str]:
        done = [note("a")]
        run.sleep.sync(0.03)
        run.sleep.sync(20)
        return [*done, note("b")]

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.results_of("r")

    return drive


@shape({"r": [1, 2, None, "a"]})
def receives(s: Scene) -> Drive:
    """Messages, with a timeout and without, and one that does not come."""

    @s.app.step
    async def note(what: str) -> str:
        return await s.effect(what)

    @s.app.workflow
    async def work() -> list[object]:
        first = await run.receive("x")
        second = await run.receive("x", timeout=30)
        third = await run.receive("y", timeout=0.1)
        return [first, second, third, await note("a")]

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.send("r", "x", 1)
        await caller.pause(0.2)
        await caller.send("r", "x", 2)
        await caller.results_of("r")

    return drive


@shape({"r": [1, 2, None, "a"]})
def def_receives(s: Scene) -> Drive:
    """The same in a `def` workflow."""

    @s.app.step
    def note(what: str) -> str:
        return s.effect_blocking(what)

    @s.app.workflow
    def work() -> list[object]:
        first = run.receive.sync("x")
        second = run.receive.sync("x", timeout=30)
        third = run.receive.sync("y", timeout=0.1)
        return [first, second, third, note("a")]

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.send("r", "x", 1)
        await caller.pause(0.2)
        await caller.send("r", "x", 2)
        await caller.results_of("r")

    return drive


@shape({"r": "done", "d": "done"}, main=("r", "d"))
def polls(s: Scene) -> Drive:
    """Messages that never come, waited for again and again."""

    @s.app.workflow
    async def work() -> str:
        for _ in range(4):
            await run.receive("news", timeout=0.1)
        return "done"

    @s.app.workflow
    def work_blocking() -> str:
        for _ in range(3):
            run.receive.sync("news", timeout=0.1)
        return "done"

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.start(work_blocking, "d")
        await caller.results_of("r", "d")

    return drive


@shape({"r": ["early", "late", None, [1, 2]], "teller": ["a", "b"]})
def events(s: Scene) -> Drive:
    """A run that waits for what another one says: events with and without a timeout, and a stream."""

    @s.app.step
    async def note(what: str) -> str:
        return await s.effect(what)

    @s.app.workflow
    async def teller() -> list[str]:
        await run.set_event("one", "early")
        first = await note("a")
        await run.set_event("two", "late")
        await run.write_stream("numbers", 1)
        second = await note("b")
        await run.write_stream("numbers", 2)
        await run.close_stream("numbers")
        return [first, second]

    @s.app.workflow
    async def work() -> list[object]:
        one = await s.app.get_event("teller", "one")
        two = await s.app.get_event("teller", "two", timeout=30)
        three = await s.app.get_event("teller", "three", timeout=0.1)
        return [one, two, three, [number async for number in s.app.read_stream("teller", "numbers")]]

    async def drive(caller: Caller) -> None:
        await caller.start(teller, "teller")
        await caller.start(work, "r")
        await caller.results_of("r", "teller")

    return drive


@shape({"r": [None, "hello", "child a"], "r-child": "child a"}, main=("r",))
def gathered(s: Scene) -> Drive:
    """A sleep, a message and a child, all at once."""

    @s.app.step
    async def note(what: str) -> str:
        return await s.effect(what)

    @s.app.workflow
    async def child() -> str:
        await run.sleep(0.1)
        return f"child {await note('a')}"

    @s.app.workflow
    async def work() -> list[object]:
        return list(await asyncio.gather(run.sleep(0.3), run.receive("x"), child.options(id="r-child")()))

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.pause(0.2)
        await caller.send("r", "x", "hello")
        await caller.results_of("r")

    return drive


@shape({"r": ["timed out", "a", "in time"]})
def timeouts(s: Scene) -> Drive:
    """`run.timeout` around waits: one that it ends, one that it does not."""

    @s.app.step
    async def note(what: str) -> str:
        return await s.effect(what)

    @s.app.workflow
    async def work() -> list[str]:
        done: list[str] = []
        try:
            async with run.timeout(0.2):
                await run.receive("never")
        except TimeoutError:
            done.append("timed out")
        async with run.timeout(30):
            done.append(await note("a"))
            await run.sleep(0.1)
        return [*done, "in time"]

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.results_of("r")

    return drive


@shape({"r": "cancelled: timeout", "d": "cancelled: timeout"}, main=("r", "d"), undoes={"a": "b"})
def deadlines(s: Scene) -> Drive:
    """Runs whose own time is over before they are, one of them with something to undo."""

    @s.app.step
    async def note(what: str) -> str:
        return await s.effect(what)

    @s.app.workflow(timeout=1)
    async def work() -> None:
        async with run.undo() as undo:
            undo.push(note.bind("b"))
            await note("a")
            await run.sleep(30)

    @s.app.workflow(timeout=1)
    def work_blocking() -> None:
        run.sleep.sync(30)

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.start(work_blocking, "d")
        await caller.results_of("r", "d")

    return drive


@shape({"r": "timed out", "q": "went on", "p": "a"}, main=("r", "q", "p"))
def process_time(s: Scene) -> Drive:
    """Time of the process around a wait, beside a wait, and alone."""

    @s.app.step
    async def note(what: str) -> str:
        return await s.effect(what)

    @s.app.workflow
    async def around() -> str:
        try:
            async with asyncio.timeout(0.5):
                return str(await run.receive("x"))
        except TimeoutError:
            return "timed out"

    @s.app.workflow
    async def beside() -> str:
        listening = asyncio.create_task(run.receive("x"))
        await asyncio.sleep(0.5)
        listening.cancel()
        return "went on"

    @s.app.workflow
    async def alone() -> str:
        await asyncio.sleep(0.3)
        return await note("a")

    async def drive(caller: Caller) -> None:
        await caller.start(around, "r")
        await caller.start(beside, "q")
        await caller.start(alone, "p")
        await caller.results_of("r", "q", "p")

    return drive


@shape({"r": ["a", "b"], "d": ["c"]}, main=("r", "d"))
def late_parking(s: Scene) -> Drive:
    """Runs that wait for a message, then briefly for a time: what was planned for the first wait must not concern the second."""

    @s.app.step
    async def note(what: str) -> str:
        return await s.effect(what, 0)

    @s.app.step
    def note_blocking(what: str) -> str:
        return s.mark(what)

    @s.app.workflow
    async def work() -> list[str]:
        await run.receive("go")
        await run.sleep(0.05)
        first = await note("a")
        await run.receive("go")
        await run.sleep(0.05)
        return [first, await note("b")]

    @s.app.workflow
    def work_blocking() -> list[str]:
        run.receive.sync("go")
        run.sleep.sync(0.95)
        return [note_blocking("c")]

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.start(work_blocking, "d")
        await caller.pause(0.05)
        await caller.send("r", "go", 1)
        await caller.send("d", "go", 3)
        await caller.pause(0.2)
        await caller.send("r", "go", 2)
        await caller.results_of("r", "d")

    return drive


@shape({"r": ["a"]}, at_once=True)
def drained(s: Scene) -> Drive:
    """A program that works in rounds: it waits again and again until everything is done that is due.

    Some of the rounds begin at the very moment of a heartbeat.
    """

    @s.app.step
    async def note(what: str) -> str:
        return await s.effect(what)

    @s.app.workflow
    async def work() -> list[str]:
        await run.sleep(12)
        return [await note("a")]

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        for _ in range(26):
            await caller.pause(0.5)
            try:
                await asyncio.wait_for(s.app.drain(), 60)
            except NotStarted:
                break
            except TimeoutError:
                s.ledger.notes.append("drain: it does not return")
        await caller.results_of("r")

    return drive
