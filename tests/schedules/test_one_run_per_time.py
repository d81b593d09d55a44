"""One nominal time has one run, whichever of clock, catch-up and backfill comes first or together; one trigger is one run."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

from mainspring import Overlap, Policy, Spec
from mainspring.model.clock import SECOND, to_datetime
from mainspring.model.schedules import TickOutcome, TickSource
from tests.schedules.conftest import at

if TYPE_CHECKING:
    from tests.schedules.conftest import Bench, Stepped

JITTERED = Spec(intervals=["1h"], jitter="1h")


def runs_of(stepped: Stepped) -> Counter[str]:
    """How many runs each nominal time has."""
    return Counter(
        f"{to_datetime(tick.nominal):%H:%M}"
        for tick in stepped.ticks()
        if tick.run is not None and tick.source is not TickSource.TRIGGER
    )


def respecify(stepped: Stepped, spec: Spec) -> None:
    columns = {"spec": spec.to_dict(), "canonical": spec.canonical().to_dict()}
    stepped.schedules.update("s", {name: json.dumps(value) for name, value in columns.items()})


# -- backfill against the clock ------------------------------------------------------------------------------------------
async def test_the_clock_leaves_out_times_that_a_backfill_has_run(bench: Bench) -> None:
    await bench.create("4m", Overlap.ALLOW_ALL)
    made = await bench.app.schedules.backfill("s", at("00:04"), at("00:08"))
    await bench.to("00:13")
    assert [nominal for nominal, _ in bench.starts] == ["00:04", "00:08", "00:12"]
    clocks = [tick for tick in await bench.ticks() if tick.source is TickSource.CLOCK]
    assert [str(tick.outcome) for tick in clocks] == ["replaced", "replaced", "fired"]
    assert clocks[0].reason == f"backfill {made.id} has taken it"
    assert (await bench.app.schedules.audit("s", at("00:00"))).healthy


async def test_a_backfill_leaves_a_time_that_waits_for_its_jitter_to_the_clock(bench: Bench) -> None:
    await bench.create(JITTERED)
    acts = JITTERED.jittered(at("03:00"), "s")
    await bench.world.advance_to(at("03:00") + (acts - at("03:00")) / 2)
    made = await bench.app.schedules.backfill("s", at("03:00"), bench.world.now)
    await bench.world.drain()
    (found,) = await bench.app.schedules.backfills("s")
    assert (found.id, found.state, found.started, found.skipped) == (made.id, "done", 0, 1)
    await bench.world.advance_to(acts)
    assert [start for start in bench.started if start[0] == "03:00"] == [("03:00", acts)]


async def test_a_backfill_takes_a_time_that_waits_for_its_jitter_if_the_clock_is_to_leave_it_out(bench: Bench) -> None:
    await bench.create(JITTERED)
    await bench.app.schedules.skip("s", at("03:00"))
    await bench.to("03:00:01")
    await bench.app.schedules.backfill("s", at("03:00"), at("03:00"))
    await bench.to("04:00")
    assert [nominal for nominal, _ in bench.starts if nominal == "03:00"] == ["03:00"]
    assert {str(tick.outcome) for tick in await bench.ticks() if tick.nominal == at("03:00")} == {
        "fired",
        "skipped_by_request",
    }


def test_the_clock_and_a_backfill_that_come_to_a_time_in_one_pass_make_one_run(stepped: Stepped) -> None:
    stepped.create("5m", Overlap.ALLOW_ALL)
    stepped.to("00:05")
    stepped.schedules.backfill("s", at("00:00"), at("00:10"))
    stepped.to("00:10")
    stepped.passes()
    assert runs_of(stepped) == {"00:00": 1, "00:05": 1, "00:10": 1}


def test_catching_up_makes_no_second_run_of_what_a_backfill_has_taken(stepped: Stepped) -> None:
    stepped.create("5m", Policy(Overlap.ALLOW_ALL, catchup=None))
    stepped.schedules.backfill("s", at("00:05"), at("00:15"))
    stepped.passes()
    stepped.to("00:30")
    stepped.passes()
    assert runs_of(stepped) == {f"00:{minute:02}": 1 for minute in range(5, 31, 5)}
    assert stepped.row().missed == 0


def test_what_a_backfill_has_waiting_is_not_run_by_the_clock(stepped: Stepped) -> None:
    stepped.create("5m", Overlap.ALLOW_ALL)
    stepped.schedules.backfill("s", at("00:05"), at("00:15"), overlap=Overlap.BUFFER_ALL)
    stepped.passes()
    stepped.to("00:15")
    stepped.passes()
    assert stepped.work_off() == ["00:05", "00:10", "00:15"]
    assert set(runs_of(stepped).values()) == {1}


def test_again_makes_a_second_run_and_the_clock_none_beside_it(stepped: Stepped) -> None:
    stepped.create("5m", Overlap.ALLOW_ALL)
    stepped.to("00:05")
    stepped.passes()
    stepped.schedules.backfill("s", at("00:05"), at("00:10"), again=True)
    stepped.passes()
    stepped.to("00:10")
    stepped.passes()
    assert runs_of(stepped) == {"00:05": 2, "00:10": 1}


def test_a_change_of_the_spec_does_not_bring_back_what_a_backfill_has_run(stepped: Stepped) -> None:
    stepped.create(JITTERED, Overlap.ALLOW_ALL)
    stepped.schedules.backfill("s", at("01:00"), at("01:00"))
    stepped.passes()
    stepped.to("01:00:01")
    respecify(stepped, Spec(intervals=["3h"]))
    stepped.to("02:00")
    stepped.passes()
    assert runs_of(stepped) == {"01:00": 1}
    assert [tick.outcome for tick in stepped.ticks() if not tick.source.manual] == [TickOutcome.REPLACED]


# -- backfills against each other ----------------------------------------------------------------------------------------
def test_two_backfills_of_the_same_times_make_one_run_of_each(stepped: Stepped) -> None:
    stepped.create("1m", Overlap.ALLOW_ALL)
    for _ in range(2):
        stepped.schedules.backfill("s", at("00:00") - timedelta(hours=5), at("00:00") - timedelta(minutes=1))
    begun = stepped.work_off()
    assert len(begun) == 300
    assert set(runs_of(stepped).values()) == {1}
    assert sorted((each.started, each.skipped) for each in stepped.store.schedules.backfills("s")) == [
        (0, 300),
        (300, 0),
    ]


def test_backfills_run_in_the_order_in_which_they_were_asked_for(stepped: Stepped) -> None:
    """The second is of earlier times; both have more than are made at once, and all of it happens in one moment."""
    stepped.create("1m", Overlap.BUFFER_ALL)
    asked: list[str] = []
    for hours in (5, 8, 11):
        start = at("00:00") - timedelta(hours=hours)
        stepped.schedules.backfill("s", start, start + timedelta(minutes=149))
        asked += [f"{start + timedelta(minutes=number):%H:%M}" for number in range(150)]
    assert stepped.work_off() == asked


def test_backfills_of_a_new_schedule_run_in_the_order_in_which_they_are_given(stepped: Stepped) -> None:
    starts = [at("00:00") - timedelta(hours=number) for number in range(1, 13)]
    stepped.create("1h", Overlap.BUFFER_ALL, backfill=[(start, start) for start in starts])
    assert stepped.work_off() == [f"{start:%H:%M}" for start in starts]


def test_a_backfill_continues_when_the_tick_that_filled_the_buffer_is_dropped(stepped: Stepped) -> None:
    stepped.create(JITTERED, Policy(Overlap.BUFFER_ALL, buffer_limit=1))
    stepped.to("01:00:01")
    respecify(stepped, Spec(intervals=["3h"]))  # 01:00 keeps waiting for its jitter
    stepped.schedules.pause("s")
    stepped.schedules.backfill("s", at("00:00") - timedelta(hours=6), at("00:00") - timedelta(hours=1))
    stepped.passes()
    stepped.to("02:00")
    assert stepped.work_off() == ["18:00", "21:00"]
    assert [each.completed is not None for each in stepped.store.schedules.backfills("s")] == [True]


def test_backfills_together_stay_within_the_buffer_limit(stepped: Stepped) -> None:
    stepped.create("1m", Policy(Overlap.BUFFER_ALL, buffer_limit=30))
    for hours in (3, 5, 8):
        start = at("00:00") - timedelta(hours=hours)
        stepped.schedules.backfill("s", start, start + timedelta(minutes=19))
    stepped.passes()
    most, begun = 0, 0
    while ended := stepped.end_runs():
        begun += len(ended)
        stepped.passes()
        most = max(most, len(stepped.ticks(outcomes=("buffered",))))
    assert (begun, most) == (60, 30)


# -- triggers ------------------------------------------------------------------------------------------------------------
def test_one_trigger_is_one_run_however_many_ticks_are_to_be_made_up_for(stepped: Stepped) -> None:
    stepped.create("1s", Policy(Overlap.ALLOW_ALL, catchup=None))
    stepped.time += 3_500 * SECOND
    tick = stepped.schedules.trigger("s")
    assert tick.outcome is TickOutcome.FIRED
    assert [each.run for each in stepped.ticks() if each.source is TickSource.TRIGGER] == [tick.run]
    assert stepped.row().starts == 3_501


def test_a_trigger_finds_room_in_a_full_buffer(stepped: Stepped) -> None:
    stepped.create("5m", Policy(Overlap.BUFFER_ALL, buffer_limit=1))
    for time in ("00:05", "00:10", "00:15"):
        stepped.to(time)
        stepped.passes()
    assert [str(tick.outcome) for tick in stepped.ticks()] == ["fired", "buffered", "dropped"]
    kept = [stepped.schedules.trigger("s") for _ in range(2)]
    assert [(str(tick.outcome), tick.run is None) for tick in kept] == [("buffered", False)] * 2
    stepped.to("00:20")
    stepped.passes()
    assert stepped.row().dropped == 2
    assert len(stepped.work_off()) == 4
