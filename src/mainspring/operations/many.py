"""Acting on all runs that a filter finds: a batch at a time, so that nothing is held for long however many there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from mainspring.errors import Conflict, InvalidInput, NotFound
from mainspring.operations.run_filters import run_filter
from mainspring.operations.run_lists import quickly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mainspring.operations.run_filters import RunFilters
    from mainspring.store.protocol import Store

BATCH = 500
"""So many runs share one transaction."""


def act_on(
    store: Store, filters: RunFilters, states: Sequence[str], act: Callable[[list[str]], dict[str, bool]]
) -> dict[str, bool]:
    """Do something to the runs that are all of this, newest first; those it was done to.

    `states` are those in which it can be done, for whoever names none. Each batch is a transaction of its own: runs that come
    meanwhile are left alone, and what stands in the way of one run stops none of the others.
    """
    done: dict[str, bool] = {}
    for batch in _batches(store, filters, states):
        done |= {run_id: True for run_id, acted in _each_if_not_all(act, batch).items() if acted}
    return done


def _batches(store: Store, filters: RunFilters, states: Sequence[str]) -> Iterator[list[str]]:
    given = [name for name, value in filters.items() if value not in (None, (), [])]
    if not given:
        raise InvalidInput("which runs are meant? Give ids, or filters such as workflow=… or queue=…")
    wanted = run_filter(filters, limit=BATCH)
    if not wanted.states:
        wanted = replace(wanted, states=tuple(states))
    wanted = quickly(store.watching, wanted)
    while page := store.runs(wanted):
        yield [run.id for run in page]
        wanted = replace(wanted, before=page[-1].uid)


def _each_if_not_all(act: Callable[[list[str]], dict[str, bool]], batch: list[str]) -> dict[str, bool]:
    try:
        return act(batch)
    except (Conflict, NotFound):  # one of them has a key that is taken now, or is gone
        done: dict[str, bool] = {}
        for run_id in batch:
            try:
                done |= act([run_id])
            except (Conflict, NotFound):
                done[run_id] = False
        return done
