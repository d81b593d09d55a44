"""A machine's clock that is set while its worker runs.

Where the database has a clock, nothing happens because of it. Where there is only the machine's own, what is due is done by it, and
nothing stands still once it is right again.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from mainspring import App, Interval, Policy, Rate, Settings, Spec, State, run
from mainspring.errors import StoreUnavailable
from mainspring.model.clock import SECOND, SystemClock
from mainspring.store.open import open_store
from mainspring.store.schedules import TickFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mainspring.model.schedules import Tick
    from mainspring.store.protocol import Store

REAL = time.time_ns
DAY = 86_400.0


class Machine:
    """The machine's wall clock, which can be set."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def time_ns(self) -> int:
        return REAL() + int(self.ahead * 1e9)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(time, "time_ns", made.time_ns)
    return made


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    made = open_store(store_url, Settings())
    made.open()
    yield made
    made.close()


class Shop:
    """An app with a schedule, a queue with a rate, and a function that sleeps."""

    def __init__(self, url: str, catchup: float | None) -> None:
        self.app = App(url, settings=Settings(lease=2, poll=0.2))

        @self.app.workflow
        async def beat() -> None:
            pass

        @self.app.workflow
        async def sleeper(seconds: float) -> None:
            await run.sleep(seconds)

        self.beat, self.sleeper = beat, sleeper
        every_second = Spec(intervals=[Interval("1s")])
        self.app.schedule("each", beat.bind(), every_second, Policy("allow_all", catchup=catchup))
        self.app.queue("rated", rate=Rate(5, "1s"))


def ticks(store: Store) -> list[Tick]:
    return store.schedules.ticks(TickFilter(schedule="each", limit=10_000))


def fired(store: Store, since: int = 0) -> int:
    return sum(each.run is not None and since < each.nominal <= real() for each in ticks(store))


def real() -> int:
    return REAL() // 1_000


async def until(condition: Callable[[], bool], what: str, within: float = 20) -> None:
    give_up = time.monotonic() + within
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < give_up, what
        await asyncio.sleep(0.05)


# -- where the database has a clock ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("step", [600, -600, -3_600, DAY])
async def test_a_clock_that_is_set_fires_nothing_early_and_nothing_twice(
    postgres_url: str, machine: Machine, step: float
) -> None:
    shop = Shop(postgres_url, catchup=None)
    async with shop.app:
        store = shop.app._runtime.connection().store
        later = await shop.beat.options(after=300).start()
        asleep = await shop.sleeper.start(300)
        await until(lambda: fired(store) > 1, "the schedule fires")
        machine.ahead = step
        since = real()
        await until(lambda: fired(store, since) > 2, "it goes on while the clock is wrong")
        assert all(each.nominal <= real() for each in ticks(store))
        machine.ahead = 0
        since = real()
        await until(lambda: fired(store, since) > 2, "it goes on when the clock is right again")
        assert [(await each.describe()).state for each in (later, asleep)] == [State.SCHEDULED, State.WAITING]
        found = ticks(store)
    assert {(each.count, each.outcome.value) for each in found} == {(1, "fired")}
    assert all(each.nominal <= real() for each in found)


async def test_what_is_started_while_the_clock_is_wrong_has_the_right_times(
    postgres_url: str, machine: Machine
) -> None:
    shop = Shop(postgres_url, catchup=None)
    async with shop.app:
        machine.ahead = DAY
        await shop.sleeper(0.2)
        handle = await shop.beat.options(after=0.3).start()
        await handle.result(timeout=10)
        created = (await handle.describe()).created.timestamp()
    assert abs(created - REAL() / 1e9) < 30


def test_a_clock_that_was_set_is_in_doubt_until_it_is_confirmed(machine: Machine) -> None:
    offset = 0
    doubts: list[int] = []
    clock = SystemClock()
    clock.follow(lambda: offset)
    clock.on_doubt = lambda: doubts.append(1)
    before = clock.now()
    assert not clock.doubtful
    machine.ahead, offset = 3_600, -3_600 * SECOND
    assert clock.doubtful
    while not doubts:  # it does not look at each reading, but soon
        assert 0 <= clock.now() - before < SECOND
    clock.confirm()
    assert not clock.doubtful
    assert 0 <= clock.now() - before < SECOND


def test_a_clock_follows_the_database_when_that_is_set(machine: Machine) -> None:
    offset = 0
    clock = SystemClock()
    clock.follow(lambda: offset)
    offset = 50 * SECOND
    clock.confirm()
    assert abs(clock.now() - real() - 50 * SECOND) < SECOND
    assert abs(clock.offset - 50 * SECOND) < SECOND


def test_a_clock_that_cannot_be_confirmed_stays_in_doubt(machine: Machine) -> None:
    answers = iter([0])

    def measure() -> int:
        for answer in answers:
            return answer
        raise StoreUnavailable("away")

    clock = SystemClock()
    clock.follow(measure)
    machine.ahead = 60
    with pytest.raises(StoreUnavailable):
        clock.confirm()
    assert clock.doubtful


async def test_an_app_that_moves_to_another_database_leaves_the_clock_of_the_first(
    postgres_url: str, tmp_path: Path, machine: Machine
) -> None:
    app = App(postgres_url)

    @app.workflow
    async def double(number: int) -> int:
        return 2 * number

    async with app:
        assert await double(1) == 2
    app.close()
    app._runtime.url = f"sqlite:///{tmp_path}/next.db"
    machine.ahead = 60  # the time of a clock that is followed is in doubt now, and would be confirmed
    async with asyncio.timeout(60):
        handle = await double.start(2)
        async with app:
            assert await handle.result() == 4


# -- any database ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("catchup", [60, None], ids=["a minute", "all"])
async def test_nothing_stands_still_after_a_clock_was_ahead(
    sqlite_url: str, machine: Machine, catchup: float | None
) -> None:
    """Only the machine's own clock is there: what is due by it is done. When it is right again, everything goes on."""
    shop = Shop(sqlite_url, catchup)
    step = DAY if catchup else 600
    async with shop.app:
        store = shop.app._runtime.connection().store
        await until(lambda: fired(store) > 1, "the schedule fires")
        machine.ahead = step
        for _ in range(8):
            await (await shop.beat.options(queue="rated").start()).result(timeout=10)
        await until(lambda: any(each.nominal > real() + SECOND for each in ticks(store)), "it acts on the wrong time")
        machine.ahead = 0
        for _ in range(8):
            await (await shop.beat.options(queue="rated").start()).result(timeout=10)
        if catchup:
            since = real()
            await until(lambda: fired(store, since) > 2, "the schedule goes on")
        found = ticks(store)
    assert len({each.nominal for each in found}) == len(found)
    begun = [each.run for each in found if each.run is not None]
    assert len(set(begun)) == len(begun)


async def test_nothing_stands_still_when_the_clock_was_ahead_in_another_life(store_url: str, store: Store) -> None:
    """Rows from a time when the clock was ahead, whoever's clock that was."""
    shop = Shop(store_url, catchup=60)
    async with shop.app:
        await until(lambda: fired(store) > 1, "the schedule fires")
        for _ in range(6):
            await (await shop.beat.options(queue="rated").start()).result(timeout=10)
    ahead = "UPDATE {} SET {} = {} + 86400000000"
    for table, columns in (("queue_starts", ["at"]), ("schedules", ["cursor", "due", "upcoming"])):
        for column in columns:
            store.dashboard._do((ahead.format(table, column, column), [{}]))  # pyright: ignore[reportPrivateUsage]
    shop = Shop(store_url, catchup=60)
    async with shop.app:
        for _ in range(8):
            await (await shop.beat.options(queue="rated").start()).result(timeout=10)
        since = real()
        await until(lambda: fired(store, since) > 2, "the schedule goes on")
