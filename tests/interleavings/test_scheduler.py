"""The scheduler itself: it finds what can go wrong, all of it, and finds it again."""

from __future__ import annotations

import asyncio
import math
import threading
from typing import TYPE_CHECKING

import pytest

from tests.interleavings.explore import (
    Broken,
    Case,
    Given,
    Walk,
    departures_of,
    exhaust,
    replay,
    run_once,
    walk,
    written,
)
from tests.interleavings.primitives import Condition, Event, Lock, Loop, Queue, SimpleQueue, Thread, ThreadPool

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interleavings.scheduler import Scheduler


def _together(scheduler: Scheduler, *work: Callable[[], object]) -> None:
    threads = [Thread(scheduler, one, f"thread {number}") for number, one in enumerate(work)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _two_locks(scheduler: Scheduler) -> None:
    first, second = Lock(scheduler), Lock(scheduler)

    def one() -> None:
        with first, second:
            pass

    def other() -> None:
        with second, first:
            pass

    _together(scheduler, one, other)


def test_two_locks_in_two_orders_are_a_deadlock_with_both_stacks() -> None:
    with pytest.raises(Broken) as caught:
        exhaust(Case("two locks", _two_locks), 1)
    assert caught.value.finding.kind == "deadlock"
    assert "with first, second" in caught.value.finding.text
    assert "with second, first" in caught.value.finding.text
    assert exhaust(Case("two locks", _two_locks), 0).complete


class _Counter:
    def __init__(self) -> None:
        self.value = 0

    def add(self) -> None:
        value = self.value
        self.value = value + 1


def _lost_update(scheduler: Scheduler) -> None:
    counter = _Counter()
    _together(scheduler, counter.add, counter.add)
    assert counter.value == 2


def test_lines_as_switch_points_show_a_lost_update() -> None:
    assert exhaust(Case("update", _lost_update), 2).complete
    with pytest.raises(Broken) as caught:
        exhaust(Case("update", _lost_update, lines=(__file__,)), 1)
    assert caught.value.finding.kind == "broken"


def test_a_failure_is_repeated_by_its_schedule_alone() -> None:
    case = Case("update", _lost_update, lines=(__file__,))
    with pytest.raises(Broken) as caught:
        walk(case, range(200))
    again = [replay(case, caught.value.schedule) for _ in range(3)]
    assert [one.finding.kind for one in again if one.finding is not None] == ["broken"] * 3
    assert again[0].trace == again[1].trace == again[2].trace
    assert len(caught.value.schedule.split()) <= 2, "shrunk to what matters"


def test_every_interleaving_is_run_once() -> None:
    """Two threads with n points each have (2n choose n) interleavings."""
    seen: set[tuple[str, ...]] = set()

    def program(scheduler: Scheduler) -> None:
        order: list[str] = []

        def work(name: str) -> None:
            for _ in range(3):
                scheduler.point("step")
                order.append(name)

        _together(scheduler, lambda: work("a"), lambda: work("b"))
        seen.add(tuple(order))

    report = exhaust(Case("all", program), 10)
    assert report.complete
    assert len(seen) == math.comb(6, 3)
    assert sum(report.by_cost.values()) == report.schedules


def test_a_timeout_ends_a_wait_only_if_nothing_else_can_run_or_if_it_is_chosen() -> None:
    outcomes: set[tuple[bool, float]] = set()

    def program(scheduler: Scheduler) -> None:
        event = Event(scheduler)
        _together(scheduler, lambda: outcomes.add((event.wait(5.0), scheduler.time)), event.set)

    exhaust(Case("timeout", program), 0)
    assert outcomes == {(True, 1000.0)}
    exhaust(Case("timeout", program), 1)
    assert outcomes == {(True, 1000.0), (False, 1005.0)}


def test_what_waits_for_longer_than_the_horizon_is_a_stall() -> None:
    def program(scheduler: Scheduler) -> None:
        Event(scheduler).wait(1_000.0)

    with pytest.raises(Broken, match="stall"):
        exhaust(Case("stall", program, horizon=100.0), 0)
    assert exhaust(Case("no stall", program, horizon=1_000.0), 0).complete


def test_an_exception_in_any_thread_is_a_finding() -> None:
    def program(scheduler: Scheduler) -> None:
        Thread(scheduler, lambda: 1 // 0, "divides").start()

    with pytest.raises(Broken, match="ZeroDivisionError in thread divides"):
        exhaust(Case("crash", program), 0)


def test_a_thread_that_never_ends_is_a_finding() -> None:
    def program(scheduler: Scheduler) -> None:
        Thread(scheduler, Event(scheduler).wait, "waits").start()

    with pytest.raises(Broken, match=r"left behind: .*waits \(1\): wait for Event of test_scheduler.py"):
        exhaust(Case("left", program), 0)


def test_queues_conditions_and_pools_work_in_every_order() -> None:
    def program(scheduler: Scheduler) -> None:
        queue, small = SimpleQueue[int](scheduler), Queue[int](scheduler, 1)
        condition = Condition(scheduler)
        ready: list[int] = []

        def consume() -> int:
            return small.get() + small.get() + queue.get()

        def produce() -> None:
            for number in (1, 2):
                small.put(number)
            queue.put(3)
            with condition:
                ready.append(1)
                condition.notify()

        pool = ThreadPool(scheduler, 2)
        found, done = pool.submit(consume), pool.submit(produce)
        with condition:
            assert condition.wait_for(lambda: ready)
        pool.shutdown()
        assert (found.result(), done.result()) == (6, None)

    assert exhaust(Case("queues", program), 1).complete


def test_a_loop_a_thread_and_a_timer_work_in_every_order() -> None:
    def program(scheduler: Scheduler) -> None:
        async def main() -> tuple[int, str]:
            loop = asyncio.get_running_loop()
            woken = asyncio.Event()
            Thread(scheduler, lambda: loop.call_soon_threadsafe(woken.set), "wakes").start()
            async with asyncio.timeout(1_000):
                await woken.wait()
            return await asyncio.gather(asyncio.to_thread(threading.get_ident), asyncio.sleep(3, "slept"))

        with Loop(scheduler) as loop:
            found = loop.run_until_complete(main())
        assert found[0] != threading.get_ident()
        assert found[1] == "slept"

    report = exhaust(Case("loop", program), 4)
    assert report.complete
    assert report.schedules > 10


def test_the_same_seed_is_the_same_schedule() -> None:
    case = Case("two locks", _two_locks)
    first, again = (written(departures_of(run_once(case, Walk(4)))) for _ in range(2))
    assert first == again
    assert run_once(case, Given(())).choices != []
