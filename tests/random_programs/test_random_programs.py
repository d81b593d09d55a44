"""A short look; `python -m tests.random_programs --minutes 10` is a long one."""

from __future__ import annotations

import pytest

from tests.random_programs.programs import PROGRAMS
from tests.random_programs.stage import Program, play


@pytest.mark.processes
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
@pytest.mark.parametrize("program", PROGRAMS, ids=[each.name for each in PROGRAMS])
def test_whatever_actors_do_while_workers_die_what_was_acknowledged_holds(
    program: type[Program], database: str
) -> None:
    outcome = play(program, database, 1.5, seed=7)
    assert not outcome.faults, outcome
    assert sum(outcome.done.values()) > 20
    assert outcome.done["workers killed"] > 0
