"""What a case went through: all that the auditor gets, beside the database."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.injection.scene import Ledger

if TYPE_CHECKING:
    from mainspring.model.states import State
    from tests.injection.injections import Injection, Point
    from tests.injection.scene import Shape


@dataclass
class Record:
    """The case, what happened in it, and what is wrong with that."""

    shape: Shape
    injection: Injection
    point: Point
    ledger: Ledger = field(default_factory=Ledger)
    problems: list[str] = field(default_factory=list[str])
    hit: bool = False
    """Whether the point was reached."""
    hit_at: float = 0.0
    calls: list[str] = field(default_factory=list[str])
    """The verbs that the first life called, in order."""
    verbs: set[str] = field(default_factory=set[str])
    turns: int = 0
    operations: int = 0
    stopped: dict[str, bool] = field(default_factory=dict[str, bool])
    """Runs that were cancelled or terminated, and whether there was something to cancel."""
    resumed: set[str] = field(default_factory=set[str])
    """Runs that an operator let go on after they were stopped or had failed."""
    operated: dict[str, State] = field(default_factory=dict[str, "State"])
    """Runs that an operator ended, and how."""
    deleted: set[str] = field(default_factory=set[str])
    """Runs that an operator deleted after their end."""
    forked: set[str] = field(default_factory=set[str])
    """Runs that an operator forked."""
    at_death: dict[str, bool] = field(default_factory=dict[str, bool])
    """Runs at the moment of a kill, and whether everything that they had begun was recorded."""
    done: list[str] = field(default_factory=list[str])
    dropped: list[str] = field(default_factory=list[str])
    results: dict[str, Any] = field(default_factory=dict[str, Any])
    ended_at: float = 0.0
    logs: list[str] = field(default_factory=list[str])
    """Errors that the library logged."""

    @property
    def ended_early(self) -> bool:
        """Whether an operator ended runs, so that others which depend on them may end otherwise too."""
        return bool(self.stopped or self.operated)
