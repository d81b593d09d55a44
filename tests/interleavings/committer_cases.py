"""Programs around the real committer: loops and threads that hand over writes while the store fails, holds up, refuses, closes.

After each of them the following must hold:

- The writes of a run were applied in the order in which the run handed them over.
- A write that was refused has none behind it that was applied.
- Every write was answered, once: with what the store said of it if it was applied and its answer arrived.
- No write was applied twice, unless the answer to it was lost.
- During an outage a write that is not patient was answered without waiting for anything.
- No thread is left, and none had to wait for one that waited for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
from typing import TYPE_CHECKING, Any
from unittest import mock

from mainspring.errors import StoreUnavailable
from mainspring.model.clock import SystemClock
from mainspring.store import committer
from mainspring.store.committer import Committer
from mainspring.store.open import open_store
from mainspring.store.writes import DiscardOutcome, Recorded, RecordStep, Start, Verdict, run_of
from tests.interleavings.explore import Case, files_of
from tests.interleavings.primitives import Lock, Loop, Thread
from tests.store.build import StoreSettings, finish, owned, step

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Sequence

    from mainspring.store.writes import Op, Result
    from tests.interleavings.scheduler import Scheduler

LINES = files_of(committer)
"""With these every line of the committer is a switch point."""
_FAULTS = ("none", "before", "after")


class Refused(ValueError):
    """A write that the store cannot take: a defect of its own."""


class Entry:
    """One write: who handed it over when, and what came back."""

    def __init__(self, op: Op, at: float, *, patient: bool) -> None:
        self.op = op
        self.handed_over = at
        self.patient = patient
        self.in_line = False
        """The call that hands it over has returned."""
        self.answers: list[Any] = []
        self.answered = 0.0
        self.applied: list[int] = []
        """The numbers of its applications, in the order of all."""
        self.lost = 0
        """How many of their answers were lost."""

    def __repr__(self) -> str:
        return f"<{run_of(self.op)}.{getattr(self.op, 'position', '?')} applied {self.applied} answers {self.answers}>"


class Recorder:
    """A store that remembers what was applied. The scheduler decides whether a call fails, before or after its commit."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        faults: int = 0,
        held: dict[str, int] | None = None,
        down_until: float = 0.0,
        prompt: bool = False,
    ) -> None:
        self._scheduler = scheduler
        self._faults = faults
        self._held = held or {}
        """Runs that are held up, and for how many calls more."""
        self._down_until = down_until
        self._turn = Lock(scheduler)
        self._taken_by: object = None
        self.at_once = self._at_once if prompt else None
        self.entries: dict[int, Entry] = {}
        self._applications = 0
        self.closed = False

    @contextlib.contextmanager
    def _at_once(self) -> Generator[bool]:
        free = self._turn.acquire(blocking=False)
        if free:
            self._taken_by = self._scheduler.me
        try:
            yield free
        finally:
            if free:
                self._taken_by = None
                self._turn.release()

    def apply(self, ops: Sequence[Op], now: int) -> list[Result | Exception]:
        del now
        if self._taken_by is self._scheduler.me:
            return self._apply(ops)
        with self._turn:
            return self._apply(ops)

    def _apply(self, ops: Sequence[Op]) -> list[Result | Exception]:
        self._scheduler.point("apply", [self.entries[id(op)] for op in ops])
        if self.closed:
            raise StoreUnavailable("the store is closed")
        if self._scheduler.time < self._down_until:
            raise StoreUnavailable("the database is away")
        fault = "none"
        if self._faults:
            fault = _FAULTS[self._scheduler.choose("apply fails", len(_FAULTS))]
            self._faults -= fault != "none"
        if fault == "before":
            raise StoreUnavailable("the database did not receive this")
        if any(run_of(op) == "bad" for op in ops):
            if len(ops) > 1:
                raise Refused("one of them is bad")
            return [Refused("bad")]
        answers: list[Result | Exception] = [self._apply_one(op) for op in ops]
        self._scheduler.point("answer")
        if fault == "after":
            for op, answer in zip(ops, answers, strict=True):
                self.entries[id(op)].lost += answer is Verdict.DONE
            raise StoreUnavailable("the answer was lost")
        for run in {run_of(op) for op in ops} & self._held.keys():
            self._held[run] -= 1
        return answers

    def _apply_one(self, op: Op) -> Verdict:
        if self._held.get(run_of(op), 0) > 0:
            return Verdict.HELD
        self._applications += 1
        self.entries[id(op)].applied.append(self._applications)
        return Verdict.DONE


class _Reply:
    """Takes every answer, also a second one."""

    def __init__(self, take: Callable[[object], None]) -> None:
        self.set_result = take
        self.set_exception = take

    def done(self) -> bool:
        return False


class Trial:
    """A committer at work on a recorder, and all writes that were handed over to it."""

    def __init__(self, scheduler: Scheduler, store: Recorder) -> None:
        self._scheduler = scheduler
        self._store = store
        self.committer = Committer(store.apply, SystemClock(), store.at_once)
        self.by_run: dict[str, list[Entry]] = {}
        self._threads: list[Thread] = []
        self._before_close: list[Entry] = []
        self._on_loop: dict[asyncio.AbstractEventLoop, tuple[list[Entry], asyncio.Event]] = {}

    def _entry(self, run: str, *, patient: bool) -> Entry:
        entries = self.by_run.setdefault(run, [])
        entry = Entry(DiscardOutcome("w", run, 1, str(len(entries))), self._scheduler.time, patient=patient)
        entries.append(entry)
        self._store.entries[id(entry.op)] = entry
        return entry

    def _answered(self, entry: Entry, answer: object) -> None:
        entry.answers.append(answer)
        entry.answered = self._scheduler.time

    # -- handing over ----------------------------------------------------------------------------------------------------
    def sync(self, run: str, *, patient: bool = True) -> None:
        """From a thread."""
        entry = self._entry(run, patient=patient)
        try:
            self._answered(entry, self.committer.commit_sync(entry.op, patient=patient))
        except Exception as error:  # noqa: BLE001
            self._answered(entry, error)

    def hand_over(self, run: str, *, patient: bool = True) -> None:
        """On a loop, without waiting."""
        entry = self._entry(run, patient=patient)
        loop = asyncio.get_running_loop()
        expected, came = self._on_loop.setdefault(loop, ([], asyncio.Event()))
        expected.append(entry)

        def take(answer: object) -> None:
            self._answered(entry, answer)
            came.set()

        self.committer.hand_over(entry.op, loop, _Reply(take), patient=patient)
        entry.in_line = True

    async def commit(self, run: str, *, patient: bool = True) -> None:
        """On a loop, waiting for the answer."""
        entry = self._entry(run, patient=patient)
        answer = self.committer.commit(entry.op, patient=patient)
        entry.in_line = True
        try:
            self._answered(entry, await answer)
        except Exception as error:  # noqa: BLE001
            self._answered(entry, error)

    async def commit_all(self, *runs: str, patient: bool = True) -> None:
        """On a loop, together."""
        entries = [self._entry(run, patient=patient) for run in runs]
        future = self.committer.commit_all([entry.op for entry in entries], patient=patient)
        for entry in entries:
            entry.in_line = True
        for entry, answer in zip(entries, await future, strict=True):
            self._answered(entry, answer)

    # -- threads ---------------------------------------------------------------------------------------------------------
    def thread(self, *runs: str, patient: bool = True) -> None:
        """A `def` run's thread: one blocking commit after the other."""

        def work() -> None:
            for run in runs:
                self.sync(run, patient=patient)

        self._start("def", work)

    def loop(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """A thread with an event loop, which lives until everything that was handed over there is answered."""

        async def until_answered() -> None:
            await main()
            expected, came = self._on_loop[asyncio.get_running_loop()]
            while not all(entry.answers for entry in expected):
                came.clear()
                await came.wait()

        def work() -> None:
            with Loop(self._scheduler) as loop:
                loop.run_until_complete(until_answered())

        self._start("loop", work)

    def _start(self, name: str, work: Callable[[], None]) -> None:
        thread = Thread(self._scheduler, work, f"{name} {len(self._threads)}")
        self._threads.append(thread)
        thread.start()

    def close_now(self) -> None:
        """Close while the threads are at work: what comes too late is refused."""
        self._before_close = [entry for entries in self.by_run.values() for entry in entries if entry.in_line]
        self.committer.close()
        self._store.closed = True
        for thread in self._threads:
            thread.join()

    def close_after(self) -> None:
        """Close when the threads have ended."""
        for thread in self._threads:
            thread.join()
        self.committer.close()

    # -- what must hold ----------------------------------------------------------------------------------------------------
    def check(self) -> None:
        for run, entries in self.by_run.items():
            for entry in entries:
                self._check_one(entry)
            first = [entry.applied[0] for entry in entries if entry.applied]
            # An impatient write whose answer was lost is not retried, but those before it may be.
            last = [entry.applied[-1] for entry in entries if entry.answers == [Verdict.DONE]]
            in_order = first == sorted(first) and last == sorted(last)
            assert in_order, f"the writes of run {run} were applied in another order: {entries}"
            if all(entry.patient for entry in entries):
                self._check_no_gap(run, entries)

    def _check_no_gap(self, run: str, entries: list[Entry]) -> None:
        """A write that was refused at close leaves none behind it that is applied: the end of a run without its last outcome."""
        applied = [bool(entry.applied) for entry in entries]
        assert applied == sorted(applied, reverse=True), (
            f"a write of run {run} was refused, a later one applied: {entries}"
        )

    def _check_one(self, entry: Entry) -> None:
        assert len(entry.answers) == 1, f"answered {len(entry.answers)} times: {entry}"
        assert len(entry.applied) <= 1 + entry.lost, f"applied again though its answer had arrived: {entry}"
        if len(entry.applied) > entry.lost:
            assert entry.answers == [Verdict.DONE], f"applied, and its writer got another answer: {entry}"
        else:
            assert isinstance(entry.answers[0], Exception), f"not applied, and its writer got another answer: {entry}"

    def check_all_applied(self) -> None:
        """Where nothing refuses for good, every patient write is applied in the end."""
        for entries in self.by_run.values():
            for entry in entries:
                assert not entry.patient or entry.applied, f"never applied: {entry}"

    def check_all_before_close_applied(self) -> None:
        """Where the store takes everything, what was handed over before `close` is committed."""
        for entry in self._before_close:
            assert entry.applied, f"handed over before close, and refused: {entry}"

    def check_impatient_did_not_wait(self) -> None:
        """Time passes only when nothing can run, as long as the scheduler lets no timeout end early."""
        if self._scheduler.early:
            return
        for entries in self.by_run.values():
            for entry in entries:
                waited = entry.answered - entry.handed_over
                assert entry.patient or not waited, f"waited for {waited:g} s: {entry}"


@contextlib.contextmanager
def _silence() -> Generator[None]:
    """Outages are logged, thousands of times."""
    log = logging.getLogger("mainspring.store")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def _loop_and_thread(scheduler: Scheduler, **store: Any) -> Trial:
    """An async run goes ahead: two outcomes, then its end, while a `def` run commits on its own thread."""
    trial = Trial(scheduler, Recorder(scheduler, **store))

    async def main() -> None:
        trial.hand_over("a")
        trial.hand_over("a")
        await trial.commit("a")

    trial.loop(main)
    trial.thread("b")
    return trial


def _two_threads(scheduler: Scheduler, **store: Any) -> Trial:
    trial = Trial(scheduler, Recorder(scheduler, **store))

    async def main() -> None:
        trial.hand_over("a")
        await asyncio.sleep(0)
        trial.hand_over("a")

    trial.loop(main)
    trial.thread("b", "b")
    trial.thread("c")
    return trial


def _together(scheduler: Scheduler, **store: Any) -> Trial:
    trial = Trial(scheduler, Recorder(scheduler, **store))

    async def main() -> None:
        trial.hand_over("a")
        await trial.commit_all("a", "b", "a")
        await trial.commit("a")

    trial.loop(main)
    trial.thread("c", "c")
    return trial


def _with_a_bad_one(scheduler: Scheduler, **store: Any) -> Trial:
    trial = Trial(scheduler, Recorder(scheduler, **store))

    async def main() -> None:
        trial.hand_over("a")
        trial.hand_over("bad")
        trial.hand_over("a")

    trial.loop(main)
    trial.thread("b")
    return trial


def _impatient(scheduler: Scheduler, **store: Any) -> Trial:
    """While the database is away, impatient writes are refused at once, however they are handed over."""
    trial = Trial(scheduler, Recorder(scheduler, down_until=scheduler.time + 5.0, **store))

    async def main() -> None:
        trial.hand_over("a")
        await trial.commit("b", patient=False)
        await trial.commit_all("c", "c", patient=False)

    trial.loop(main)
    trial.thread("d", patient=False)
    trial.thread("e")
    return trial


def _two_loops(scheduler: Scheduler, **store: Any) -> Trial:
    trial = Trial(scheduler, Recorder(scheduler, **store))

    def main(run: str) -> Callable[[], Coroutine[Any, Any, None]]:
        async def two() -> None:
            trial.hand_over(run)
            await asyncio.sleep(0)
            trial.hand_over(run, patient=False)

        return two

    trial.loop(main("a"))
    trial.loop(main("b"))
    trial.thread("c")
    return trial


def _case(
    name: str,
    make: Callable[..., Trial],
    *more: Callable[[Trial], None],
    close: Callable[[Trial], None] = Trial.close_after,
    batch: int = 1_000,
    **store: Any,
) -> Case:
    def run(scheduler: Scheduler) -> None:
        with _silence(), mock.patch.object(committer, "_LARGEST_BATCH", batch):
            trial = make(scheduler, **copy.deepcopy(store))
            close(trial)
        trial.check()
        for check in more:
            check(trial)

    return Case(f"committer: {name}", run)


# -- the real store ------------------------------------------------------------------------------------------------------
class _Sqlite:
    """A real store with two runs under way, whose calls may fail."""

    def __init__(self, scheduler: Scheduler, url: str, *, faults: int) -> None:
        self._scheduler = scheduler
        self._faults = faults
        self.store = open_store(url, StoreSettings())
        self.store.open()
        self.store.apply([Start(owned(run)) for run in ("a", "b")], 1)

    def apply(self, ops: Sequence[Op], now: int) -> list[Result | Exception]:
        fault = _FAULTS[self._scheduler.choose("apply fails", len(_FAULTS))] if self._faults else "none"
        self._faults -= fault != "none"
        if fault == "before":
            raise StoreUnavailable("the database did not receive this")
        answers = self.store.apply(ops, now)
        if fault == "after":
            raise StoreUnavailable("the answer was lost")
        return answers


def _outcomes_before_ends(scheduler: Scheduler, *, url: str, faults: int) -> None:
    """A step's outcome goes before the end of its run: in the other order the store refuses it, in silence."""
    sqlite = _Sqlite(scheduler, url, faults=faults)
    made = Committer(sqlite.apply, SystemClock(), sqlite.store.at_once)
    answers: dict[str, Any] = {}

    async def ahead() -> None:
        first = made.commit(RecordStep("w1", step("a")))
        await asyncio.sleep(0)
        answers["end of a"], answers["outcome of a"] = await made.commit(finish("a")), await first

    def on_loop() -> None:
        with Loop(scheduler) as loop:
            loop.run_until_complete(ahead())

    def blocking() -> None:
        answers["outcome of b"] = made.commit_sync(RecordStep("w1", step("b")))
        answers["end of b"] = made.commit_sync(finish("b"))

    with _silence():
        threads = [Thread(scheduler, on_loop, "loop"), Thread(scheduler, blocking, "def")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        made.close()
    recorded = [len(sqlite.store.steps(run)) for run in ("a", "b")]
    sqlite.store.close()
    assert recorded == [1, 1], f"an outcome was refused: {recorded}, {answers}"
    assert all(isinstance(answer, (Recorded, Verdict)) for answer in answers.values()), answers
    if not faults:  # else a write whose answer was lost may find itself there already
        verdicts = {getattr(answer, "verdict", answer) for answer in answers.values()}
        assert verdicts == {Verdict.DONE}, answers


def _sqlite_case(name: str, **options: Any) -> Case:
    return Case(f"committer: {name}", lambda scheduler: _outcomes_before_ends(scheduler, **options))


_HELD = {"a": 2}
SMALL = [
    _case("a loop and a thread", _loop_and_thread, Trial.check_all_applied),
    _case("a loop and a thread, a call fails", _loop_and_thread, Trial.check_all_applied, faults=1),
    _case("a loop that commits inline and a thread", _loop_and_thread, Trial.check_all_applied, prompt=True),
    _case("inline, a call fails", _loop_and_thread, Trial.check_all_applied, prompt=True, faults=1),
    _case("a run is held up", _loop_and_thread, Trial.check_all_applied, held=_HELD),
    _case("one write is bad", _with_a_bad_one),
    _case("close in the middle", _loop_and_thread, Trial.check_all_before_close_applied, close=Trial.close_now),
    _case(
        "close in the middle, inline",
        _loop_and_thread,
        Trial.check_all_before_close_applied,
        close=Trial.close_now,
        prompt=True,
    ),
    _case("close while a thread's run is held up", _loop_and_thread, close=Trial.close_now, held={"b": 3}),
    _case("impatient writes in an outage", _impatient, Trial.check_all_applied, Trial.check_impatient_did_not_wait),
]
"""Small enough to be searched for every interleaving with a preemption or two."""

LARGE = [
    _case("two threads, calls fail", _two_threads, Trial.check_all_applied, faults=3),
    _case("two threads and a group, calls fail", _together, Trial.check_all_applied, faults=3),
    _case("inline, two threads, calls fail", _two_threads, Trial.check_all_applied, prompt=True, faults=3),
    _case("a group inline, calls fail", _together, Trial.check_all_applied, prompt=True, faults=2),
    _case("held up, calls fail", _together, Trial.check_all_applied, faults=2, held={"a": 2, "c": 1}),
    _case(
        "held up inline, calls fail", _together, Trial.check_all_applied, faults=2, held={"a": 2, "c": 1}, prompt=True
    ),
    _case("a bad write, calls fail", _with_a_bad_one, faults=2),
    _case("a bad write inline, calls fail, close", _with_a_bad_one, faults=2, prompt=True, close=Trial.close_now),
    _case("close, a group", _together, Trial.check_all_before_close_applied, close=Trial.close_now),
    _case("close, calls fail", _two_threads, faults=2, close=Trial.close_now),
    _case("close, calls fail, inline", _two_threads, faults=2, close=Trial.close_now, prompt=True),
    _case("close, held up, calls fail", _together, faults=2, held={"a": 3, "c": 2}, close=Trial.close_now),
    _case(
        "close, held up, calls fail, inline",
        _together,
        faults=2,
        held={"a": 3, "c": 2},
        close=Trial.close_now,
        prompt=True,
    ),
    _case("impatient inline", _impatient, Trial.check_all_applied, Trial.check_impatient_did_not_wait, prompt=True),
    _case("impatient, close", _impatient, close=Trial.close_now),
    _case("impatient, held up", _impatient, Trial.check_all_applied, held={"a": 2, "b": 1, "c": 2, "d": 1}),
    _case("two loops, calls fail", _two_loops, Trial.check_all_applied, faults=2),
    _case("two loops inline, calls fail", _two_loops, Trial.check_all_applied, faults=2, prompt=True),
    _case("two loops inline, close", _two_loops, faults=1, prompt=True, close=Trial.close_now),
    _case("batches of one, calls fail", _together, Trial.check_all_applied, faults=2, batch=1),
    _case("batches of two inline, calls fail", _two_threads, Trial.check_all_applied, faults=2, prompt=True, batch=2),
    _case("batches of two, held up, close", _together, faults=1, held={"a": 2, "c": 1}, close=Trial.close_now, batch=2),
    _sqlite_case("SQLite in memory", url="sqlite://", faults=0),
    _sqlite_case("SQLite in memory, a call fails", url="sqlite://", faults=1),
]
"""Walked through at random."""


def with_lines(case: Case) -> Case:
    """The same with every line of the committer as a switch point."""
    return Case(f"{case.name} (lines)", case.run, lines=LINES, horizon=case.horizon)


CASES = [*SMALL, *LARGE, *(with_lines(case) for case in [*SMALL, *LARGE])]
