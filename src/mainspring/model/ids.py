"""Ids: made so that they sort by time, and checked when a user brings their own."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

from mainspring.errors import InvalidInput

if TYPE_CHECKING:
    from mainspring.model.clock import Clock

LONGEST_ID = 512
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class IdMaker:
    """Makes ids of 24 characters: nine of the time in milliseconds, fifteen of chance. They sort by when they were made."""

    def __init__(self, clock: Clock, seed: int | None = None) -> None:
        self._clock = clock
        self._bits = random.Random(seed).getrandbits if seed is not None else random.SystemRandom().getrandbits

    def new(self) -> str:
        number = (self._clock.now() // 1000) << 75 | self._bits(75)
        digits: list[str] = []
        for _ in range(24):
            digits.append(_ALPHABET[number & 31])
            number >>= 5
        return "".join(reversed(digits))


def check_run_id(value: object) -> str:
    """The id, if a user may give a run this id."""
    if not isinstance(value, str):
        raise InvalidInput(f"a run id is a string, not {type(value).__name__}")
    if not value.strip():
        raise InvalidInput("a run id must not be blank; leave `id` out to have one made")
    if len(value) > LONGEST_ID:
        raise InvalidInput(f"the run id {value[:20]!r}… has {len(value)} characters; the limit is {LONGEST_ID}")
    if "/" in value:
        raise InvalidInput(
            f"the run id {value!r} contains '/', which is kept for children: they are <parent>/<position>"
        )
    if _CONTROL.search(value):
        raise InvalidInput(f"the run id {value!r} contains a control character")
    return value
