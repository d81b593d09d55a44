"""How much of a large set of cases a test looks at: a sample in `make test`, all of it with `SAMPLES=all`, as `make simulate` does.

A test that asks here is marked `sampled`, so that `make simulate` finds it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeAlias

import pytest

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    Case: TypeAlias = Mapping[str, Hashable]
    """The value that each axis of a product has in one of its cases."""

ALL = os.environ.get("SAMPLES") == "all"
covering = pytest.mark.sampled(covering=True)
"""For a test of several parameters, all of whose combinations go the same way: `make test` executes so many of them that each value of each
parameter is there, on each database.
"""
_DATABASES = {"store_url", "database", "site", "series"}
"""Parameters that say which database."""


def of(everything: int, some: int) -> int:
    """`some`, or with `SAMPLES=all` everything."""
    return everything if ALL else some


def calls(when: str, most: int = 200, coarse: int = 1) -> Iterator[int]:
    """At which calls to the store a process dies, other ones for a death before the call than for one after it, and at last `most`, which
    no workload reaches. A greater `coarse` samples fewer of them.
    """
    stride = of(1, 12 * coarse)
    first = 1 if when == "before" else 1 + stride // 2
    return iter([*range(first, most, stride), most])


# -- products of parameters ------------------------------------------------------------------------------------------------
def left_out(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Tests that `make test` does not execute: those marked `covering`, without a sample of each function's."""
    functions: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not ALL and any(mark.kwargs.get("covering") for mark in item.iter_markers("sampled")):
            functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return {
        item
        for cases in functions.values()
        for number in set(range(len(cases))) - cover([_case(item) for item in cases])
        for item in [cases[number]]
    }


def _case(item: pytest.Item) -> Case:
    """Parameters that are given together, as the columns of a table are, are one axis."""
    values = dict(getattr(item, "callspec").params)  # noqa: B009  # only parametrized tests have one
    together: list[list[str]] = []
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs["argnames"]
        together.append([names] if isinstance(names, str) else list(names))
    named = {name for names in together for name in names}
    together += [[name] for name in values if name not in named]
    return {",".join(names): tuple(id(values[name]) for name in names) for names in together}


def cover(cases: Sequence[Case]) -> set[int]:
    """The numbers of cases, as few as a greedy search finds, that have each value of each axis with each database.

    Each database has other combinations.
    """
    by_database: dict[Hashable, list[int]] = {}
    for number, case in enumerate(cases):
        database = tuple(value for axis, value in case.items() if axis in _DATABASES)
        by_database.setdefault(database, []).append(number)
    chosen: set[int] = set()
    for turn, numbers in enumerate(by_database.values()):
        first = turn * len(numbers) // 3
        order = numbers[first:] + numbers[:first]
        missing = {value for number in order for value in cases[number].items()}
        while missing:
            best = max(order, key=lambda number: len(missing & cases[number].items()))
            missing -= cases[best].items()
            chosen.add(best)
    return chosen
