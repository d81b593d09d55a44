"""Acting on all runs that a filter finds: a batch at a time, so that nothing is held for long however many there are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from mainspring.errors import Conflict, InvalidInput, NotFound
from mainspring.model.runs import RunFilter
from mainspring.operations.filter_values import texts
from mainspring.operations.runs.filters import TEXTS, run_filter
from mainspring.operations.runs.lists import quickly

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.model.runs import Run
    from mainspring.operations.runs.filters import RunFilters
    from mainspring.store.protocol import Store

BATCH = 500
"""So many runs share one transaction."""


@dataclass(frozen=True, slots=True)
class Found:
    """Some of the runs that are meant. `more` is where to look for the next ones; None: these were the last."""

    ids: list[str]
    more: str | None = None
    kin: list[str] = field(default_factory=list[str])
    """Of a search by a run: itself and those that it descends from, which are left to the end, because that is its own."""


Act: TypeAlias = Callable[[list[str]], dict[str, bool]]


@dataclass(slots=True)
class Progress:
    """How far a verb has come that acts on all runs that a filter finds."""

    place: str | None = None
    """Where to begin, and then where the next batch begins; None afterwards: there are no more."""
    most: int | None = None
    """Stop after the batch with which so many runs were looked at."""
    changed: int = 0
    on_batch: Callable[[Progress], None] = lambda _: None
    """Is called after each batch."""


def act_on(
    store: Store, filters: RunFilters, states: Sequence[str], act: Act, progress: Progress | None = None
) -> dict[str, bool]:
    """Do something to the runs that are all of this, newest first; those it was done to.

    `states` are those in which it can be done, for a caller that names none. Each batch is a transaction of its own: runs that come
    meanwhile are left alone, and what stands in the way of one run stops none of the others.
    """
    done: dict[str, bool] = {}
    progress, seen = progress or Progress(), 0
    while True:
        found = find(store, filters, states, progress.place)
        done |= act_on_batch(act, found.ids)
        seen += len(found.ids)
        progress.place, progress.changed = found.more, len(done)
        progress.on_batch(progress)
        if found.more is None or (progress.most is not None and seen >= progress.most):
            return done


def find(store: Store, filters: RunFilters, states: Sequence[str], place: str | None) -> Found:
    """The next batch of the runs that are all of this."""
    page = store.runs(quickly(store.watching, meant(filters, states, place)))
    return Found([run.id for run in page], page[-1].uid if len(page) == BATCH else None)


def meant(filters: RunFilters, states: Sequence[str], place: str | None = None) -> RunFilter:
    """The runs that a verb acts on: those that the filters find, in these states if the filters name none."""
    wanted = run_filter(filters, before=place, limit=BATCH)
    _refuse_none(filters, wanted)
    return wanted if wanted.states else replace(wanted, states=tuple(states))


def _refuse_none(filters: RunFilters, wanted: RunFilter) -> None:
    """A list that turned out empty must not mean all runs to a verb that ends them."""
    empty = [name for name in TEXTS if filters.get(name) is not None and not texts(name, filters.get(name))]
    if empty:
        raise InvalidInput(f"{empty[0]}=[] names no run; leave it out to mean any")
    if wanted == RunFilter(before=wanted.before, limit=wanted.limit):
        raise InvalidInput("which runs are meant? Give ids, or filters such as workflow=… or queue=…")


def act_on_batch(act: Act, batch: list[str]) -> dict[str, bool]:
    """Do something to all of these, or, if something stands in the way of one of them, to each by itself; those it was done to."""
    done: dict[str, bool] = {}
    try:
        done |= act(batch) if batch else {}
    except (Conflict, NotFound):  # one of them has a key that is taken now, or is gone
        for run_id in batch:
            try:
                done |= act([run_id])
            except (Conflict, NotFound):
                continue
    return {run_id: True for run_id, acted in done.items() if acted}


def kin_of(store: Store, run: Run) -> set[str]:
    """A run and those that it descends from."""
    found = {run.id}
    parent = run.parent
    while parent is not None and parent not in found:
        found.add(parent)
        above = store.run(parent)
        parent = above.parent if above is not None else None
    return found
