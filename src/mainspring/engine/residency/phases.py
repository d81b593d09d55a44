"""What a run in memory is doing, and which changes of that are legal.

Every stop, takeover, cancel, timeout, lost answer and message changes the phase through `Execution.move`, which knows this table
and refuses anything else. So there is one answer to "what is this run doing?", and two parts of the engine cannot disagree.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class Phase(Enum):
    """What a run in memory is doing."""

    RUNNING = "running"
    """The store has it as running: its code or one of its operations is at work."""
    WAITING = "waiting"
    """The store has it as waiting. It stays in memory, and is woken here."""
    SUSPENDING = "suspending"
    """The store is asked to have it as waiting. Wake-ups are held until it has answered."""
    PARKING = "parking"
    """The store is asked to take it back. Wake-ups are held until it has answered."""
    HALTED = "halted"
    """Taken from its code by `Execution.signal`. No operation acts any more; the code unwinds."""
    UNDOING = "undoing"
    """Halted and unwound; it is about to be replayed, so that it makes its compensations."""
    ENDING = "ending"
    """Its code is over. Its end, or its release, is being committed."""
    LEFT = "left"
    """It is not in this worker's memory any more."""


LEGAL: Final[Mapping[Phase, frozenset[Phase]]] = {
    Phase.RUNNING: frozenset({Phase.WAITING, Phase.SUSPENDING, Phase.HALTED, Phase.ENDING}),
    Phase.WAITING: frozenset({Phase.RUNNING, Phase.PARKING, Phase.HALTED, Phase.ENDING}),
    # An operation that the run's own code cancels is recorded at once, also while the store is being asked.
    Phase.SUSPENDING: frozenset({Phase.RUNNING, Phase.WAITING, Phase.HALTED, Phase.ENDING}),
    Phase.PARKING: frozenset({Phase.RUNNING, Phase.WAITING, Phase.HALTED, Phase.ENDING}),
    Phase.HALTED: frozenset({Phase.ENDING, Phase.UNDOING}),
    # The end may be refused because the run was cancelled meanwhile: then its compensations are still owed.
    Phase.ENDING: frozenset({Phase.UNDOING, Phase.LEFT}),
    Phase.UNDOING: frozenset({Phase.LEFT}),
    Phase.LEFT: frozenset(),
}
"""The phases that may follow each phase."""

IN_CODE: Final = frozenset({Phase.RUNNING, Phase.WAITING, Phase.SUSPENDING, Phase.PARKING})
"""Its code has a say in what happens next."""
STORED_AS_WAITING: Final = frozenset({Phase.WAITING, Phase.PARKING})
"""It holds no slot of its worker."""
