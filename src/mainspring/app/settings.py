"""All settings of an app, as one frozen object. Arguments override the environment, which overrides defaults."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from mainspring.errors import InvalidInput, InvalidSettings
from mainspring.model.given import explained
from mainspring.recurrence.durations import parse_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mainspring.app.functions.options import Duration

_UNSET: Any = object()
_PREFIX = "MAINSPRING_"


def _setting(default: Any, kind: str, help_text: str, low: float | None = None, choices: tuple[str, ...] = ()) -> Any:
    metadata = {"default": default, "kind": kind, "help": help_text, "low": low, "choices": choices}
    return field(default=_UNSET, metadata=metadata)


@explained(InvalidSettings)
@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of an app. Every field can also be set in the environment: `MAINSPRING_LEASE=2` for `lease`.

    Durations are seconds, `timedelta`s or phrases such as "15s"; they are stored as seconds.
    """

    lease: float = _setting(15.0, "duration", "how long a silent worker keeps its runs", low=0.3)
    concurrency: int = _setting(
        1_000, "int", "runs that one worker executes at once; those that wait do not count", low=1
    )
    threads: int = _setting(32, "int", "threads for `def` workflows, and as many for `def` steps", low=1)
    resident: int = _setting(
        10_000, "int", "waiting runs that stay in memory; beyond that the last to wake are parked", low=0
    )
    park_after: float = _setting(1.0, "duration", "how long a waiting `def` run keeps its thread", low=0)
    max_recoveries: int | None = _setting(
        100, "int or none", "how often a run may lose its worker before it fails", low=0
    )
    value_bytes: int = _setting(
        8 * 2**20,
        "int",
        "largest input, result or other value, in bytes of its JSON; text and `bytes` count as they are",
        low=64,
    )
    unknown_after: float = _setting(
        3_600.0, "duration", "how long a run waits for a worker that knows its function before it fails", low=0
    )
    schedule_functions: int = _setting(
        1_000, "int", "functions that one execution may schedule with run_after and run_at", low=1
    )
    schedule_bytes: int = _setting(8 * 2**20, "int", "their arguments together, counted in the same way", low=64)
    retention: float | None = _setting(None, "duration or none", "how long ended runs are kept; none: for ever", low=0)
    keep_last: int | None = _setting(
        None, "int or none", "how many ended runs of each function are kept, the latest; none: any number", low=1
    )
    function_retention: float | None = _setting(
        604_800.0, "duration or none", "how long ended functions of run_after and run_at are kept", low=0
    )
    tick_retention: float | None = _setting(
        7_776_000.0, "duration or none", "how long ticks of schedules are kept", low=60
    )
    poll: float = _setting(5.0, "duration", "how often a worker polls without a notification", low=0.01)
    grace: float = _setting(10.0, "duration", "how long steps may continue when a worker stops", low=0)
    synchronous: str = _setting(
        "FULL", "str", "SQLite: when a commit counts as done", choices=("FULL", "NORMAL", "OFF", "EXTRA")
    )
    schema: str = _setting(
        "mainspring", "str", "PostgreSQL: the schema with the tables; two apps share a database by two schemas"
    )
    connections: int = _setting(
        8, "int", "PostgreSQL: the most connections that a process opens; callers wait for one beyond that", low=3
    )
    notify: bool = _setting(
        "yes", "bool", "PostgreSQL: notify other processes of what was committed; off: they find it when they poll"
    )
    keep_logs: str = _setting(
        "off",
        "str",
        "the level from which lines that are logged inside runs are kept and shown with them",
        choices=("off", "debug", "info", "warning", "error"),
    )
    payloads: str = _setting(
        "none",
        "str",
        "`module:name` of the codec that encodes stored values, where the code names none with `payloads=`",
    )
    migrate: bool = _setting(
        "yes", "bool", "bring the tables up to date when connecting, instead of only checking them"
    )
    work: bool = _setting("yes", "bool", "execute runs when the app is entered; off: only start runs and read them")
    queues: frozenset[str] | None = _setting(
        None, "names or none", "queues to take runs from, separated by commas; none: all of them"
    )
    continue_on: str = _setting(
        "fingerprint",
        "str",
        "which runs to continue: those begun by the same source, or also those whose replay agrees",
        choices=("fingerprint", "compatible"),
    )

    if TYPE_CHECKING:  # arguments are durations in any form, fields are seconds

        def __init__(
            self,
            *,
            lease: Duration = ...,
            concurrency: int = ...,
            threads: int = ...,
            resident: int = ...,
            park_after: Duration = ...,
            max_recoveries: int | None = ...,
            value_bytes: int = ...,
            unknown_after: Duration = ...,
            schedule_functions: int = ...,
            schedule_bytes: int = ...,
            retention: Duration | None = ...,
            keep_last: int | None = ...,
            function_retention: Duration | None = ...,
            tick_retention: Duration | None = ...,
            poll: Duration = ...,
            grace: Duration = ...,
            synchronous: str = ...,
            schema: str = ...,
            connections: int = ...,
            notify: bool = ...,
            keep_logs: str = ...,
            payloads: str = ...,
            migrate: bool = ...,
            work: bool = ...,
            queues: Iterable[str] | None = ...,
            continue_on: str = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        faults: list[str] = []
        for one in fields(self):
            given = getattr(self, one.name)
            source = one.name
            if given is _UNSET:
                variable = _PREFIX + one.name.upper()
                given = os.environ.get(variable, one.metadata["default"])
                source = variable if variable in os.environ else source
            try:
                object.__setattr__(self, one.name, _read(given, one.metadata))
            except (InvalidInput, ValueError) as error:
                faults.append(f"{source}: {error}")
        if faults:
            raise InvalidSettings("; ".join(faults))


def _read(given: Any, rule: Mapping[str, Any]) -> Any:
    kind: str = rule["kind"]
    value = _parsed(given, kind)
    low = rule["low"]
    if low is not None and value is not None and value < low:
        raise InvalidInput(f"{given!r} is below {low:g}; it is {rule['help']}")
    if rule["choices"] and value not in rule["choices"]:
        raise InvalidInput(f"{given!r} is none of {', '.join(rule['choices'])}; it is {rule['help']}")
    return value


def _parsed(given: Any, kind: str) -> Any:
    if kind.endswith("or none") and (given is None or str(given).lower() in {"none", ""}):
        return None
    if kind.startswith("duration"):
        with contextlib.suppress(ValueError):
            given = float(given) if isinstance(given, str) else given
        return parse_duration(given).total_seconds()
    if kind == "names or none":
        return _names(given)
    if kind.startswith("int"):
        return _whole_number(given)
    if kind == "bool":
        return _truth(given)
    if not isinstance(given, str) or not given:
        raise InvalidInput(f"{given!r} is not a word")
    return given


def _whole_number(given: Any) -> int:
    if not isinstance(given, bool) and isinstance(given, (int, str)):
        with contextlib.suppress(ValueError):
            return int(given)
    raise InvalidInput(f"{given!r} is not a whole number")


def _names(given: Any) -> frozenset[str] | None:
    if given is None or given == "none":
        return None
    try:
        names = [str(name).strip() for name in (given.split(",") if isinstance(given, str) else given)]
    except TypeError:
        raise InvalidInput(f"{given!r} is not a list of names") from None
    return frozenset(name for name in names if name)


def _truth(given: Any) -> bool:
    word = str(given).lower()
    if word in {"1", "true", "yes", "on"}:
        return True
    if word in {"0", "false", "no", "off"}:
        return False
    raise InvalidInput(f"{given!r} is neither true nor false")
