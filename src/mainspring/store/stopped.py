"""Runs owned by workers that a verb has just stopped: whom to tell, and of what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.store.protocol import Poke

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mainspring.model.states import State


class Stops:
    """From rows of id, owner, epoch. `state` is the one that they have been put into; rows without an owner need no telling."""

    def __init__(self, rows: Iterable[Sequence[Any]], state: State, reason: str | None) -> None:
        owned = [(run, owner, epoch) for run, owner, epoch in rows if owner is not None]
        self.runs: set[str] = {run for run, _, _ in owned}
        self.owners: set[str] = {owner for _, owner, _ in owned}
        self.pokes = [Poke(run, epoch, state, reason) for run, _, epoch in owned]
