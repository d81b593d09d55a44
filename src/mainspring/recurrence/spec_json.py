"""Convert specs to JSON and back: camelCase is written, both spellings are read, unknown keys are errors."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mainspring.errors import Fault, InvalidSpec
from mainspring.recurrence.durations import format_duration
from mainspring.recurrence.input import DateRange

if TYPE_CHECKING:
    from datetime import timedelta

    from mainspring.recurrence.cron.expression import Cron
    from mainspring.recurrence.spec_parts import SpecParts

_KEYS = (
    "cron",
    "intervals",
    "calendars",
    "exclude",
    "start",
    "end",
    "jitter",
    "timezone",
    "timezone_data",
    "gap",
    "fold",
)
_CAMEL = {"timezoneData": "timezone_data"}


def spec_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `Spec` in a JSON object. `Spec` itself checks the values."""
    if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - JSON may hold anything
        raise InvalidSpec("spec", [Fault(f"{given!r} is a {type(given).__name__}", hint="write a JSON object")])
    arguments: dict[str, Any] = {}
    faults: list[Fault] = []
    for key, value in given.items():
        name = _CAMEL.get(key, key)
        if name not in _KEYS:
            known = ", ".join("timezoneData" if known == "timezone_data" else known for known in _KEYS)
            faults.append(Fault("is no key of a spec", str(key), hint=f"there are {known}"))
        elif name in arguments:
            faults.append(Fault("is given twice", str(key)))
        elif value is not None:
            arguments[name] = value
    if faults:
        raise InvalidSpec("spec", faults)
    return arguments


def spec_to_dict(spec: SpecParts) -> dict[str, Any]:
    written: dict[str, Any] = {
        "calendars": [calendar.to_dict() for calendar in spec.calendars],
        "intervals": [interval.to_dict() for interval in spec.intervals],
        "cron": [_cron(cron) for cron in spec.cron],
        "exclude": [_exclusion(item) for item in spec.exclude],
        "start": None if spec.start is None else spec.start.isoformat(),
        "end": None if spec.end is None else spec.end.isoformat(),
        "jitter": _jitter(spec.jitter),
        "timezoneData": None if spec.timezone_data is None else base64.b64encode(spec.timezone_data).decode(),
    }
    written = {key: value for key, value in written.items() if value}
    return written | {"timezone": spec.timezone, "gap": spec.gap, "fold": spec.fold}


def _cron(cron: Cron) -> str | dict[str, Any]:
    # A string is dialect temporal, but a six-field one that ends with a star is not accepted as a string.
    plain = cron.dialect == "temporal" and not cron.text.rstrip().endswith("*")
    return cron.text if plain or (cron.dialect == "temporal" and len(cron.text.split()) == 5) else cron.to_dict()


def _exclusion(item: Any) -> Any:
    if isinstance(item, DateRange):
        return item.to_json()
    written = item.to_dict()
    return written if "cron" not in written else _cron(item)


def _jitter(jitter: timedelta) -> str | float | None:
    if not jitter:
        return None
    return jitter.total_seconds() if jitter.microseconds else format_duration(jitter)
