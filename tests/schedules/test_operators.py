"""What operators ask for is kept: a promised run is started or cancelled, a skip is a skip, what is stopped stops, counters add up."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import Overlap, Policy, Spec, State
from mainspring.errors import InvalidInput, RunCancelled
from mainspring.model.schedules import TickOutcome
from mainspring.schedules.actions import Action
from mainspring.schedules.definition import Definition
from tests.schedules.conftest import at

if TYPE_CHECKING:
    from tests.schedules.conftest import Bench, Stepped

JITTERED = Spec(intervals=["1h"], jitter="50m")


def update(stepped: Stepped, definition: Definition, *names: str) -> None:
    columns = definition.columns()
    stepped.schedules.update("s", {name: columns[name] for name in names})


# -- promised runs -------------------------------------------------------------------------------------------------------
async def test_deleting_a_schedule_cancels_the_runs_it_has_promised_and_says_why(bench: Bench) -> None:
    bench.durations = {"*": "10m"}
    await bench.create(Spec(), Overlap.BUFFER_ALL)
    first = await bench.app.schedules.trigger("s")
    promised = [await bench.app.schedules.trigger("s") for _ in range(2)]
    await bench.app.schedules.delete("s")
    for handle in promised:
        assert handle is not None
        with pytest.raises(RunCancelled, match="schedule s was deleted before its turn came"):
            await handle.result()
        assert (await handle.describe()).reason == "schedule s was deleted before its turn came"
    assert first is not None
    assert await first.result() == "00:00"


async def test_whoever_waits_for_a_promised_run_learns_at_once_that_its_schedule_was_deleted(bench: Bench) -> None:
    bench.durations = {"*": "10m"}
    await bench.create(Spec(), Overlap.BUFFER_ALL)

    @bench.app.workflow
    async def waiter() -> str:
        await bench.app.schedules.trigger("s")
        promised = await bench.app.schedules.trigger("s")
        assert promised is not None
        try:
            return str(await promised.result())
        except RunCancelled as error:
            return f"cancelled: {error}"

    waits = await waiter.start()
    await bench.to("00:01")
    await bench.app.schedules.delete("s")
    assert "was deleted" in await waits.result()
    assert bench.world.now == at("00:01")


async def test_a_promised_run_that_was_cancelled_with_its_schedule_can_be_resumed(bench: Bench) -> None:
    await bench.create(Spec(), Overlap.BUFFER_ALL)
    bench.durations = {"*": "10m"}
    await bench.app.schedules.trigger("s")
    promised = await bench.app.schedules.trigger("s")
    assert promised is not None
    await bench.app.schedules.delete("s")
    await bench.app.runs.resume(promised.id)
    assert await promised.result() == "00:00"


def test_a_promised_run_begins_under_its_own_id_whatever_runs_are_called_by_then(stepped: Stepped) -> None:
    stepped.create(Spec(), Overlap.BUFFER_ALL)
    stepped.schedules.trigger("s")
    promised = stepped.schedules.trigger("s").run
    assert promised is not None
    update(stepped, Definition("s", "wf", "{}", Spec(), action=Action("other")), "action")
    assert len(stepped.work_off()) == 2
    assert [tick.run for tick in stepped.ticks()].count(promised) == 1
    found = stepped.store.run(promised)
    assert found is not None
    assert found.state is State.SUCCEEDED


# -- skips ---------------------------------------------------------------------------------------------------------------
def test_a_skipped_tick_stays_skipped_when_the_spec_changes_before_its_jittered_time(stepped: Stepped) -> None:
    stepped.create(JITTERED, Overlap.ALLOW_ALL)
    skipped = stepped.schedules.skip("s")
    stepped.time += (skipped - at("00:00")) // timedelta(microseconds=1) + 1
    update(stepped, Definition("s", "wf", "{}", Spec(intervals=["3h"])), "spec", "canonical")
    stepped.to("02:00")
    stepped.passes()
    assert [(tick.outcome, tick.run) for tick in stepped.ticks()] == [(TickOutcome.SKIPPED_BY_REQUEST, None)]
    assert stepped.schedules.describe("s").skips == []


def test_a_skip_survives_a_spec_that_does_not_have_its_time(stepped: Stepped) -> None:
    stepped.create("1h", Overlap.ALLOW_ALL)
    stepped.schedules.skip("s", at("02:00"))
    for spec in (Spec(intervals=["3h"]), Spec(intervals=["1h"])):
        update(stepped, Definition("s", "wf", "{}", spec), "spec", "canonical")
    stepped.to("02:00")
    stepped.passes()
    assert [str(tick.outcome) for tick in stepped.ticks()][1:] == ["skipped_by_request"]


def test_a_skip_that_is_taken_back_in_the_same_moment_still_says_which_tick_it_was(
    stepped: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepped.create("1h")
    stepped.schedules.skip("s", at("01:00"))
    change = stepped.store.schedules.change
    raced: list[Any] = []

    def late(*args: Any) -> Any:
        if not raced:  # the other operator is faster
            raced.append(True)
            stepped.schedules.unskip("s", at("01:00"))
        return change(*args)

    monkeypatch.setattr(stepped.store.schedules, "change", late)
    assert stepped.schedules.skip("s") == at("01:00")
    raced.clear()
    with pytest.raises(InvalidInput, match="has no skip to undo"):
        stepped.schedules.unskip("s")


# -- backfills -----------------------------------------------------------------------------------------------------------
def test_a_backfill_stops_also_when_a_tick_finds_its_run_id_taken(stepped: Stepped) -> None:
    stepped.create("5m", Policy(Overlap.ALLOW_ALL, catchup="1h"))
    stepped.to("00:05")
    stepped.passes()
    stepped.schedules.delete("s")
    stepped.to("00:00")
    stepped.create("5m", Policy(Overlap.ALLOW_ALL, catchup="1h"))  # its first run has an id that is taken
    made = stepped.schedules.backfill("s", at("00:00") - timedelta(hours=12), at("00:00"), overlap="buffer_all")
    stepped.passes()
    stepped.to("00:05")
    assert stepped.schedules.stop_backfill(made.id).state == "stopped"
    clocks = [tick for tick in stepped.ticks() if not tick.source.manual]
    assert [tick.outcome for tick in clocks] == [TickOutcome.START_FAILED]
    assert {str(tick.outcome) for tick in stepped.ticks() if tick.source.manual} == {"fired", "dropped"}


def test_stopping_a_backfill_drops_what_waits_also_when_it_has_made_its_last_tick(stepped: Stepped) -> None:
    stepped.create("5m", Overlap.BUFFER_ALL)
    made = stepped.schedules.backfill("s", at("00:00") - timedelta(minutes=15), at("00:00"))
    stepped.passes()
    assert stepped.schedules.get_backfill(made.id).state == "done"
    assert stepped.schedules.stop_backfill(made.id).state == "stopped"
    assert [str(tick.outcome) for tick in stepped.ticks()] == ["fired", "dropped", "dropped", "dropped"]
    assert len(stepped.work_off()) == 1


# -- counters ------------------------------------------------------------------------------------------------------------
def test_every_dropped_tick_is_counted(stepped: Stepped) -> None:
    stepped.create("5m", Policy(Overlap.BUFFER_ALL, buffer_limit=2))
    stepped.schedules.trigger("s")
    made = stepped.schedules.backfill("s", at("00:00") - timedelta(hours=1), at("00:00"))
    stepped.passes()
    stepped.schedules.stop_backfill(made.id)
    cancelled = stepped.schedules.trigger("s").run
    assert cancelled is not None
    stepped.store.cancel([cancelled], "asked", stepped.time)
    stepped.passes()
    for time in ("00:05", "00:10", "00:15"):
        stepped.to(time)
        stepped.passes()
    dropped = [tick for tick in stepped.ticks() if tick.outcome is TickOutcome.DROPPED]
    assert {tick.reason for tick in dropped} >= {"its backfill was stopped", "its run was cancelled while it waited"}
    assert stepped.row().dropped == len(dropped) == 4


async def test_a_waiting_tick_whose_run_an_operator_has_ended_says_so(bench: Bench) -> None:
    bench.durations = {"*": "1h"}
    await bench.create("5m", Overlap.BUFFER_ALL)
    await bench.app.schedules.trigger("s")
    waiting = [await bench.app.schedules.trigger("s") for _ in range(2)]
    completed, cancelled = (each.id for each in waiting if each is not None)
    assert await bench.app.runs.complete(completed)
    assert await bench.app.runs.cancel(cancelled)
    await bench.to("00:01")
    reasons = {tick.run: str(tick.reason) for tick in await bench.ticks()}
    assert "it has succeeded" in reasons[completed]
    assert "was cancelled while it waited" in reasons[cancelled]
