"""Apply a verb to all runs that a filter finds, in batches, so that no lock is held for long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from mainspring.errors import Conflict, InvalidInput, NotFound
from mainspring.model.runs import RunFilter
from mainspring.operations.filters import TEXTS, run_filter, texts
from mainspring.operations.runs.lists import quickly

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.model.runs import Run
    from mainspring.operations.filters import RunFilters
    from mainspring.store.protocol import Store

BATCH = 500
"""How many runs share one transaction."""


@dataclass(frozen=True, slots=True)
class Found:
    """One batch of runs. `more` is the position of the next batch. None: this is the last one."""

    ids: list[str]
    more: str | None = None
    kin: list[str] = field(default_factory=list[str])
    """In a search by a run: the run and its ancestors, which are changed last."""


Act: TypeAlias = Callable[[list[str]], dict[str, bool]]


@dataclass(slots=True)
class Progress:
    """The progress of a verb that acts on all runs of a filter."""

    place: str | None = None
    """Where to begin, then where the next batch begins. None at the end: there are no more."""
    most: int | None = None
    """Stop after the batch that reaches this number of runs."""
    changed: int = 0
    on_batch: Callable[[Progress], None] = lambda _: None
    """Called after each batch."""


def act_on(find: Callable[[str | None], Found], act: Act, progress: Progress | None = None) -> dict[str, bool]:
    """Apply a verb to all runs that `find` finds, batch by batch. Return the changed ones.

    Each batch is a transaction of its own: runs that are started after the call are left alone, and an error of one
    run does not hold up the others.
    """
    done: dict[str, bool] = {}
    progress, seen = progress or Progress(), 0
    while True:
        found = find(progress.place)
        done |= act_on_batch(act, found.ids)
        seen += len(found.ids)
        progress.place, progress.changed = found.more, len(done)
        progress.on_batch(progress)
        if found.more is None or (progress.most is not None and seen >= progress.most):
            return done


def find(store: Store, filters: RunFilters, states: Sequence[str], place: str | None) -> Found:
    """Return the next batch of the runs that match the filters, newest first. `states` are used if the filters have none."""
    page = store.runs(quickly(store.dashboard, meant(filters, states, place)))
    return Found([run.id for run in page], page[-1].uid if len(page) == BATCH else None)


def meant(filters: RunFilters, states: Sequence[str], place: str | None = None) -> RunFilter:
    """Return the filter of a verb: `filters`, with `states` if they have none."""
    wanted = run_filter(filters, before=place, limit=BATCH)
    _refuse_none(filters, wanted)
    return wanted if wanted.states else replace(wanted, states=tuple(states))


def _refuse_none(filters: RunFilters, wanted: RunFilter) -> None:
    """Raise `InvalidInput` for an empty filter: an empty list must not mean all runs to a verb that ends them."""
    empty = [name for name in TEXTS if filters.get(name) is not None and not texts(name, filters.get(name))]
    if empty:
        raise InvalidInput(f"{empty[0]}=[] names no run; leave it out to mean any")
    if wanted == RunFilter(before=wanted.before, limit=wanted.limit):
        raise InvalidInput("which runs are meant? Give ids, or filters such as workflow=… or queue=…")


def act_on_batch(act: Act, batch: list[str]) -> dict[str, bool]:
    """Apply a verb to a batch, or to each run by itself if one of them fails. Return the changed ones."""
    done: dict[str, bool] = {}
    try:
        done |= act(batch) if batch else {}
    except (Conflict, NotFound):  # the key of one of them is taken now, or the run was deleted
        for run_id in batch:
            try:
                done |= act([run_id])
            except (Conflict, NotFound):
                continue
    return {run_id: True for run_id, acted in done.items() if acted}


def kin_of(store: Store, run: Run) -> set[str]:
    """Return the ids of a run and its ancestors."""
    found = {run.id}
    parent = run.parent
    while parent is not None and parent not in found:
        found.add(parent)
        above = store.run(parent)
        parent = above.parent if above is not None else None
    return found
