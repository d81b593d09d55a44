"""What a run in memory is doing is one phase, and only legal changes of it happen."""

from __future__ import annotations

import pytest

from mainspring.engine.replay.signals import Continued, HandedBack, Lost, Parked, Stopped
from mainspring.engine.residency.phases import IN_CODE, LEGAL, STORED_AS_WAITING, Phase


def test_every_phase_has_its_changes() -> None:
    assert set(LEGAL) == set(Phase)
    assert LEGAL[Phase.LEFT] == frozenset()


def test_every_phase_but_the_last_comes_to_an_end() -> None:
    for phase in Phase:
        reached, front = {phase}, {phase}
        while front:
            front = {after for each in front for after in LEGAL[each]} - reached
            reached |= front
        assert Phase.LEFT in reached, phase


def test_a_run_whose_code_is_over_never_goes_back_into_it() -> None:
    for phase in Phase:
        if phase not in IN_CODE:
            assert not LEGAL[phase] & IN_CODE, phase


def test_only_a_run_that_is_suspended_is_parked() -> None:
    assert [phase for phase in Phase if Phase.PARKING in LEGAL[phase]] == [Phase.WAITING]
    assert frozenset({Phase.WAITING, Phase.PARKING}) == STORED_AS_WAITING


@pytest.mark.parametrize(
    ("weaker", "stronger"),
    [
        (HandedBack, Stopped),
        (Continued, Stopped),
        (HandedBack, Lost),
        (Stopped, Lost),
        (Lost, Parked),
        (Stopped, Parked),
    ],
)
def test_a_cancel_replaces_a_stop_and_a_takeover_replaces_both(weaker: type[Stopped], stronger: type[Stopped]) -> None:
    assert weaker.rank < stronger.rank
