"""A short look at operators against workers, two with `SAMPLES=all`; `python -m tests.schedules.operators --minutes 5` is a long one."""

from __future__ import annotations

import pytest

from tests.schedules.operators import play
from tests.support.samples import of


@pytest.mark.processes
@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(1, 1 + of(2, 1)))
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_whatever_operators_do_while_workers_die_schedules_keep_their_promises(database: str, seed: int) -> None:
    outcome = play(database, 3, seed)
    assert not outcome.faults, outcome
    assert outcome.found["runs"] > 10
    assert outcome.killed > 0
