"""Runs that ask each other, that undo, that begin anew."""

from __future__ import annotations

from mainspring import Question, run
from tests.injection.scene import Caller, Drive, Expected, Scene, shape

_bid = Question("bid", int, str)


@shape({"r": ["leads with 20", "leads with 30"], "seller": 30})
def questions(s: Scene) -> Drive:
    """A run that asks, and one that accepts, takes a step, and answers."""

    @s.app.step
    async def note(what: str) -> str:
        return await s.effect(what)

    @s.app.workflow
    async def seller() -> int:
        best = 10

        async def take(amount: int) -> str:
            nonlocal best
            await note(f"bid {amount}")
            best = amount
            return f"leads with {amount}"

        run.answer(_bid, take)
        await run.receive("hammer", timeout=30)
        return best

    @s.app.workflow
    async def work() -> list[str]:
        answers = [await s.app.ask("seller", _bid, amount) for amount in (20, 30)]
        await s.app.send("seller", "hammer", None)
        return answers

    async def drive(caller: Caller) -> None:
        await caller.start(seller, "seller")
        await caller.start(work, "r")
        await caller.results_of("r", "seller")

    return drive


@shape({"r": "failed: Expected"}, undoes={"pay": "refund", "ship": "return"})
def undone(s: Scene) -> Drive:
    """A failure after two steps that have to be undone."""

    @s.app.step
    async def note(what: str) -> str:
        return await s.effect(what)

    @s.app.step
    async def fails() -> None:
        raise Expected("sold out")

    @s.app.workflow
    async def work() -> None:
        async with run.undo() as undo:
            await note("pay")
            undo.push(note.bind("refund"))
            await note("ship")
            undo.push(note.bind("return"))
            await fails()

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.results_of("r")

    return drive


@shape(
    {"r": "sold", "d": "sold"},
    main=("r", "d"),
    undoes={"pay": "refund", "pay d": "refund d"},
    optional=("refund", "refund d"),
)
def undoable(s: Scene) -> Drive:
    """Nothing fails, but a run that is cancelled in the middle owes what undoes its steps."""

    @s.app.step
    async def note(what: str) -> str:
        return await s.effect(what, 0.5)

    @s.app.step
    def note_blocking(what: str) -> str:
        return s.effect_blocking(what, 0.5)

    @s.app.workflow
    async def work() -> str:
        async with run.undo() as undo:
            await note("pay")
            undo.push(note.bind("refund"))
            await note("slow")
            await run.sleep(1)
        s.left_well()
        return "sold"

    @s.app.workflow
    def work_blocking() -> str:
        with run.undo() as undo:
            note_blocking("pay d")
            undo.push(note_blocking.bind("refund d"))
            note_blocking("slow d")
            run.sleep.sync(1)
        s.left_well()
        return "sold"

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.start(work_blocking, "d")
        await caller.results_of("r", "d")

    return drive


@shape({"r": [6, [1, 2, 3]]})
def continued(s: Scene) -> Drive:
    """A run that begins anew after every message, some of which are sent twice under their key."""

    @s.app.step
    async def note(what: str) -> str:
        return await s.effect(what)

    @s.app.workflow
    async def work(total: int = 0, got: list[int] | None = None) -> list[object]:
        got = got or []
        amount = await run.receive("amount")
        if amount is None:
            return [total, got]
        await note(f"book {amount}")
        await run.continue_as(total + amount, [*got, amount])
        raise AssertionError

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        for amount in (1, 2, 3):
            await caller.send("r", "amount", amount)
            await caller.pause(0.2)
            await caller.send_again("r", "amount", amount)
        await caller.send("r", "amount", None)
        await caller.results_of("r")

    return drive


@shape({"r": [1, 2, "a"], "sender": "sent"}, main=("r", "sender"))
def sending(s: Scene) -> Drive:
    """A run and a step of it that send to another one."""

    @s.app.step
    async def note(what: str) -> str:
        return await s.effect(what)

    @s.app.step
    async def post(what: int) -> None:
        await s.app.send("r", "x", what)
        await s.effect(f"post {what}")

    @s.app.workflow
    async def sender() -> str:
        await s.app.send("r", "x", 1)
        await post(2)
        return "sent"

    @s.app.workflow
    async def work() -> list[object]:
        return [await run.receive("x", timeout=30), await run.receive("x", timeout=30), await note("a")]

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.start(sender, "sender")
        await caller.results_of("r", "sender")

    return drive
