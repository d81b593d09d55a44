"""Programs around real workers: claims, stops, cancellations, wake-ups and failures that meet in every order.

After each of them the following must hold:

- Every run has ended, as it should, and every step was executed once.
- An idle worker has all its slots and threads free, and owns nothing, by its own account and by the store's.
- Nothing waited for something that nothing would have brought: polls and leases lie beyond the horizon, so a wake-up that is
  lost is a stall.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from mainspring.app import worker
from mainspring.engine import engine
from mainspring.engine.residency import local_starts
from mainspring.errors import MainspringError
from mainspring.services import claimer, service
from mainspring.store import committer
from tests.interleavings.explore import Case, files_of
from tests.interleavings.fleet import HORIZON, fleet, outcome_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interleavings.fleet import Fleet
    from tests.interleavings.scheduler import Scheduler

LINES = files_of(claimer, service, local_starts, engine, worker, committer)


def _second_process(fleet: Fleet, *knows: str) -> None:
    """Another process finishes what the first one has left, whatever that is."""
    process = fleet.process(*knows).ready()
    process.check_all_ended()
    process.leave()


# -- stop ----------------------------------------------------------------------------------------------------------------
def _claim_against_stop(fleet: Fleet, function: str, **options: Any) -> None:
    process = fleet.process(function, **options).ready()
    with fleet.scheduler.exploring():
        for what in ("a", "b"):
            process.start(getattr(process.member, function), what, id=what, queue="wide")
        process.leave()
    _second_process(fleet, function)
    assert fleet.ledger.executed.keys() == {"a", "b"}


def _start_against_stop(fleet: Fleet, function: str) -> None:
    process = fleet.process(function).ready()
    with fleet.scheduler.exploring():
        process.start(getattr(process.member, function), "a", id="a")
        late = process.begin(getattr(process.member, function).options(id="b").start("b"))
        process.ask_to_leave()
        with contextlib.suppress(MainspringError):  # refused, or its answer lost: then it may be stored all the same
            late.result()
        process.leave()
    _second_process(fleet, function)


def _waiting_against_stop(fleet: Fleet, function: str, queue: str | None, **settings: Any) -> None:
    process = fleet.process(function, **settings).ready()
    with fleet.scheduler.exploring():
        process.start(getattr(process.member, function), "a", queue, id="a")
        process.leave()
    _second_process(fleet, function)


def _simple_against_stop(fleet: Fleet, function: str, **settings: Any) -> None:
    process = fleet.process(function, **settings).ready()
    with fleet.scheduler.exploring():
        process.start(getattr(process.member, function), "a", id="a")
        process.leave()
    _second_process(fleet, function)


def _wait_against_stop(fleet: Fleet) -> None:
    """A caller begins to wait for a result while the process leaves."""
    process = fleet.process().ready()
    with fleet.scheduler.exploring():
        process.ask_to_leave()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            process.begin(outcome_of(process.member.app.handle("unknown")))
        process.leave()


def _dropped_start(fleet: Fleet, **options: Any) -> None:
    """A caller that goes away in the middle of starting a run leaves it started and executed, or not stored."""
    process = fleet.process("order", concurrency=2).ready()
    with fleet.scheduler.exploring():
        process.drop(process.member.order, "a", id="a", **options)
        process.start(process.member.order, "b", id="b")
        process.check_all_ended()
    process.leave()


def _declared_dead(fleet: Fleet, function: str) -> None:
    """A worker that is declared dead enters the fleet under a new id, and its runs are executed."""
    fleet.executions = 2
    process = fleet.process(function, lease=3.0).ready()
    with fleet.scheduler.exploring():
        for what in ("a", "b"):
            process.start(getattr(process.member, function), what, id=what, queue="wide")
        process.retire()
        for what in ("a", "b"):
            assert process.outcome(what) == f"did {what}"
    process.leave()
    _second_process(fleet, function)


def _cancel_and_stop(fleet: Fleet) -> None:
    """A run that is cancelled while its process stops is undone, here or elsewhere."""
    process = fleet.process("booking").ready()
    process.start(process.member.booking, "a", id="a")
    with fleet.scheduler.exploring():
        process.ask_to_leave()
        with contextlib.suppress(MainspringError, RuntimeError):  # the process has left
            process.do(process.member.app.handle("a").cancel())
        process.leave()
    second = fleet.process("booking").ready()
    second.check_all_ended(a="succeeded|cancelled")
    executed = fleet.ledger.executed
    cancelled = second.outcome("a") == "RunCancelled"
    second.leave()
    assert executed["a undone"] == (executed["a booked"] if cancelled else 0), executed


def _dead_while_stopping(fleet: Fleet) -> None:
    """A worker that is declared dead during its grace leaves all the same, and nothing of it goes on."""
    fleet.executions = 2
    process = fleet.process("booking", lease=0.9).ready()
    process.start(process.member.booking, "a", id="a")
    with fleet.scheduler.exploring():
        process.ask_to_leave()
        process.retire()
        process.leave()
    _second_process(fleet, "booking")


def _drain_when_declared_dead(fleet: Fleet) -> None:
    fleet.executions = 2
    process = fleet.process("order", lease=3.0).ready()
    with fleet.scheduler.exploring():
        process.start(process.member.order, "a", id="a", queue="wide")
        process.retire()
        process.do(process.member.app.drain())
    process.leave()


# -- cancel --------------------------------------------------------------------------------------------------------------
def _claim_against_end(fleet: Fleet, function: str, verb: str, **options: Any) -> None:
    process = fleet.process(function, concurrency=2).ready()
    with fleet.scheduler.exploring():
        for what in ("a", "b"):
            process.start(getattr(process.member, function), what, id=what, **options)
        process.do(getattr(process.member.app.handle("a"), verb)())
        process.check_all_ended(a="succeeded|cancelled")
    process.leave()


def _waiting_against_cancel(fleet: Fleet, function: str, verb: str, **settings: Any) -> None:
    process = fleet.process(function, **settings).ready()
    with fleet.scheduler.exploring():
        process.start(getattr(process.member, function), "a", "wide", id="a")
        process.do(getattr(process.member.app.handle("a"), verb)())
        process.check_all_ended(a="succeeded|cancelled", a_child="succeeded|cancelled")
    process.leave()


# -- claims ----------------------------------------------------------------------------------------------------------------
def _many_for_few_slots(fleet: Fleet, functions: tuple[str, ...], queue: str, **options: Any) -> None:
    """More runs than slots: whenever one is free, the next begins."""
    process = fleet.process(*functions, **options).ready()
    names = [f"{number}" for number in range(4)]
    with fleet.scheduler.exploring():
        for number, name in enumerate(names):
            process.start(getattr(process.member, functions[number % len(functions)]), name, id=name, queue=queue)
        for name in names:
            assert process.outcome(name) == f"did {name}"
        process.check_all_ended()
    process.leave()


def _two_workers(fleet: Fleet, function: str) -> None:
    """Two workers, one queue with a concurrency of one in the whole fleet."""
    processes = [fleet.process(function) for _ in range(2)]
    for process in processes:
        process.ready()
    names = ("a", "b", "c")
    with fleet.scheduler.exploring():
        for number, name in enumerate(names):
            process = processes[number % 2]
            process.start(getattr(process.member, function), name, id=name, queue="serial")
        for name in names:
            assert processes[0].outcome(name) == f"did {name}"
        for process in processes:
            process.check_all_ended()
    for process in processes:
        process.leave()
    assert fleet.ledger.most == 1, "two at once in a queue that allows one"


def _two_workers_one_leaves(fleet: Fleet, function: str) -> None:
    first, second = (fleet.process(function) for _ in range(2))
    first.ready()
    second.ready()
    with fleet.scheduler.exploring():
        for name in ("a", "b"):
            first.start(getattr(first.member, function), name, id=name, queue="serial")
        first.leave()
        for name in ("a", "b"):
            assert second.outcome(name) == f"did {name}"
        second.check_all_ended()
    second.leave()


def _failing_calls(fleet: Fleet, function: str, **faults: int) -> None:
    """The store fails, before or after it has done what it was asked for. A start may fail for it; what is stored is executed."""
    process = fleet.process(function, faults=faults).ready()
    with fleet.scheduler.exploring():
        for what in ("a", "b"):
            with contextlib.suppress(MainspringError):
                process.start(getattr(process.member, function), what, id=what, queue="wide")
        process.check_all_ended()
    process.leave()


def _starter_and_worker(fleet: Fleet, function: str) -> None:
    """One process starts runs, another one executes them, and a third cancels one."""
    starter, worker = fleet.process(function, work=False), fleet.process(function)
    starter.ready()
    worker.ready()
    with fleet.scheduler.exploring():
        for what in ("a", "b"):
            starter.start(getattr(starter.member, function), what, id=what)
        starter.do(starter.member.app.handle("a").cancel())
        for what in ("a", "b"):
            starter.outcome(what)
        worker.check_all_ended(a="succeeded|cancelled")
    for process in (starter, worker):
        process.leave()


def _pause(fleet: Fleet, function: str) -> None:
    """A worker that is paused and goes on finds what came meanwhile."""
    process = fleet.process(function).ready()
    with fleet.scheduler.exploring():
        process.member.app.pause()
        process.start(getattr(process.member, function), "a", id="a", queue="wide")
        process.member.app.resume()
        process.start(getattr(process.member, function), "b", id="b", queue="wide")
        process.check_all_ended()
    process.leave()


# -- waiting ---------------------------------------------------------------------------------------------------------------
def _child(fleet: Fleet, function: str, queue: str | None, **settings: Any) -> None:
    """A child that ends while its parent is being suspended wakes it."""
    process = fleet.process(function, **settings).ready()
    with fleet.scheduler.exploring():
        process.start(getattr(process.member, function), "a", queue, id="a")
        assert process.outcome("a") == "did a"
        process.check_all_ended()
    process.leave()


def _plain(fleet: Fleet, function: str, **settings: Any) -> None:
    process = fleet.process(function, **settings).ready()
    with fleet.scheduler.exploring():
        for what in ("a", "b"):
            process.start(getattr(process.member, function), what, id=what)
        process.check_all_ended()
    process.leave()


def _message(fleet: Fleet, **settings: Any) -> None:
    """A message that comes while its receiver is being suspended wakes it."""
    process = fleet.process("listener", **settings).ready()
    with fleet.scheduler.exploring():
        process.start(process.member.listener, "a", id="a")
        process.do(process.member.app.send("a", "news", "received, "))
        assert process.outcome("a") == "received, did a"
        process.check_all_ended()
    process.leave()


def _event(fleet: Fleet, **settings: Any) -> None:
    """A caller waits for an event that is set at that moment."""
    process = fleet.process("reporter", **settings).ready()
    with fleet.scheduler.exploring():
        process.start(process.member.reporter, "a", id="a")
        assert process.do(process.member.app.get_event("a", "progress")) == "half"
        process.check_all_ended()
    process.leave()


def _deadline(fleet: Fleet, function: str, **options: Any) -> None:
    """A run ends at about the time at which its time is over."""
    process = fleet.process(function).ready()
    with fleet.scheduler.exploring():
        for what in ("a", "b"):
            process.start(getattr(process.member, function), what, id=what, timeout=1, **options)
        process.check_all_ended(a="succeeded|cancelled", b="succeeded|cancelled")
    process.leave()


def _slow_step(fleet: Fleet) -> None:
    """A step's time is over at about the time at which it ends."""
    process = fleet.process("slow").ready()
    with fleet.scheduler.exploring():
        for what in ("a", "b"):
            process.start(process.member.slow, what, id=what)
        process.check_all_ended(a="succeeded|failed", b="succeeded|failed")
    process.leave()


def _same_id(fleet: Fleet) -> None:
    """Two processes start a run with one id."""
    processes = [fleet.process("order") for _ in range(2)]
    for process in processes:
        process.ready()
    with fleet.scheduler.exploring():
        starts = [process.begin(process.member.order.options(id="a").start("a")) for process in processes]
        assert [start.result().id for start in starts] == ["a", "a"]
        for process in processes:
            assert process.outcome("a") == "did a"
            process.check_all_ended()
    for process in processes:
        process.leave()


def _drain(fleet: Fleet, function: str) -> None:
    """`drain` returns when everything is done, and not before."""
    process = fleet.process(function, concurrency=2).ready()
    names = ("a", "b", "c")
    with fleet.scheduler.exploring():
        bound = getattr(process.member, function)
        process.do(process.member.app.start_many([bound.options(id=name, queue="wide").bind(name) for name in names]))
        process.do(process.member.app.drain())
        assert fleet.ledger.executed.keys() == set(names), "drained too early"
        process.check_all_ended()
    process.leave()


def _kicks(fleet: Fleet, function: str) -> None:
    """Runs that become ready one by one, while the claimer is about to go to sleep."""
    process = fleet.process(function).ready()
    with fleet.scheduler.exploring():
        for what in ("a", "b", "c"):
            process.start(getattr(process.member, function), what, id=what, queue="wide")
            if what == "b":
                process.outcome("a")
        for what in ("b", "c"):
            assert process.outcome(what) == f"did {what}"
        process.check_all_ended()
    process.leave()


def _case(name: str, program: Callable[..., None], *args: Any, memory: bool = False, **more: Any) -> Case:
    def run(scheduler: Scheduler) -> None:
        with fleet(scheduler, memory=memory) as made:
            program(made, *args, **more)

    return Case(f"worker: {name}", run, calm=True, horizon=HORIZON)


PARKED: dict[str, Any] = {"resident": 0}
PARKED_BLOCKING: dict[str, Any] = {"park_after": 0}
CASES = [
    _case("claim against stop", _claim_against_stop, "order"),
    _case("claim against stop, def", _claim_against_stop, "order_blocking"),
    _case("claim against stop, one slot", _claim_against_stop, "order", concurrency=1),
    _case("waiting for a child against stop", _waiting_against_stop, "parent", "wide"),
    _case("parked against stop", _waiting_against_stop, "parent", "wide", **PARKED),
    _case("waiting for a child against stop, def", _waiting_against_stop, "parent_blocking", "wide"),
    _case("claim against cancel", _claim_against_end, "order", "cancel", queue="wide"),
    _case("claim against cancel, def", _claim_against_end, "order_blocking", "cancel", queue="wide"),
    _case("claim against terminate", _claim_against_end, "order", "terminate", queue="wide"),
    _case("claim against terminate, def", _claim_against_end, "order_blocking", "terminate", queue="wide"),
    _case("start against cancel", _claim_against_end, "order", "cancel"),
    _case("start against terminate, def", _claim_against_end, "order_blocking", "terminate"),
    _case("waiting for a child against cancel", _waiting_against_cancel, "parent", "cancel"),
    _case("parked against cancel", _waiting_against_cancel, "parent", "cancel", **PARKED),
    _case("waiting for a child against terminate", _waiting_against_cancel, "parent", "terminate"),
    _case("four runs for one slot", _many_for_few_slots, ("order",), "wide", concurrency=1),
    _case("four runs for two threads", _many_for_few_slots, ("order_blocking",), "wide", threads=1),
    _case(
        "four runs for a slot and a thread",
        _many_for_few_slots,
        ("order_blocking", "order"),
        "wide",
        threads=1,
        concurrency=2,
    ),
    _case("four runs of a serial queue", _many_for_few_slots, ("order",), "serial"),
    _case("two workers, one at a time", _two_workers, "order"),
    _case("two workers, one at a time, def", _two_workers, "order_blocking"),
    _case("two workers, one leaves", _two_workers_one_leaves, "order"),
    _case("a claim fails", _failing_calls, "order", claim=1),
    _case("a claim fails, def", _failing_calls, "order_blocking", claim=1),
    _case("claims and looks fail", _failing_calls, "order", claim=2, owned=1, notices=1),
    _case("a commit fails", _failing_calls, "order", apply=1),
    _case("commits fail, def", _failing_calls, "order_blocking", apply=2),
    _case("a child ends", _child, "parent", None),
    _case("a queued child ends", _child, "parent", "wide"),
    _case("a child ends, its parent is parked", _child, "parent", None, **PARKED),
    _case("a queued child ends, its parent is parked", _child, "parent", "wide", **PARKED),
    _case("a child ends, def", _child, "parent_blocking", None),
    _case("a queued child ends, def, its parent is parked", _child, "parent_blocking", "wide", **PARKED_BLOCKING),
    _case("a message comes", _message),
    _case("a message comes, the run is parked", _message, **PARKED),
    _case("kicks", _kicks, "order"),
    _case("kicks, def", _kicks, "order_blocking"),
    _case("sleeps", _plain, "sleeper"),
    _case("a step is retried", _plain, "stubborn"),
    _case("a receive times out", _plain, "patient_listener"),
    _case("sleep against stop", _simple_against_stop, "sleeper"),
    _case("a starter and a worker", _starter_and_worker, "order"),
    _case("a starter and a worker, def", _starter_and_worker, "order_blocking"),
    _case("transactions", _plain, "payment"),
    _case("transactions, in memory", _plain, "payment", memory=True),
    _case("transactions against stop", _simple_against_stop, "payment"),
    _case("transactions and failing commits", _failing_calls, "payment", apply=1, transact=1),
    _case("an event is set", _event),
    _case("an event is set, in memory", _event, memory=True),
    _case("ends at its deadline", _deadline, "order"),
    _case("ends at its deadline, def", _deadline, "order_blocking"),
    _case("ends at its deadline, from a queue", _deadline, "order", queue="wide"),
    _case("a step ends at its timeout", _slow_step),
    _case("two starts with one id", _same_id),
    _case("drain", _drain, "order"),
    _case("drain, def", _drain, "order_blocking"),
    _case("waiting for a result against stop", _wait_against_stop),
    _case("pause and resume", _pause, "order"),
    _case("declared dead", _declared_dead, "order"),
    _case("declared dead, def", _declared_dead, "order_blocking"),
    _case("claim against cancel, in memory", _claim_against_end, "order", "cancel", queue="wide", memory=True),
    _case(
        "claim against terminate, in memory, def",
        _claim_against_end,
        "order_blocking",
        "terminate",
        queue="wide",
        memory=True,
    ),
    _case("four runs for one slot, in memory", _many_for_few_slots, ("order",), "wide", concurrency=1, memory=True),
    _case("commits fail, in memory", _failing_calls, "order", apply=2, memory=True),
    _case("claims fail, in memory, def", _failing_calls, "order_blocking", claim=2, memory=True),
    _case("a queued child ends, its parent is parked, in memory", _child, "parent", "wide", memory=True, **PARKED),
    _case("a message comes, the run is parked, in memory", _message, memory=True, **PARKED),
    _case("kicks, in memory", _kicks, "order", memory=True),
]

LISTED = [
    _case("start against stop", _start_against_stop, "order"),
    _case("start against stop, def", _start_against_stop, "order_blocking"),
    _case("a caller goes away while starting", _dropped_start),
    _case("sleeps, parked", _plain, "sleeper", **PARKED),
    _case("a receive times out against stop", _simple_against_stop, "patient_listener"),
    _case("a step is retried against stop", _simple_against_stop, "stubborn"),
    _case("cancel and stop, with compensation", _cancel_and_stop),
    _case("at most once against stop", _simple_against_stop, "once"),
    _case("declared dead while stopping", _dead_while_stopping),
    _case("declared dead while draining", _drain_when_declared_dead),
]
"""Cases of defects that are known (starts that are cancelled or come late, parking, stops, and workers that are declared dead). To be moved to `CASES` when they are mended."""


def with_lines(case: Case) -> Case:
    """The same with every line of the claimer, the engine, the worker and the committer as a switch point."""
    return Case(f"{case.name} (lines)", case.run, lines=LINES, calm=True, horizon=case.horizon)
