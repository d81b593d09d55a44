"""Random operators against a worker on a virtual clock: the runs that start, and when, are those of a simulation by the rules."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Policy, Settings, Spec, run
from mainspring.testing import world
from tests.schedules.simulated import Open, Rules, Simulated, moment
from tests.support.samples import of

if TYPE_CHECKING:
    from mainspring.testing import World

BEGIN = datetime(2026, 3, 1, tzinfo=UTC).timestamp() + 0.5
OVERLAPS = ("skip", "buffer_one", "buffer_all", "cancel_other", "terminate_other", "allow_all")
INTERVALS = ("60s", "90s", "2m/30s", "45s/5s", "3m")
OPERATIONS = (
    "nothing",
    "pause",
    "pause_until",
    "resume",
    "trigger",
    "skip",
    "change_spec",
    "change_policy",
    "backfill",
)


def length(nominal: int) -> float:
    return (0.0, 13.3, 75.3, 130.3, 250.3)[nominal // 7 % 5]


class Play:
    """A schedule in a database and its simulation, with the same operators."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.failing = self.random.random() < 0.5
        self.started: list[tuple[int, bool, float]] = []
        self.done: list[str] = []
        self.app = App("sqlite://", settings=Settings(poll=0.05))
        self.world: World

        @self.app.workflow
        async def act() -> None:
            tick = run.tick
            assert tick is not None
            nominal = int(tick.nominal.timestamp())
            self.started.append((nominal, tick.source.manual, round(run.now().timestamp(), 3)))
            if length(nominal):
                await run.sleep(length(nominal))
            if self.fails(nominal):
                raise ValueError(nominal)

        self.call = act.bind()
        choice = self.random.choice
        overlap = choice(OVERLAPS)
        rules = Rules(overlap, choice([None, None, None, 3, 8]), choice([None, None, 1, 2, 3]))
        rules.pause_on_failure = choice([0, 0, 1, 2])
        self.model = Simulated(BEGIN, self.spec(), rules, length, self.fails)

    def fails(self, nominal: int) -> bool:
        return self.failing and nominal // 11 % 4 == 0

    def spec(self) -> Spec:
        return Spec(intervals=[self.random.choice(INTERVALS)], jitter=self.random.choice([0, 0, 20, 200]))

    def policy(self) -> Policy:
        rules = self.model.rules
        return Policy(
            rules.overlap,
            limit=rules.limit,
            max_running=rules.max_running,
            pause_on_failure=rules.pause_on_failure,
        )

    async def to(self, time: float) -> None:
        self.model.advance(time)
        await self.world.advance_to(moment(time))

    async def operate(self) -> None:
        """Do one thing to both, at the same time."""
        doing = self.random.choice(OPERATIONS)
        self.done.append(f"{self.model.now - BEGIN:.2f} {doing}")
        await getattr(self, doing)()
        await self.world.drain()

    async def nothing(self) -> None: ...

    async def pause(self) -> None:
        self.model.pause()
        await self.app.schedules.pause("s", note="a pause")

    async def pause_until(self) -> None:
        until = self.model.now + self.random.choice([50.07, 170.07])
        self.model.pause(until)
        await self.app.schedules.pause("s", until=moment(until))

    async def resume(self) -> None:
        self.model.resume()
        await self.app.schedules.resume("s")

    async def trigger(self) -> None:
        overlap = self.random.choice([None, None, *OVERLAPS])
        acts = self.model.trigger(overlap)
        handle = await self.app.schedules.trigger("s", overlap)
        assert (handle is not None) == acts, self.done

    async def skip(self) -> None:
        nominal = self.random.choice(self.model.spec.upcoming(self.model.now + 240, 4))
        self.model.skips.add(int(nominal.timestamp()))
        await self.app.schedules.skip("s", nominal)

    async def change_spec(self) -> None:
        spec = self.spec()
        self.model.change_spec(spec)
        await self.app.schedules.update("s", spec=spec)

    async def change_policy(self) -> None:
        if self.model.waiting:
            return  # the rules do not say which policy ticks have that wait already
        self.model.rules.overlap = self.random.choice(OVERLAPS)
        self.model.rules.max_running = self.random.choice([None, 1, 2])
        await self.app.schedules.update("s", policy=self.policy())

    async def backfill(self) -> None:
        first = self.model.now - self.random.choice([400, 900])
        last = min(first + self.random.choice([60, 300]), self.model.now - 210)  # later ones may wait for their jitter
        overlap = self.random.choice([None, "skip", "buffer_one", "buffer_all", "allow_all"])
        self.model.backfill(first, last, overlap)
        await self.app.schedules.backfill("s", moment(first), moment(last), overlap)


async def play(seed: int, url: str) -> None:
    made = Play(seed)
    async with world(made.app, at=moment(BEGIN), url=url) as made.world:
        await made.app.schedules.create("s", made.call, made.model.spec, made.policy())
        try:
            for _ in range(made.random.randint(5, 20)):
                await made.to(made.model.now + made.random.choice([7.11, 31.17, 61.13, 200.19, 500.23]))
                await made.operate()
                assert sorted(made.started) == sorted(made.model.starts), (seed, made.done)
            await made.to(made.model.now + 700.3)
        except Open:
            return
        described: Any = await made.app.schedules.describe("s")
        assert sorted(made.started) == sorted(made.model.starts), (seed, made.done)
        assert (described.starts, described.paused) == (len(made.started), made.model.paused), (seed, made.done)


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(of(200, 8)))
async def test_the_runs_are_those_of_the_rules(seed: int, store_url: str) -> None:
    await play(seed, store_url)
