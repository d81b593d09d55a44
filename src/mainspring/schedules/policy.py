"""The policy of a schedule: overlapping runs, missed ticks, and failures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any

from mainspring.errors import InvalidInput
from mainspring.model.given import check_flag, check_whole, explained
from mainspring.model.schedules import Overlap
from mainspring.recurrence.durations import format_duration, parse_duration

SHORTEST_CATCHUP = timedelta(seconds=10)
_NAMES = {
    "overlap": "overlap",
    "catchup": "catchup",
    "pauseOnFailure": "pause_on_failure",
    "limit": "limit",
    "maxRunning": "max_running",
    "bufferLimit": "buffer_limit",
    "coalesce": "coalesce",
    "whenActive": "when_active",
}


@explained()
@dataclass(frozen=True, slots=True, init=False)
class Policy:
    """What a schedule does beyond its times.

    `overlap` applies once `max_running` runs of the schedule are unfinished: one by default, and any number with
    `allow_all`, where it is a maximum. Ticks that no worker could act on start up to `catchup` after their time
    (default one minute, at least ten seconds, None: for ever), with `coalesce` only the latest of them.
    `pause_on_failure` pauses after a run that failed or timed out, or after that many in a row. `limit` is the number
    of runs that the clock may start. `when_active`, for schedules that the code declares: ticks that came while no worker was
    active do not start. Raises `InvalidInput` for a wrong value.
    """

    overlap: Overlap
    catchup: timedelta | None
    pause_on_failure: int
    limit: int | None
    max_running: int | None
    buffer_limit: int | None
    coalesce: bool
    when_active: bool

    def __init__(
        self,
        overlap: Overlap | str = Overlap.SKIP,
        *,
        catchup: timedelta | float | str | None = timedelta(minutes=1),
        pause_on_failure: bool | int = False,
        limit: int | None = None,
        max_running: int | None = None,
        buffer_limit: int | None = None,
        coalesce: bool = False,
        when_active: bool = False,
    ) -> None:
        values: dict[str, object] = {
            "overlap": read_overlap(overlap),
            "catchup": _catchup(catchup),
            "pause_on_failure": _failures(pause_on_failure),
            "limit": check_count("policy: limit", limit),
            "max_running": check_count("policy: max_running", max_running, 1),
            "buffer_limit": check_count("policy: buffer_limit", buffer_limit),
            "coalesce": check_flag("policy: coalesce", coalesce),
            "when_active": check_flag("policy: when_active", when_active),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def slots(self) -> int | None:
        """How many runs may be unfinished before the overlap policy applies. None: any number."""
        if self.max_running is not None:
            return self.max_running
        return None if self.overlap is Overlap.ALLOW_ALL else 1

    @property
    def window(self) -> int | None:
        """The catch-up window in microseconds. None: for ever."""
        return None if self.catchup is None else self.catchup // timedelta(microseconds=1)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, with effective values. `Policy.from_dict` parses it."""
        return {
            "overlap": self.overlap.value,
            "catchup": None if self.catchup is None else _phrase(self.catchup),
            "pauseOnFailure": self.pause_on_failure,
            "limit": self.limit,
            "maxRunning": self.max_running,
            "bufferLimit": self.buffer_limit,
            "coalesce": self.coalesce,
            "whenActive": self.when_active,
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Policy:
        """Return the policy of a JSON form, with keys in camelCase or snake_case. Raises `InvalidInput`."""
        if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"policy: {given!r} is not an object with the names of a policy's parts")
        known = _NAMES | {name: name for name in _NAMES.values()}
        unknown = sorted(str(key) for key in set(given) - set(known))
        if unknown:
            raise InvalidInput(f"policy: there is no {', '.join(unknown)}; there are {', '.join(_NAMES)}")
        return cls(**{known[key]: value for key, value in given.items()})


def read_overlap(given: Overlap | str) -> Overlap:
    """Return the overlap policy of a name in any case: skip, BufferOne, buffer-all. Raises `InvalidInput`."""
    try:
        return Overlap(given)
    except ValueError:
        pass
    plain = str(given).replace("_", "").replace("-", "").lower()
    for one in Overlap:
        if one.value.replace("_", "") == plain:
            return one
    raise InvalidInput(f"there is no overlap policy {given!r}; there are {', '.join(Overlap)}")


@lru_cache(maxsize=4096)
def policy_of(text: str) -> Policy:
    """Return the policy of a schedule's row."""
    return Policy.from_dict(json.loads(text))


def _catchup(given: timedelta | float | str | None) -> timedelta | None:
    if given is None:
        return None
    try:
        return max(parse_duration(given), SHORTEST_CATCHUP)
    except InvalidInput as error:
        raise InvalidInput(f"policy: catchup: {error}") from None


def check_count(name: str, given: object, low: int = 0) -> int | None:
    """Return the number if it is a whole number of at least `low`, or None. Raises `InvalidInput`."""
    return None if given is None else check_whole(name, given, low)


def _failures(given: object) -> int:
    return int(given) if isinstance(given, bool) else check_count("policy: pause_on_failure", given) or 0


def _phrase(length: timedelta) -> float | str:
    return length.total_seconds() if length.microseconds else format_duration(length)
