"""The order of writes inside a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.store.ops import Tell, Write, run_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.store.ops import Op


def waves(ops: Sequence[Op]) -> list[list[Op]]:
    """Parts to be applied one after the other, so that no write in a part builds on another in the same part.

    Within a part a store may group writes by kind as it likes. Nearly always there is one part: a run has one write under
    way, or the outcomes of several branches at different positions.
    """
    if len({run_of(op) for op in ops}) == len(ops):
        return [list(ops)]
    found: list[list[Op]] = []
    last: dict[str, tuple[int, set[str]]] = {}
    for op in ops:
        run = run_of(op)
        wave, positions = last.get(run, (-1, set[str]()))
        position = _place(op)
        if not positions or position is None or position in positions:
            wave, positions = wave + 1, set[str]()
        last[run] = (wave, positions | {position} if position is not None else set())
        if wave == len(found):
            found.append([])
        found[wave].append(op)
    return found


def _place(op: Op) -> str | None:
    """Where a write stands in its run, if those at other places do not matter to it. What is said is said in its order anyway."""
    if isinstance(op, Tell):
        return f"tell {id(op)}"
    return op.step.position if isinstance(op, Write) and op.mood is None else None
