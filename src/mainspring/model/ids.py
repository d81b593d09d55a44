"""Make run ids that sort by time, and check ids that users give."""

from __future__ import annotations

import os
import random
import re
from typing import TYPE_CHECKING

from mainspring.errors import InvalidInput

if TYPE_CHECKING:
    from mainspring.model.clock import Clock

LONGEST_ID = 512
LONGEST_SCHEDULE_ID = 400
"""The maximum length of a schedule id. A run's id also has the time and the request."""
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = tuple(high + low for high in _ALPHABET for low in _ALPHABET)
_FORTY_BITS = 2**40 - 1
_RANDOM = 70
"""Random bits of an id."""
_HALF = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class IdMaker:
    """Makes ids of 23 characters that sort by creation: nine characters of milliseconds, fourteen random ones.

    Each id is greater than the one before, also within a millisecond, so requests keep their order. With one character more, an entry of an
    index on PostgreSQL would be longer by eight bytes.
    """

    def __init__(self, clock: Clock, seed: int | None = None) -> None:
        self._clock = clock
        self._seed = seed
        self._last = 0
        self._begins = (0, "")
        self._reseed()

    def _reseed(self) -> None:
        """Seed the random bits for this process, also after a fork."""
        self._pid = os.getpid()
        self._bits = random.Random(self._seed if self._seed is not None else os.urandom(32)).getrandbits

    def new(self) -> str:
        return self.many(1)[0]

    def many(self, count: int) -> list[str]:
        """Return `count` ids, each greater than the one before, with one read of the clock."""
        if os.getpid() != self._pid:
            self._reseed()
        now, bits, last = (self._clock.now() // 1000) << _RANDOM, self._bits, self._last
        time, begins = self._begins  # consecutive ids mostly share the leading time bits
        made: list[str] = []
        for _ in range(count):
            number = now | bits(_RANDOM)
            if number <= last:
                number = last + 1 + bits(48)
            last = number
            if time != number >> 75:
                time = number >> 75
                begins = _encode_40_bits(time)
            made.append(f"{begins}{_encode_40_bits((number >> 35) & _FORTY_BITS)}{_encode_35_bits(number)}")
        self._last, self._begins = last, (time, begins)
        return made


def _encode_40_bits(bits: int) -> str:
    """Encode forty bits as eight characters."""
    return (
        f"{_PAIRS[(bits >> 30) & 1023]}{_PAIRS[(bits >> 20) & 1023]}{_PAIRS[(bits >> 10) & 1023]}{_PAIRS[bits & 1023]}"
    )


def _encode_35_bits(bits: int) -> str:
    """Encode the last 35 bits as seven characters."""
    return (
        f"{_PAIRS[(bits >> 25) & 1023]}{_PAIRS[(bits >> 15) & 1023]}{_PAIRS[(bits >> 5) & 1023]}{_ALPHABET[bits & 31]}"
    )


def id_at(micros: int) -> str:
    """Return the smallest id that can be made at a time."""
    number = max(0, micros // 1000) << _RANDOM
    return f"{_encode_40_bits(number >> 75)}{_encode_40_bits((number >> 35) & _FORTY_BITS)}{_encode_35_bits(number)}"


def is_storable(text: str) -> bool:
    """Whether a database can store the text: no NUL and no lone surrogate."""
    return "\0" not in text and not _HALF.search(text)


def check_run_id(value: object) -> str:
    """Return the id if a user may give it to a run. Raises `InvalidInput` otherwise."""
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
    if not is_storable(value):
        raise InvalidInput(f"the run id {value!r} contains half of a character (a lone surrogate), which is not text")
    return value
