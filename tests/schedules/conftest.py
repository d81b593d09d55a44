"""An app whose workflow runs as long as its argument says, in a world whose clock the test moves."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Policy, Settings, Spec, run
from mainspring.model.clock import to_datetime, to_micros
from mainspring.model.ids import IdMaker
from mainspring.model.states import State
from mainspring.operations.schedules.actions import Schedules
from mainspring.schedules.definition import Definition
from mainspring.schedules.plan import plan
from mainspring.store.open import open_store
from mainspring.store.schedules import TickFilter
from mainspring.store.writes import Finish
from mainspring.testing import world
from tests.store.build import StoreSettings, request, worker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from mainspring import Overlap, RunTick, ScheduleDescription, TickInfo
    from mainspring.model.schedules import Schedule, Tick
    from mainspring.store.protocol import Store
    from mainspring.store.schedules import Passed
    from mainspring.testing import World

BEGIN = datetime(2022, 6, 1, tzinfo=UTC)


def at(text: str, day: datetime = BEGIN) -> datetime:
    """A time of the first day, such as 00:05 or 00:05:30."""
    parts = [int(part) for part in text.split(":")]
    return day + timedelta(hours=parts[0], minutes=parts[1], seconds=parts[2] if len(parts) > 2 else 0)


class Bench:
    """One schedule of one app, and short ways to ask for what became of it."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.url = url
        self.durations: dict[str, str | int] = {}
        self.results: dict[str, Any] = {}
        self.seen: dict[str, tuple[Any, str | None]] = {}
        self.world: World
        self.found: list[Any] = []
        """What a test keeps of the ticks, for after the world is gone."""
        self.described: Any = None
        self.app = App(url, settings=Settings(poll=0.05, **settings))
        self.started: list[tuple[str, datetime]] = []
        self.run_ticks: list[RunTick] = []

        @self.app.workflow
        async def act() -> Any:
            """Runs as long as the test says, then returns or raises what it says."""
            tick = run.tick
            assert tick is not None
            self.run_ticks.append(tick)
            nominal = f"{tick.nominal:%H:%M:%S}"
            self.started.append((f"{tick.nominal:%H:%M}", run.now()))
            self.seen[f"{tick.nominal:%H:%M}"] = (
                tick.last_result,
                str(tick.last_failure) if tick.last_failure else None,
            )
            length = self.durations.get(nominal, self.durations.get(nominal[:5], self.durations.get("*", 0)))
            if length:
                await run.sleep(length)
            result = self.results.get(nominal[:5], nominal[:5])
            if isinstance(result, Exception):
                raise result
            return result

        self.act = act

    async def create(
        self, spec: Spec | str, policy: Policy | Overlap | str | None = None, name: str = "s", **more: Any
    ) -> None:
        made = spec if isinstance(spec, Spec) else Spec(intervals=[spec])
        how = policy if isinstance(policy, Policy) else Policy(policy) if policy is not None else None
        await self.app.schedules.create(name, self.act.bind(), made, how, **more)

    async def describe(self, name: str = "s") -> ScheduleDescription:
        return await self.app.schedules.describe(name)

    async def ticks(self, name: str = "s") -> list[TickInfo]:
        """All ticks, oldest first."""
        page = await self.app.schedules.ticks(name, limit=5_000)
        return page.ticks[::-1]

    async def outcomes(self, name: str = "s") -> dict[str, str]:
        """What became of each nominal time."""
        return {f"{tick.nominal:%H:%M}": str(tick.outcome) for tick in await self.ticks(name)}

    @property
    def starts(self) -> list[tuple[str, str]]:
        """Nominal and actual time of each run, in the order in which they began."""
        return [(nominal, f"{moment:%H:%M}") for nominal, moment in self.started]

    async def to(self, text: str) -> None:
        await self.world.advance_to(at(text))


@asynccontextmanager
async def bench_at(url: str, begin: datetime = BEGIN, **settings: Any) -> AsyncGenerator[Bench]:
    made = Bench(url, **settings)
    async with world(made.app, at=begin, url=url) as made.world:
        yield made


@pytest.fixture
async def bench(store_url: str) -> AsyncGenerator[Bench]:
    async with bench_at(store_url) as made:
        yield made


class Stepped:
    """A store with schedules and no worker: the test says what time it is, who looks at them, and which runs end."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.time = to_micros(BEGIN)
        self.ids = IdMaker(self, seed=1)  # type: ignore[arg-type]
        self.schedules = Schedules(store, self, self.ids)  # type: ignore[arg-type]

    def now(self) -> int:
        return self.time

    def to(self, text: str) -> None:
        self.time = to_micros(at(text))

    def create(self, spec: Spec | str, policy: Policy | Overlap | str | None = None, **more: Any) -> None:
        made = spec if isinstance(spec, Spec) else Spec(intervals=[spec])
        how = policy if isinstance(policy, Policy) else Policy(policy) if policy is not None else Policy()
        self.schedules.create(Definition("s", "wf", "{}", made, how), **more)

    def pass_once(self) -> Passed:
        """One pass over what is due, as a worker makes it."""
        return self.store.schedules.fire(self.time, 10, lambda each: plan(each, self.time, self.ids.new))

    def passes(self) -> None:
        """Passes until nothing is due."""
        for _ in range(200):
            if not self.pass_once().more:
                return
        raise AssertionError("there is always more to do")

    def row(self) -> Schedule:
        found = self.store.schedules.get("s")
        assert found is not None
        return found

    def ticks(self, **wanted: Any) -> list[Tick]:
        """All ticks, oldest first."""
        return self.store.schedules.ticks(TickFilter("s", limit=100_000, **wanted))[::-1]

    def end_runs(self) -> list[str]:
        """Let all runs that have begun succeed; the nominal times of their ticks, in the order in which they began."""
        claimed = self.store.claim(request(limit=1_000, now=self.time)).claims
        for claim in claimed:
            finish = Finish("w1", claim.run.id, claim.run.epoch, State.SUCCEEDED, self.time, output='"ok"')
            self.store.apply([finish], self.time)
        nominal = {tick.run: tick.nominal for tick in self.ticks()}
        return [f"{to_datetime(nominal[claim.run.id]):%H:%M}" for claim in claimed]

    def work_off(self) -> list[str]:
        """Passes and ends of runs until nothing is left; the nominal times in the order in which runs began."""
        begun: list[str] = []
        while True:
            self.passes()
            ended = self.end_runs()
            if not ended:
                return begun
            begun += ended


@pytest.fixture
def stepped(store_url: str) -> Iterator[Stepped]:
    store = open_store(store_url, StoreSettings())
    store.open()
    store.register(worker())
    try:
        yield Stepped(store)
    finally:
        store.close()
