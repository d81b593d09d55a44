"""What a sample of a product keeps."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support import samples
from tests.support.samples import cover

CASES = [
    {"store_url": url, "verb": verb, "state": state}
    for url, verb, state in product(("sqlite", "postgres"), range(5), range(7))
]


def test_each_value_of_each_axis_is_there_on_each_database() -> None:
    chosen = [CASES[number] for number in cover(CASES)]
    for axis in ("verb", "state"):
        assert {(case["store_url"], case[axis]) for case in chosen} == {
            (case["store_url"], case[axis]) for case in CASES
        }
    assert len(chosen) == 2 * 7


def test_each_database_has_other_combinations() -> None:
    chosen = [CASES[number] for number in cover(CASES)]
    pairs = [
        {(case["verb"], case["state"]) for case in chosen if case["store_url"] == url} for url in ("sqlite", "postgres")
    ]
    assert len(pairs[0] & pairs[1]) <= 2


def test_the_sample_is_the_same_in_every_process() -> None:
    assert cover(CASES) == cover(list(CASES))


class Item:
    """As much of a test as is looked at."""

    def __init__(self, name: str, mark: pytest.MarkDecorator, **values: object) -> None:
        self.nodeid = f"{name}[{values}]"
        self.callspec = SimpleNamespace(params=values)
        self._marks = [mark.mark, pytest.mark.parametrize(("word", "length"), []).mark]

    def iter_markers(self, name: str) -> list[Any]:
        return [mark for mark in self._marks if mark.name == name]


WORDS = {"a": 1, "bb": 2, "cc": 2, "dd": 2}


def items(mark: pytest.MarkDecorator) -> list[pytest.Item]:
    made = [
        Item("test_it", mark, word=word, length=length, by=by) for (word, length), by in product(WORDS.items(), "xy")
    ]
    return cast("list[pytest.Item]", made)


def test_rows_of_a_table_are_values_of_one_axis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "ALL", False)
    made = items(samples.covering)
    kept: list[Any] = [item for item in made if item not in samples.left_out(made)]
    assert sorted(item.callspec.params["word"] for item in kept) == sorted(WORDS)


def test_nothing_is_left_out_of_what_is_not_marked_or_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "ALL", False)
    assert not samples.left_out(items(pytest.mark.sampled))
    monkeypatch.setattr(samples, "ALL", True)
    assert not samples.left_out(items(samples.covering))
