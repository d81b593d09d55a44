"""What is seen of a schedule is what is really so: what comes next, what it has started, and what keeps it from acting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring import Calendar, Overlap, Policy, Spec
from mainspring.schedules.plan import plan
from tests.schedules.conftest import at

if TYPE_CHECKING:
    from mainspring.store.schedules import Plan, Situation
    from tests.schedules.conftest import Bench, Stepped

HOURLY = Spec(calendars=[Calendar(hour="*")])


async def test_the_next_times_are_listed_while_it_is_paused(bench: Bench) -> None:
    await bench.create(HOURLY, paused=True)
    found = await bench.describe()
    assert found.upcoming == [at(f"{hour:02}:00") for hour in range(1, 11)]
    assert found.next == at("01:00")
    await bench.to("05:30")  # nobody has looked at it
    (listed,) = await bench.app.schedules.list()
    assert (listed.next, (await bench.describe()).upcoming[0]) == (at("06:00"), at("06:00"))


async def test_a_pause_that_ends_by_itself_is_followed_by_what_comes_after_it(bench: Bench) -> None:
    await bench.create(HOURLY)
    await bench.app.schedules.pause("s", until=at("03:00"))
    found = await bench.describe()
    assert (found.next, found.upcoming[:2]) == (at("03:00"), [at("03:00"), at("04:00")])
    await bench.to("03:30")
    assert [nominal for nominal, _ in bench.starts] == ["03:00"]


async def test_no_more_times_are_listed_than_it_has_actions_left_and_none_if_it_is_over(bench: Bench) -> None:
    await bench.create(HOURLY, Policy(limit=2), paused=True)
    assert (await bench.describe()).upcoming == [at("01:00"), at("02:00")]
    await bench.app.schedules.update("s", remaining=0)
    found = await bench.describe()
    assert (found.next, found.upcoming) == (None, [])


async def test_a_tick_that_is_to_be_skipped_is_not_the_next(bench: Bench) -> None:
    await bench.create(HOURLY)
    await bench.app.schedules.skip("s")
    found = await bench.describe()
    assert (found.next, found.upcoming[0], found.skips) == (at("02:00"), at("02:00"), [at("01:00")])
    await bench.app.schedules.unskip("s")
    assert (await bench.describe()).next == at("01:00")


async def test_the_latest_starts_are_seen_however_many_ticks_were_left_out_since(bench: Bench) -> None:
    bench.durations = {"00:01": "1h"}
    await bench.create("1m")
    await bench.to("00:30")
    found = await bench.describe()
    assert {str(tick.outcome) for tick in found.recent} == {"skipped_overlap"}
    assert [(tick.nominal, str(tick.outcome)) for tick in found.recent_starts] == [(at("00:01"), "fired")]
    assert (found.starts, found.skipped) == (1, 29)


async def test_what_is_due_before_a_time_is_what_will_act_before_it(bench: Bench) -> None:
    policies = {"active": None, "exhausted": Policy(limit=0), "paused": None, "skipped": None, "later": None}
    for name, policy in policies.items():
        spec = HOURLY if name != "later" else Spec(calendars=[Calendar(hour="6")])
        await bench.create(spec, policy, name, paused=name == "paused")
    await bench.app.schedules.skip("skipped", at("01:00"))

    async def due(text: str) -> list[str]:
        return [each.id for each in await bench.app.schedules.list(due_before=at(text))]

    assert await due("01:30") == ["active"]
    assert await due("02:30") == ["active", "skipped"]
    await bench.app.schedules.pause("active", until=at("01:15"))
    assert await due("01:30") == []
    assert await due("02:30") == ["active", "skipped"]  # that pause ends by itself
    await bench.app.schedules.pause("active")
    assert await due("02:30") == ["skipped"]
    await bench.app.schedules.pause("active", until=at("01:15"))
    await bench.to("01:20")
    assert await due("02:30") == ["active", "skipped"]
    assert await due("06:30") == ["active", "later", "skipped"]
    await bench.app.schedules.trigger("later", overlap=Overlap.ALLOW_ALL)
    assert await due("01:30") == []


def test_an_end_like_the_one_before_writes_nothing_about_its_schedule(stepped: Stepped) -> None:
    plans: list[Plan] = []

    def decide(situation: Situation) -> Plan:
        plans.append(plan(situation, stepped.time, stepped.ids.new))
        return plans[-1]

    stepped.create("1h")
    for time in ("01:01", "02:01", "03:01"):
        stepped.to(time)
        stepped.store.schedules.fire(stepped.time, 10, decide)
        stepped.end_runs()
        stepped.store.schedules.fire(stepped.time, 10, decide)
    assert [each.learned for each in plans if each.processed] == [True, False, False]
    assert stepped.row().last_result == '"ok"'
    assert not stepped.pass_once().more
