"""What happens when a run is asked for under a key that an unfinished run has. Pure decisions."""

from __future__ import annotations

from enum import Enum, StrEnum

from msgspec import Struct


class KeyMode(StrEnum):
    """What to do about the run that has the key."""

    REPLACE = "replace"
    """One that has not begun becomes what is asked for now. One that has keeps going without the key, and is not retried."""
    PRESERVE_RUN_AT = "preserve_run_at"
    """The same, but one that was never tried keeps its time."""
    UNSAFE_DEDUPE = "unsafe_dedupe"
    """Nothing, whatever its state, even if it is too late for it to see what is asked for now."""
    RETURN_EXISTING = "return_existing"
    """Nothing; the caller gets that run."""
    REJECT = "reject"
    """Nothing; the caller gets an error."""
    DEBOUNCE = "debounce"
    """One that is still put off is put off further, with what is asked for now."""


class Holder(Struct, frozen=True):
    """The run that has the key."""

    id: str
    workflow: str
    state: str
    due: int
    begun: bool
    attempts: int
    debounce_until: int | None
    last_request: str | None
    """The request that last shaped it, if that was not its own."""


class Meeting(Enum):
    """What is to become of the holder and of the request."""

    UPDATE = "the holder becomes what is asked for"
    BESIDE = "the holder loses the key, and a new run begins beside it"
    EXISTING = "the holder stays as it is"
    REFUSED = "the request is refused"


def meet(mode: str | None, holder: Holder, request: str, now: int) -> Meeting:
    """Decide. A request that has shaped the holder already was made before, and its acknowledgement was lost."""
    if mode == KeyMode.REJECT:
        return Meeting.REFUSED
    if holder.last_request == request or mode in {KeyMode.UNSAFE_DEDUPE, KeyMode.RETURN_EXISTING}:
        return Meeting.EXISTING
    if mode == KeyMode.DEBOUNCE:
        return Meeting.UPDATE if holder.state == "scheduled" and holder.due > now else Meeting.BESIDE
    return Meeting.BESIDE if holder.begun else Meeting.UPDATE


def due_then(mode: str | None, holder: Holder, asked: int) -> int:
    """When a holder that becomes what is asked for is due."""
    if mode == KeyMode.PRESERVE_RUN_AT and holder.attempts == 0:
        return holder.due
    if mode == KeyMode.DEBOUNCE and holder.debounce_until is not None:
        return min(asked, holder.debounce_until)
    return asked
