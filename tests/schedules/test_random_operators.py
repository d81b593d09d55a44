"""A short look at operators against workers; `python -m tests.schedules.operators --minutes 5` is a long one."""

from __future__ import annotations

import pytest

from tests.schedules.operators import play


@pytest.mark.processes
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_whatever_operators_do_while_workers_die_schedules_keep_their_promises(database: str, seed: int) -> None:
    outcome = play(database, 3, seed)
    assert not outcome.faults, outcome
    assert outcome.found["runs"] > 10
    assert outcome.killed > 0
