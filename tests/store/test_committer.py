"""Group commit: who shares a transaction, who waits, who fails, who is told what."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from mainspring.errors import StoreUnavailable
from mainspring.model.clock import SystemClock
from mainspring.model.states import State
from mainspring.store.committer import Committer
from mainspring.store.open import open_store
from mainspring.store.writes import Recorded, RecordStep, Start, Started, Verdict, run_of
from tests.store.build import StoreSettings, owned, run, start, step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mainspring.store.committer import Answered
    from mainspring.store.protocol import Store
    from mainspring.store.writes import Op, Result

PATIENCE = 10
CREATED = Started(created=True, workflow="wf", state=State.QUEUED)


class Gate:
    """A real store whose `apply` a test can hold up, make fail, and look at."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.batches: list[list[str]] = []
        self.threads: list[int] = []
        self.open = threading.Event()
        self.open.set()
        self.entered = threading.Semaphore(0)
        self.refuse: Callable[[Sequence[Op]], None] = lambda _: None
        self.held: set[str] = set()

    def apply(self, ops: Sequence[Op], now: int) -> list[Result | Exception]:
        self.batches.append([run_of(op) for op in ops])
        self.threads.append(threading.get_ident())
        self.entered.release()
        assert self.open.wait(PATIENCE)
        self.refuse(ops)
        free = [op for op in ops if run_of(op) not in self.held]
        answers = dict(zip(map(id, free), self._store.apply(free, now), strict=True))
        return [answers.get(id(op), Verdict.HELD) for op in ops]

    def wait(self) -> None:
        assert self.entered.acquire(timeout=PATIENCE)


@pytest.fixture
def store() -> Iterator[Store]:
    made = open_store("sqlite://", StoreSettings())
    with closing(made):
        made.open()
        yield made


@pytest.fixture
def gate(store: Store) -> Gate:
    return Gate(store)


@pytest.fixture
def committer(gate: Gate) -> Iterator[Committer]:
    made = Committer(gate.apply, SystemClock())
    with closing(made):
        yield made


async def test_a_lonely_write_is_a_batch_of_its_own(committer: Committer, gate: Gate) -> None:
    assert await committer.commit(Start(run("a"))) == CREATED
    assert gate.batches == [["a"]]


async def test_what_comes_while_a_batch_commits_shares_the_next_one(committer: Committer, gate: Gate) -> None:
    gate.open.clear()
    first = committer.commit(Start(run("first")))
    await asyncio.to_thread(gate.wait)
    others = [committer.commit(Start(run(f"r{number}"))) for number in range(100)]
    gate.open.set()
    assert await asyncio.gather(first, *others) == [CREATED] * 101
    assert gate.batches == [["first"], [f"r{number}" for number in range(100)]]
    assert (committer.batches, committer.committed) == (2, 101)


async def test_a_receiver_gets_the_answers_of_a_batch_together_each_with_its_caller(
    committer: Committer, gate: Gate
) -> None:
    class Receiver:
        def __init__(self) -> None:
            self.received: list[list[tuple[object, object]]] = []
            self.last = asyncio.Event()

        def receive(self, answered: Sequence[Answered], /) -> None:
            self.received.append([(each.reply, each.answer) for each in answered])
            if any(each.reply == "last" for each in answered):
                self.last.set()
                raise LookupError("must not reach other callers")

    receiver, loop = Receiver(), asyncio.get_running_loop()
    problems: list[object] = []
    loop.set_exception_handler(lambda _, context: problems.append(context["exception"]))
    gate.open.clear()
    first = committer.commit(Start(run("first")))
    await asyncio.to_thread(gate.wait)
    for caller in ("one", "two", "last"):
        committer.hand_over_for(receiver, Start(run(caller)), caller, loop)
    other = committer.commit(Start(run("other")))
    gate.open.set()
    assert [await first, await other] == [CREATED] * 2
    await asyncio.wait_for(receiver.last.wait(), PATIENCE)
    assert receiver.received == [[("one", CREATED), ("two", CREATED), ("last", CREATED)]]
    assert [type(each) for each in problems] == [LookupError]


def test_a_blocking_caller_commits_by_itself_when_nobody_else_does(committer: Committer, gate: Gate) -> None:
    assert committer.commit_sync(Start(run("a"))) == CREATED
    assert gate.threads == [threading.get_ident()]


def test_blocking_callers_share_a_batch_when_somebody_is_committing(committer: Committer, gate: Gate) -> None:
    gate.open.clear()
    with ThreadPoolExecutor(6) as pool:
        first = pool.submit(committer.commit_sync, Start(run("first")))
        gate.wait()
        others = [pool.submit(committer.commit_sync, Start(run(f"r{number}"))) for number in range(5)]
        pending = committer._pending  # pyright: ignore[reportPrivateUsage]
        while len(pending) < 5:
            threading.Event().wait(0.001)
        gate.open.set()
        assert [future.result(PATIENCE) for future in (first, *others)] == [CREATED] * 6
    assert sorted(len(batch) for batch in gate.batches) == [1, 5]


def test_what_a_thread_hands_over_together_is_one_batch_with_an_answer_for_each(
    committer: Committer, gate: Gate
) -> None:
    first, bad = committer.commit_all_sync([Start(run("a")), Start(run("b", kind="nonsense"))])
    assert first == CREATED
    assert "CHECK" in str(bad)
    assert gate.batches[0] == ["a", "b"]


async def test_of_two_writes_in_one_piece_the_second_never_waits_for_another_batch(
    committer: Committer, gate: Gate
) -> None:
    """The thread is awake and looks for work: it finds both, or none."""
    loop = asyncio.get_running_loop()
    for number in range(200):
        first, second = loop.create_future(), loop.create_future()
        committer.hand_over_both((Start(run(f"a{number}")), first), (Start(run(f"b{number}")), second), loop)
        assert await second == CREATED
        assert await first == CREATED
    assert gate.batches == [[f"a{number}", f"b{number}"] for number in range(200)]


async def test_everybody_gets_the_answer_to_their_own_write(committer: Committer, store: Store) -> None:
    start(store, run("taken", workflow="other"), owned("a"))
    answers = await asyncio.gather(
        committer.commit(Start(run("taken", uid="late"))),
        committer.commit(RecordStep("w1", step("a"))),
        committer.commit(RecordStep("w2", step("a", "1"))),
        committer.commit(Start(run("new"))),
    )
    assert list(answers) == [
        Started(created=False, workflow="other", state=State.QUEUED),
        Recorded(),
        Recorded(Verdict.FENCED),
        CREATED,
    ]


async def test_refused_data_is_raised_where_it_came_from(committer: Committer, gate: Gate) -> None:
    good, bad = committer.commit(Start(run("a"))), committer.commit(Start(run("b", kind="nonsense")))
    assert await good == CREATED
    with pytest.raises(Exception, match="CHECK"):
        await bad
    with pytest.raises(Exception, match="CHECK"):
        await asyncio.to_thread(committer.commit_sync, Start(run("b", kind="nonsense")))


async def test_while_the_database_is_away_the_patient_wait_and_the_impatient_fail(
    committer: Committer, gate: Gate
) -> None:
    away = threading.Event()
    tried = threading.Semaphore(0)

    def refuse(_: Sequence[Op]) -> None:
        tried.release()
        if not away.is_set():
            raise StoreUnavailable("away")

    gate.refuse = refuse
    patient = committer.commit(Start(run("patient")))
    with pytest.raises(StoreUnavailable):
        await committer.commit(Start(run("impatient")), patient=False)
    assert not patient.done()
    await asyncio.to_thread(tried.acquire)
    away.set()
    assert await patient == CREATED


async def test_the_impatient_fail_at_once_also_while_the_patient_are_waiting(committer: Committer, gate: Gate) -> None:
    def refuse(_: Sequence[Op]) -> None:
        raise StoreUnavailable("away")

    gate.refuse = refuse
    patient = [committer.commit(Start(run("p0")))]
    for _ in range(7):  # the pauses have become long by now
        await asyncio.to_thread(gate.wait)
    try:
        patient.append(committer.commit(Start(run("p1"))))
        with pytest.raises(StoreUnavailable):
            async with asyncio.timeout(PATIENCE):
                await committer.commit(Start(run("impatient")), patient=False)
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(StoreUnavailable):
                await asyncio.to_thread(committer.commit_sync, Start(run("blocking")), patient=False)
    finally:
        gate.refuse = lambda _: None
    assert not any(each.done() for each in patient)
    assert await asyncio.gather(*patient) == [CREATED] * 2
    assert gate.batches[-1] == ["p0", "p1"]


async def test_closing_while_the_database_is_away_refuses_what_waits_for_it(gate: Gate) -> None:
    def refuse(_: Sequence[Op]) -> None:
        raise StoreUnavailable("away")

    gate.refuse = refuse
    committer = Committer(gate.apply, SystemClock())
    waiting = [committer.commit(Start(run(f"r{number}"))) for number in range(3)]
    await asyncio.to_thread(gate.wait)
    await asyncio.to_thread(committer.close)
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(each) for each in answers] == [StoreUnavailable] * 3


async def test_after_a_long_absence_what_has_come_together_is_committed_in_batches(
    committer: Committer, gate: Gate
) -> None:
    away = True

    def refuse(_: Sequence[Op]) -> None:
        if away:
            raise StoreUnavailable("away")

    gate.refuse = refuse
    first = committer.commit(Start(run("first")))
    await asyncio.to_thread(gate.wait)
    others = committer.commit_all([Start(run(f"r{number}")) for number in range(2500)])
    with pytest.raises(StoreUnavailable):  # all that came before this has been tried with it
        await committer.commit(Start(run("impatient")), patient=False)
    away = False
    assert await first == CREATED
    assert await others == [CREATED] * 2500
    assert [len(batch) for batch in gate.batches[-3:]] == [1000, 1000, 501]


async def test_a_patient_blocking_caller_waits_too(committer: Committer, gate: Gate) -> None:
    failures = iter([True, True])

    def refuse(_: Sequence[Op]) -> None:
        if next(failures, False):
            raise StoreUnavailable("away")

    gate.refuse = refuse
    assert await asyncio.to_thread(committer.commit_sync, Start(run("a"))) == CREATED
    with pytest.raises(StopIteration):
        next(failures)


def test_an_impatient_blocking_caller_fails_at_once(committer: Committer, gate: Gate) -> None:
    def refuse(_: Sequence[Op]) -> None:
        raise StoreUnavailable("away")

    gate.refuse = refuse
    with pytest.raises(StoreUnavailable):
        committer.commit_sync(Start(run("a")), patient=False)
    assert len(gate.batches) == 1


async def test_closing_commits_what_is_queued(gate: Gate, store: Store) -> None:
    committer = Committer(gate.apply, SystemClock())
    gate.open.clear()
    futures = [committer.commit(Start(run(f"r{number}"))) for number in range(10)]
    await asyncio.to_thread(gate.wait)
    closed = asyncio.create_task(asyncio.to_thread(committer.close))
    gate.open.set()
    assert await asyncio.gather(*futures) == [CREATED] * 10
    await closed
    assert store.counts() == {"queued": 10}


async def test_after_the_end_nothing_is_taken_any_more(gate: Gate) -> None:
    committer = Committer(gate.apply, SystemClock())
    committer.close()
    with pytest.raises(StoreUnavailable):
        await committer.commit(Start(run("a")))


# -- the slow lane -----------------------------------------------------------------------------------------------------
async def test_a_write_that_is_held_up_does_not_hold_up_others(committer: Committer, gate: Gate, store: Store) -> None:
    start(store, owned("a"), owned("b"))
    gate.held = {"a"}
    held = committer.commit(RecordStep("w1", step("a")))
    for number in range(5):
        assert await committer.commit(RecordStep("w1", step("b", str(number)))) == Recorded()
    assert not held.done()
    gate.held = set()
    assert await held == Recorded()


async def test_writes_about_one_run_keep_their_order_behind_one_that_is_held_up(
    committer: Committer, gate: Gate, store: Store
) -> None:
    start(store, owned("a"))
    gate.held = {"a"}
    begun = step("a", seq=None, output=None, completed=None)
    first = committer.commit(RecordStep("w1", begun))
    gate.wait()
    gate.wait()  # the slow lane has tried
    second = committer.commit(RecordStep("w1", step("a")))
    third = asyncio.create_task(asyncio.to_thread(committer.commit_sync, RecordStep("w1", step("a", "1"))))
    gate.held = set()
    assert [await first, await second, await third] == [Recorded()] * 3
    assert [each.completed is not None for each in store.steps("a")] == [True, True]


async def test_the_impatient_do_not_wait_behind_a_hold_up_for_a_database_that_is_away(
    committer: Committer, gate: Gate, store: Store
) -> None:
    def refuse(_: Sequence[Op]) -> None:
        raise StoreUnavailable("away")

    start(store, owned("a"))
    gate.held = {"a"}
    held = committer.commit(RecordStep("w1", step("a")))
    gate.wait()
    gate.wait()  # the slow lane has tried
    gate.refuse = refuse
    try:
        with pytest.raises(StoreUnavailable):
            async with asyncio.timeout(PATIENCE):
                await committer.commit(RecordStep("w1", step("a", "1")), patient=False)
    finally:
        gate.refuse, gate.held = lambda _: None, set()
    assert await held == Recorded()


async def test_after_a_hold_up_a_run_goes_the_fast_way_again(committer: Committer, gate: Gate, store: Store) -> None:
    start(store, owned("a"))
    gate.held = {"a"}
    held = committer.commit(RecordStep("w1", step("a")))
    gate.wait()
    gate.held = set()
    await held
    gate.threads.clear()
    assert await asyncio.to_thread(committer.commit_sync, RecordStep("w1", step("a", "1"))) == Recorded()
    assert len(gate.threads) == 1


async def test_closing_gives_up_on_what_is_still_held_up(gate: Gate, store: Store) -> None:
    start(store, owned("a"))
    committer = Committer(gate.apply, SystemClock())
    gate.held = {"a"}
    held = committer.commit(RecordStep("w1", step("a")))
    await asyncio.to_thread(gate.wait)
    await asyncio.to_thread(committer.close)
    with pytest.raises(StoreUnavailable):
        await held


async def test_many_writes_are_answered_together(committer: Committer, gate: Gate) -> None:
    gate.held = {"r1"}
    answers = committer.commit_all([Start(run("r0")), Start(run("r1")), Start(run("r2"))])
    while len(gate.batches) < 2:
        await asyncio.to_thread(gate.wait)
    assert not answers.done()
    gate.held = set()
    assert await answers == [CREATED] * 3
    assert await committer.commit_all([]) == []


async def test_one_bad_write_of_many_is_an_answer_of_its_own(committer: Committer, gate: Gate) -> None:
    def refuse(ops: Sequence[Op]) -> None:
        if any(run_of(op) == "bad" for op in ops):
            raise ValueError("bad")

    gate.refuse = refuse
    first, second, third = await committer.commit_all([Start(run("r0")), Start(run("bad")), Start(run("r1"))])
    assert first.created
    assert isinstance(second, ValueError)
    assert third.created


async def test_many_writes_after_the_end_are_all_refused(gate: Gate) -> None:
    made = Committer(gate.apply, SystemClock())
    made.close()
    answers = await made.commit_all([Start(run(f"r{number}")) for number in range(2500)])
    assert {type(answer) for answer in answers} == {StoreUnavailable}
