"""No order of threads breaks a promise: a part of what `python -m tests.interleavings` tries, the same in every run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.interleavings import committer_cases, part_cases, worker_cases
from tests.interleavings.explore import Case, exhaust, walk
from tests.support.samples import of

pytestmark = pytest.mark.sampled


def _each(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[case.name for case in cases])


@_each(committer_cases.SMALL)
def test_a_preemption_anywhere_breaks_no_promise_of_the_committer(case: Case) -> None:
    assert exhaust(case, 1, most=of(400, 30)).schedules >= of(250, 30)


@_each(committer_cases.SMALL + committer_cases.LARGE)
def test_no_order_of_threads_breaks_a_promise_of_the_committer(case: Case) -> None:
    walk(case, range(of(40, 4)))


@_each([committer_cases.with_lines(case) for case in committer_cases.SMALL + committer_cases.LARGE])
def test_no_order_of_lines_breaks_a_promise_of_the_committer(case: Case) -> None:
    walk(case, range(of(8, 1)))


@_each(part_cases.CASES)
def test_the_end_of_a_run_reaches_all_waiters(case: Case) -> None:
    exhaust(case, 1, most=of(300, 30))


@_each(worker_cases.CASES)
def test_no_order_of_threads_breaks_a_promise_of_a_worker(case: Case) -> None:
    walk(case, range(of(4, 1)))


def test_what_is_explored_is_the_real_code() -> None:
    """A schedule goes through the modules that it is about, line by line."""
    case = replace(committer_cases.SMALL[0], lines=committer_cases.LINES)
    plain, lines = walk(committer_cases.SMALL[0], range(1)), walk(case, range(1))
    assert lines.points > 5 * plain.points
