"""An app whose workflow runs as long as its argument says, in a world whose clock the test moves."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Policy, Settings, Spec, run
from mainspring.testing import world

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from mainspring import Overlap, RunTick, ScheduleDescription, TickInfo
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
