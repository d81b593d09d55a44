from __future__ import annotations

from typing import TYPE_CHECKING

from bench import bare
from bench.harness import Budget, Figure, Target, median_of_three, print_ratios

if TYPE_CHECKING:
    import pytest


def test_a_budget_for_times_is_an_upper_bound_and_one_for_rates_a_lower_bound() -> None:
    time = Budget("step", ("bare", "commit"), at_most=2)
    rate = Budget("steps", ("dbos", "steps"), at_least=60)
    assert (time.kept_by(1.9), time.kept_by(2.1)) == (True, False)
    assert (rate.kept_by(61), rate.kept_by(59)) == (True, False)


def test_a_ratio_compares_figures_of_the_same_database(capsys: pytest.CaptureFixture[str]) -> None:
    figures = [
        Figure("mainspring", "step", "sqlite", 0.3, "ms"),
        Figure("bare", "commit", "sqlite", 0.2, "ms"),
        Figure("bare", "commit", "postgres", 0.1, "ms"),
    ]
    assert print_ratios(figures, [Budget("step", ("bare", "commit"), at_most=2)])
    assert not print_ratios(figures, [Budget("step", ("bare", "commit"), at_most=1)])
    assert "1.50" in capsys.readouterr().out


def test_a_budget_whose_other_side_was_not_measured_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    figures = [Figure("mainspring", "step", "sqlite", 9, "ms")]
    assert print_ratios(figures, [Budget("step", ("dbos", "step"), at_most=1)])
    assert capsys.readouterr().out == ""


def test_a_budget_without_another_side_is_a_bound_on_the_value_itself() -> None:
    figures = [Figure("mainspring", "import", "-", 130, "ms")]
    assert not print_ratios(figures, [Budget("import", None, at_most=120)])


def test_one_outlier_does_not_move_the_median() -> None:
    values = iter([3.0, 900.0, 4.0])
    assert median_of_three(lambda: next(values)) == 4.0


def test_the_bare_database_can_be_measured_on_either_kind(store_url: str) -> None:
    target = Target("sqlite" if store_url.startswith("sqlite") else "postgres", lambda: store_url)
    figures = {figure.what: figure.value for figure in bare.measure(target, commits=3, batches=2)}
    assert figures.keys() == {"commit", "commit, awaited", "commits", "batched rows"}
    assert min(figures.values()) > 0
