"""The order of writes inside a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from mainspring.store.writes import Finish, RecordStep, Send, is_checkpoint, run_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.store.writes import Op


class _Last(Struct, gc=False):
    """What was last written about a run: in which part, and at which places."""

    layer: int = -1
    places: dict[str, None] = {}
    checkpoints: bool = True
    """There was nothing but checkpoints in that part."""


def layers(ops: Sequence[Op]) -> list[list[Op]]:
    """Parts to be applied one after the other, so that no write in a part builds on another in the same part.

    Within a part a store may group writes by kind, the ends of runs last. Nearly always there is one part: a run has one
    write under way, or the outcomes of several branches at different places, or its last outcome and its end.
    """
    if len({run_of(op) for op in ops}) == len(ops):
        return [list(ops)]
    found: list[list[Op]] = []
    runs: dict[str, _Last] = {}
    for op in ops:
        last = runs.setdefault(run_of(op), _Last())
        place = _place(op)
        if type(op) is Finish:
            follows = last.checkpoints and len(last.places) == 1
        else:
            follows = bool(last.places) and place is not None and place not in last.places
        if not follows:
            last.layer, last.places, last.checkpoints = last.layer + 1, {}, True
        if place is not None:
            last.places[place] = None
        last.checkpoints = last.checkpoints and is_checkpoint(op)
        if last.layer == len(found):
            found.append([])
        found[last.layer].append(op)
    return found


def _place(op: Op) -> str | None:
    """Where a write stands in its run, if those at other positions do not matter to it. Messages keep their order anyway."""
    if isinstance(op, Send):
        return f"tell {id(op)}"
    return op.step.position if isinstance(op, RecordStep) and op.mood is None else None
