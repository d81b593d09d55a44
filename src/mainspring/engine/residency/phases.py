"""The phases of a run in memory, and the legal changes between them.

Every stop, takeover, cancel, timeout, lost answer and message changes the phase through `Execution.move`, which refuses every change
that is not in this table. So a run has one state in memory, and two parts of the engine cannot disagree about it.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class Phase(Enum):
    """The phase of a run in memory."""

    RUNNING = "running"
    """Stored as running. The workflow's code or one of its operations executes."""
    WAITING = "waiting"
    """Stored as waiting. The run stays in memory, and this worker wakes it."""
    SUSPENDING = "suspending"
    """The change to waiting is being committed. Wake-ups are held until the commit is answered."""
    PARKING = "parking"
    """The release of the waiting run is being committed. Wake-ups are held until the commit is answered."""
    HALTED = "halted"
    """Halted by `Execution.signal`. No operation acts any more, and the workflow's code unwinds."""
    UNDOING = "undoing"
    """Halted and unwound. The run is about to be replayed to make its compensations."""
    ENDING = "ending"
    """The workflow's code has returned or raised. The end of the run, or its release, is being committed."""
    LEFT = "left"
    """No longer in the memory of this worker."""

    __hash__ = object.__hash__
    """That of Enum is a function in Python, and every operation looks its phase up in a table."""


LEGAL: Final[Mapping[Phase, frozenset[Phase]]] = {
    Phase.RUNNING: frozenset({Phase.WAITING, Phase.SUSPENDING, Phase.HALTED, Phase.ENDING}),
    Phase.WAITING: frozenset({Phase.RUNNING, Phase.PARKING, Phase.HALTED, Phase.ENDING}),
    # An operation that the workflow's own code cancels is recorded at once, also while the suspend is being committed.
    Phase.SUSPENDING: frozenset({Phase.RUNNING, Phase.WAITING, Phase.HALTED, Phase.ENDING}),
    Phase.PARKING: frozenset({Phase.RUNNING, Phase.WAITING, Phase.HALTED, Phase.ENDING}),
    Phase.HALTED: frozenset({Phase.ENDING, Phase.UNDOING}),
    # The store refuses the end of a run that was cancelled before it: the compensations are still owed.
    Phase.ENDING: frozenset({Phase.UNDOING, Phase.LEFT}),
    Phase.UNDOING: frozenset({Phase.LEFT}),
    Phase.LEFT: frozenset(),
}
"""The phases that may follow each phase."""

IN_CODE: Final = frozenset({Phase.RUNNING, Phase.WAITING, Phase.SUSPENDING, Phase.PARKING})
"""Phases in which the workflow's code can still act."""
STORED_AS_WAITING: Final = frozenset({Phase.WAITING, Phase.PARKING})
"""Phases in which the run holds no slot of its worker."""
