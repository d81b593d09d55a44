"""Make a generated program that fails smaller, as long as some case of it fails in the same way."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.injection.generated.program import cut, program
from tests.injection.injections import INJECTIONS
from tests.injection.series import Name, shape_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.injection.series import Series

_MOST = 150
"""Points that are tried for each smaller program."""


def shrink(series: Series, failing: Name, tell: Callable[[str], None]) -> Name:
    """The smallest case found that fails as the given one does."""
    kind = _kind(series, failing)
    found, smaller = failing, True
    while kind and smaller:
        smaller = False
        for node in sorted(program(found.shape).walk(), key=lambda node: -sum(1 for _ in node.walk())):
            other = _fails(series, cut(found.shape, node.number), found, kind)
            if other is not None:
                found, smaller = other, True
                tell(f"{found} | {program(found.shape)}")
                break
    return found


def _kind(series: Series, name: Name) -> str | None:
    problems = series.play(name).problems
    return problems[0].split(":")[0] if problems else None


def _fails(series: Series, shape: str, like: Name, kind: str) -> Name | None:
    """A case of a smaller program that fails in the same way, with the same injection."""
    if program(shape).generations == program(like.shape).generations:
        return None
    names = list(series.names([shape_of(shape)], [INJECTIONS[like.injection]]))
    near = sorted(
        names, key=lambda name: (name.point.kind != like.point.kind, abs(name.point.number - like.point.number))
    )
    chosen = near[: _MOST // 2] + random.Random(0).sample(near, min(len(near), _MOST // 2))
    for name in dict.fromkeys(chosen):
        if any(problem.startswith(f"{kind}:") for problem in series.play(name).problems):
            return name
    return None
