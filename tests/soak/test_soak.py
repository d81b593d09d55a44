"""A short soak; `make soak MINUTES=10` is a long one."""

from __future__ import annotations

import pytest

from tests.soak.soak import soak


@pytest.mark.processes
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_a_fleet_under_fire_loses_and_repeats_nothing(database: str) -> None:
    outcome = await soak(database, 8, seed=7, workers=3, fsync=False)
    assert not outcome.findings.faults, outcome
    assert outcome.findings.runs > 50
