"""How a call is to run: everything that `fn.options(…)` takes, checked when it is given."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from mainspring.errors import InvalidInput, NotSerializable
from mainspring.model.clock import SECOND, to_micros
from mainspring.model.ids import check_run_id
from mainspring.recurrence.durations import parse_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

Duration = timedelta | float | str
Moment = datetime | float


class OptionArguments(TypedDict, total=False):
    """What `options(…)` takes."""

    id: str
    timeout: Duration | None
    after: Duration
    at: Moment
    attributes: Mapping[str, Any]
    detached: bool
    version: str


@dataclass(frozen=True, slots=True)
class Options:
    """Options as they are kept: checked, times in microseconds."""

    id: str | None = None
    timeout: int | None = None
    after: int | None = None
    at: int | None = None
    attributes: str | None = None
    detached: bool = False
    version: str | None = None
    no_timeout: bool = False

    def with_(self, given: OptionArguments) -> Options:
        """These options with others on top."""
        unknown = set(given) - {*OptionArguments.__annotations__}
        if unknown:
            known = ", ".join(sorted(OptionArguments.__annotations__))
            raise InvalidInput(f"options: there is no option {', '.join(sorted(unknown))}; there are {known}")
        values: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(self)}
        for name, value in given.items():
            values.update(_checked(name, value))
        if values["after"] is not None and values["at"] is not None:
            raise InvalidInput("options: give `after` or `at`, not both")
        return Options(**values)


def _checked(name: str, value: Any) -> dict[str, Any]:
    if name == "id":
        return {"id": check_run_id(value)}
    if name == "timeout":
        return {"timeout": None if value is None else _positive(value), "no_timeout": value is None}
    if name == "after":
        return {"after": micros(value)}
    if name == "at":
        return {"at": moment(value)}
    if name == "attributes":
        return {"attributes": _attributes(value)}
    if name == "version" and (not isinstance(value, str) or not value.strip()):
        raise InvalidInput(f"options: version is a word, not {value!r}")
    return {name: value if name == "version" else bool(value)}


def micros(value: Duration) -> int:
    """A duration in microseconds."""
    return round(parse_duration(value).total_seconds() * SECOND)


def _positive(value: Duration) -> int:
    found = micros(value)
    if found <= 0:
        raise InvalidInput(f"options: a timeout must be longer than nothing, not {value!r}")
    return found


def moment(value: Moment) -> int:
    """A point in time in microseconds: an aware datetime, or seconds since 1970."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidInput(
                f"the time {value.isoformat()} has no zone; write an aware datetime, such as datetime.now(UTC)"
            )
        return to_micros(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InvalidInput(f"a time is an aware datetime or seconds since 1970, not {value!r}")
    return round(value * SECOND)


def _attributes(value: Any) -> str:
    named: Any = value
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in named):
        raise InvalidInput(f"options: attributes is a dict with names as keys, not {value!r}")
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError) as error:
        raise NotSerializable(f"options: attributes cannot be stored as JSON: {error}") from None
    if json.loads(text) != value or "\\u0000" in text:
        raise NotSerializable(
            f"options: attributes are plain JSON values (strings, numbers, booleans, lists, dicts), not {value!r}"
        )
    return text
