"""Faults of a JSON form: those of its keys and those of its values, together."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from mainspring.errors import Fault, InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")


def build(what: str, key_faults: Sequence[Fault], make: Callable[[], T], error: type[InvalidSpec] = InvalidSpec) -> T:
    """Return what `make` makes. Raises one `error` with the faults of the keys and those that `make` raises."""
    try:
        made = make()
    except InvalidSpec as refused:
        if not key_faults:
            raise
        raise error(what, [*key_faults, *refused.faults]) from None
    if key_faults:
        raise error(what, key_faults)
    return made
