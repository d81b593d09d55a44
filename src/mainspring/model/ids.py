"""Ids: made so that they sort by time, and checked when a user brings their own."""

from __future__ import annotations

import os
import random
import re
from typing import TYPE_CHECKING

from mainspring.errors import InvalidInput

if TYPE_CHECKING:
    from mainspring.model.clock import Clock

LONGEST_ID = 512
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = tuple(high + low for high in _ALPHABET for low in _ALPHABET)
_FORTY_BITS = 2**40 - 1
_HALF = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class IdMaker:
    """Makes ids of 24 characters: nine of the time in milliseconds, fifteen of chance. They sort by when they were made.

    Each is greater than the one before, also within a millisecond: what is asked for first comes first.
    """

    def __init__(self, clock: Clock, seed: int | None = None) -> None:
        self._clock = clock
        self._seed = seed
        self._last = 0
        self._begins = (0, "")
        self._reseed()

    def _reseed(self) -> None:
        """Chance of its own for each process, also after a fork."""
        self._pid = os.getpid()
        self._bits = random.Random(self._seed if self._seed is not None else os.urandom(32)).getrandbits

    def new(self) -> str:
        return self.many(1)[0]

    def many(self, count: int) -> list[str]:
        """So many ids, each greater than the one before, with one look at the clock."""
        if os.getpid() != self._pid:
            self._reseed()
        now, bits, last = (self._clock.now() // 1000) << 75, self._bits, self._last
        time, begins = self._begins  # most of the time of the one before is that of the next one
        made: list[str] = []
        for _ in range(count):
            number = now | bits(75)
            if number <= last:
                number = last + 1 + bits(48)
            last = number
            if time != number >> 80:
                time = number >> 80
                begins = _eight(time)
            made.append(f"{begins}{_eight((number >> 40) & _FORTY_BITS)}{_eight(number & _FORTY_BITS)}")
        self._last, self._begins = last, (time, begins)
        return made


def _eight(bits: int) -> str:
    """Forty bits as characters."""
    return (
        f"{_PAIRS[(bits >> 30) & 1023]}{_PAIRS[(bits >> 20) & 1023]}{_PAIRS[(bits >> 10) & 1023]}{_PAIRS[bits & 1023]}"
    )


def id_at(micros: int) -> str:
    """The smallest id that can be made at a time."""
    number = max(0, micros // 1000) << 75
    return f"{_eight(number >> 80)}{_eight((number >> 40) & _FORTY_BITS)}{_eight(number & _FORTY_BITS)}"


def storable(text: str) -> bool:
    """Whether a database can keep it as text: nothing in it is a NUL, or half of a character."""
    return "\0" not in text and not _HALF.search(text)


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
    if not storable(value):
        raise InvalidInput(f"the run id {value!r} contains half of a character (a lone surrogate), which is no text")
    return value
