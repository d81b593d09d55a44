"""Decide a start under a key that an unfinished run holds. Pure functions."""

from __future__ import annotations

from enum import Enum, StrEnum

from msgspec import Struct


class KeyMode(StrEnum):
    """What a start does with the unfinished run that holds its key."""

    REPLACE = "replace"
    """A holder that has not begun takes over the new request. A holder that has begun continues without the key, and is not retried."""
    PRESERVE_RUN_AT = "preserve_run_at"
    """As `REPLACE`, but a holder that was never attempted keeps its due time."""
    UNSAFE_DEDUPE = "unsafe_dedupe"
    """The holder stays as it is in any state, even if it can no longer see the new request."""
    RETURN_EXISTING = "return_existing"
    """The holder stays as it is, and the caller gets its handle."""
    REJECT = "reject"
    """The holder stays as it is, and the caller gets an error."""
    DEBOUNCE = "debounce"
    """A holder that is not yet due is delayed further and takes over the new request."""


KEEPING = frozenset({KeyMode.UNSAFE_DEDUPE, KeyMode.RETURN_EXISTING, KeyMode.REJECT})
"""The modes in which the holder stays as it is."""


class Holder(Struct, frozen=True):
    """The run that holds the key."""

    id: str
    workflow: str
    state: str
    due: int | None
    begun: bool
    attempts: int
    debounce_until: int | None
    last_request: str | None
    """The request that last changed the holder, if it was not the one that started it."""
    claimed: bool = False
    """Whether a worker has ever claimed it. It may then have recorded operations of attempts that failed, or that a cancel ended."""


class KeyDecision(Enum):
    """What happens to the holder and to the request."""

    UPDATE = "the holder takes over the request"
    BESIDE = "the holder loses the key, and a new run starts beside it"
    EXISTING = "the holder stays as it is"
    REFUSED = "the request is refused"


def decide(mode: str | None, holder: Holder, request: str, now: int) -> KeyDecision:
    """Decide what happens to the holder. A request that already changed the holder is a retry whose response was lost."""
    if mode == KeyMode.REJECT:
        return KeyDecision.REFUSED
    if holder.last_request == request or mode in {KeyMode.UNSAFE_DEDUPE, KeyMode.RETURN_EXISTING}:
        return KeyDecision.EXISTING
    if mode == KeyMode.DEBOUNCE:
        return (
            KeyDecision.UPDATE
            if holder.state == "scheduled" and (holder.due is None or holder.due > now)
            else KeyDecision.BESIDE
        )
    return KeyDecision.BESIDE if holder.begun else KeyDecision.UPDATE


def due_after_update(mode: str | None, holder: Holder, asked: int | None) -> int | None:
    """Return when a holder that takes over a request is due."""
    if mode == KeyMode.PRESERVE_RUN_AT and holder.attempts == 0:
        return holder.due
    if mode == KeyMode.DEBOUNCE and holder.debounce_until is not None and asked is not None:
        return min(asked, holder.debounce_until)
    return asked
