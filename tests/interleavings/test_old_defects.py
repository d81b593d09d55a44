"""The explorer finds what it is for: each defect that the library once had, put back, within seconds."""

from __future__ import annotations

import pytest

from tests.interleavings.cases import BY_NAME
from tests.interleavings.explore import Broken, replay, walk
from tests.interleavings.old_defects import DEFECTS, put_back


@pytest.mark.parametrize("defect", DEFECTS)
def test_an_old_defect_is_found_and_repeated_from_its_schedule(defect: str) -> None:
    with put_back(defect) as name:
        with pytest.raises(Broken) as caught:
            walk(BY_NAME[name], range(3_000))
        found = caught.value
        again = replay(BY_NAME[name], found.schedule)
        assert again.finding is not None
        assert again.finding.kind == found.finding.kind
    print(f"{defect}: schedule {found.report.schedules}, {found.report.seconds:.2f} s")  # noqa: T201  (shown with -s, and if it fails)
    assert replay(BY_NAME[name], found.schedule).finding is None, "it is the defect that was found, not the case"
