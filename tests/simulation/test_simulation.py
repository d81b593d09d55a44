"""Fleets in which everything goes wrong that can: ten, or a hundred with `SAMPLES=all`."""

from __future__ import annotations

import pytest

from mainspring.testing.simulation import Faults, Report, simulate
from tests.simulation.scenario import CALLS, CANCELLED, app
from tests.support.samples import of


@pytest.fixture(scope="module")
def undisturbed() -> Report:
    return simulate(app, CALLS, seed=0, faults=Faults.none())


@pytest.mark.sampled
@pytest.mark.parametrize("decade", range(of(10, 1)))
def test_no_order_of_events_and_no_fault_breaks_a_promise(undisturbed: Report, decade: int) -> None:
    # With clocks that disagree by an hour, a parent may learn of its child's timeout before its own time is over.
    expected = {run: result for run, result in undisturbed.results.items() if run != "too-slow"}
    for seed in range(decade * 10, decade * 10 + 10):
        report = simulate(app, CALLS, seed=seed, expected=expected, cancel=CANCELLED)
        in_time = ("succeeded",) if report.faults.get("clock_jump") else ()  # by the clock of whoever finished it
        assert report.results["too-slow"].startswith(("cancelled", "failed RunTimedOut", *in_time))


def test_the_same_seed_is_the_same_history() -> None:
    once = simulate(app, CALLS, seed=7, cancel=CANCELLED)
    again = simulate(app, CALLS, seed=7, cancel=CANCELLED)
    assert once == again
    assert once.faults["crash"] > 0


def test_undisturbed_everything_ends_as_it_should(undisturbed: Report) -> None:
    assert undisturbed.faults == {}
    assert {run: result.split()[0] for run, result in undisturbed.results.items()} == {
        "parent-0": "succeeded",
        "parent-1": "succeeded",
        "parent-2": "succeeded",
        "racing-0": "succeeded",
        "racing-1": "succeeded",
        "failing-0": "failed",
        "failing-1": "failed",
        "too-slow": "cancelled",
        "unwanted": "succeeded",
    }
