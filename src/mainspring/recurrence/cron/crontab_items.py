"""Entries of a crontab: as users write them, and parsed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

from mainspring.errors import Fault, InvalidCron, InvalidInput
from mainspring.model.given import LONGEST_KEY, short
from mainspring.model.ids import LONGEST_SCHEDULE_ID, is_storable
from mainspring.model.queues import LONGEST_NAME
from mainspring.recurrence.cron.expression import Cron
from mainspring.recurrence.durations import parse_duration
from mainspring.recurrence.search.days import bits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainspring.recurrence.spec import Spec

JobKeyMode = Literal["replace", "preserve_run_at"]

_ATTEMPTS = range(1, 32_768)
_PRIORITIES = range(-32_768, 32_768)
_ANY_TIME: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""Patterns have no year: one that fires at all fires within eight years of any time."""


class Name(NamedTuple):
    """A kind of names in entries."""

    what: str
    pattern: re.Pattern[str]
    longest: int
    hint: str

    def faults(self, value: object, where: str, column: int | None = None, line: int | None = None) -> list[Fault]:
        """Return what is wrong with a name."""
        if not isinstance(value, str) or self.pattern.fullmatch(value) is None:
            return [Fault(f"{short(value)} is not {self.what}", where, column, line, self.hint)]
        if len(value) > self.longest:
            message = f"{value[:20]!r}… has {len(value)} characters; the limit is {self.longest}"
            return [Fault(message, where, column, line)]
        return []


TASK: Final = Name(
    "the name of a task", re.compile(r"[_a-zA-Z][_a-zA-Z0-9:/_-]*"), LONGEST_KEY, "letters, digits, : / _ and -"
)
TASK_AS_IDENTIFIER: Final = TASK._replace(longest=LONGEST_SCHEDULE_ID)
IDENTIFIER: Final = Name("an identifier", TASK.pattern, LONGEST_SCHEDULE_ID, TASK.hint)
ID_OPTION: Final = Name(
    "an identifier",
    re.compile(r"[_a-zA-Z][-_a-zA-Z0-9]*"),
    LONGEST_SCHEDULE_ID,
    "it begins with a letter or _, then letters, digits, _ and -",
)
_QUEUE = Name("a queue", re.compile(r"[-a-zA-Z0-9_:]+"), LONGEST_NAME, "letters, digits, - _ and :")


@dataclass(frozen=True, slots=True)
class CronOptions:
    """Options of the job of an entry. They are checked when the entry is parsed."""

    backfill_period: timedelta | float | str = timedelta(0)
    """How far back missed ticks are started. A `timedelta` in parsed entries."""
    max_attempts: int | None = None
    queue_name: str | None = None
    job_key: str | None = None
    job_key_mode: JobKeyMode | None = None
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class CronItem:
    """A crontab entry as users write it in code."""

    task: str
    match: str
    """Five fields of dialect `graphile`, in UTC."""
    options: CronOptions = CronOptions()
    payload: Mapping[str, Any] = field(default_factory=dict[str, Any])
    identifier: str | None = None
    """The unique name of the entry. Default: the task. Changing the identifier makes another entry."""


@dataclass(frozen=True, slots=True)
class ParsedCronItem:
    """A checked entry. Only `parse_crontab` and `parse_cron_items` make them."""

    task: str
    identifier: str
    cron: Cron
    options: CronOptions
    payload: dict[str, Any] | None
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    dates: tuple[int, ...]
    months: tuple[int, ...]
    dows: tuple[int, ...]
    line: int | None = None
    """The line of the entry in its file."""

    @property
    def backfill_period(self) -> timedelta:
        return parse_duration(self.options.backfill_period)

    def spec(self) -> Spec:
        """Return the spec with the times of this entry."""
        from mainspring.recurrence.spec import Spec  # noqa: PLC0415 - imported on use: few programs read crontabs

        return Spec(cron=[self.cron])


def parse_cron_items(items: Iterable[CronItem]) -> list[ParsedCronItem]:
    """Check entries and return them parsed. Raises one `InvalidCron` with all faults of all entries."""
    faults: list[Fault] = []
    parsed: list[ParsedCronItem] = []
    if isinstance(items, (str, bytes, Mapping)) or not isinstance(cast("object", items), Iterable):
        raise InvalidCron("cron items", [Fault(f"{items!r} is not a list", hint="parse_crontab takes text")])
    for index, item in enumerate(items):
        known = len(faults)
        if not isinstance(cast("object", item), CronItem):
            faults.append(Fault(f"{item!r} is not a CronItem", f"items[{index}]", hint="write CronItem(task, match)"))
            continue
        cron = _cron(item, index, faults)
        _check(item, f"items[{index}]", faults)
        if cron is not None and len(faults) == known:
            payload = dict(item.payload)
            parsed.append(
                parsed_item(item.task, item.identifier, cron, options=checked_options(item.options), payload=payload)
            )
    faults += duplicate_faults(parsed)
    if faults:
        raise InvalidCron("cron items", faults)
    return parsed


def parsed_item(
    task: str,
    identifier: str | None,
    cron: Cron,
    *,
    options: CronOptions,
    payload: dict[str, Any] | None,
    line: int | None = None,
) -> ParsedCronItem:
    # A pattern that matches on either day is two calendars: one has the restricted dates, the other the restricted weekdays.
    first, last = cron.reading.calendars[0], cron.reading.calendars[-1]
    return ParsedCronItem(
        task=task,
        identifier=task if identifier is None else identifier,
        cron=cron,
        options=options,
        payload=payload,
        minutes=tuple(bits(first.minute.mask)),
        hours=tuple(bits(first.hour.mask)),
        dates=tuple(bits(first.date.mask)),
        months=tuple(bits(first.month.mask)),
        dows=tuple(bits(last.weekday.mask)),
        line=line,
    )


def duplicate_faults(items: Iterable[ParsedCronItem]) -> list[Fault]:
    seen: dict[str, ParsedCronItem] = {}
    faults: list[Fault] = []
    for item in items:
        first = seen.setdefault(item.identifier, item)
        if first is not item:
            where = f", first in line {first.line}" if first.line else ""
            hint = "give each entry an identifier of its own, with ?id=… or identifier="
            faults.append(Fault(f"{item.identifier!r} is there twice{where}", "identifier", line=item.line, hint=hint))
    return faults


def idle_faults(items: Iterable[ParsedCronItem]) -> list[Fault]:
    """Return the entries that never fire, such as those of 30 February."""
    hint = "choose a day that the month has"
    return [
        Fault(f"{item.identifier!r} never fires: {item.cron.text}", "identifier", line=item.line, hint=hint)
        for item in items
        if not item.spec().upcoming(_ANY_TIME, 1)
    ]


def no_json(value: object) -> str | None:
    """Return why a value cannot be stored as JSON and read again unchanged, or None."""
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        return f"{error.object[error.start]!r} is a lone surrogate, which is not text"
    except (TypeError, ValueError, RecursionError) as error:
        return str(error)
    key = next(_odd_keys(value), None)
    return None if key is None else f"the key {key!r} is not a text"


def _odd_keys(value: object) -> Iterator[object]:
    """Yield the keys of dicts that JSON would turn into text."""
    if isinstance(value, dict):
        entries = cast("dict[object, object]", value)
        yield from (key for key in entries if not isinstance(key, str))
        for inner in entries.values():
            yield from _odd_keys(inner)
    elif isinstance(value, (list, tuple)):
        for inner in cast("list[object]", value):
            yield from _odd_keys(inner)


def option_faults(options: CronOptions) -> list[Fault]:
    """Return what is wrong with the values of options."""
    found: list[Fault] = []
    try:
        parse_duration(options.backfill_period)
    except InvalidInput as error:
        found.append(Fault(str(error).removeprefix("duration: "), "fill"))
    found += _number_faults("max", options.max_attempts, _ATTEMPTS)
    found += _number_faults("priority", options.priority, _PRIORITIES)
    if options.queue_name is not None:
        found += _QUEUE.faults(options.queue_name, "queue")
    if options.job_key is not None and not (
        isinstance(cast("object", options.job_key), str)
        and 1 <= len(options.job_key) <= LONGEST_KEY
        and is_storable(options.job_key)
    ):
        found.append(Fault(f"a key has 1 to {LONGEST_KEY} characters", "jobKey"))
    if options.job_key_mode not in (None, "replace", "preserve_run_at"):
        found.append(Fault(f"{options.job_key_mode!r} is not a mode", "jobKeyMode", hint="replace or preserve_run_at"))
    return found


def checked_options(options: CronOptions) -> CronOptions:
    """Return options with their defaults filled in. They must have no faults."""
    mode = options.job_key_mode or ("replace" if options.job_key is not None else None)
    period = parse_duration(options.backfill_period)
    return CronOptions(period, options.max_attempts, options.queue_name, options.job_key, mode, options.priority)


def _cron(item: CronItem, index: int, faults: list[Fault]) -> Cron | None:
    try:
        return Cron(item.match, "graphile")
    except InvalidCron as error:
        for fault in error.faults:
            where = f"items[{index}].match"
            faults.append(
                Fault(fault.message, f"{where}.{fault.field}" if fault.field else where, fault.column, hint=fault.hint)
            )
    return None


def _check(item: CronItem, where: str, faults: list[Fault]) -> None:
    faults += (TASK if item.identifier is not None else TASK_AS_IDENTIFIER).faults(item.task, f"{where}.task")
    if item.identifier is not None:
        faults += IDENTIFIER.faults(item.identifier, f"{where}.identifier")
    if not isinstance(cast("object", item.payload), Mapping):
        faults.append(Fault(f"{item.payload!r} is not an object", f"{where}.payload", hint="write a dict"))
    else:
        reason = no_json(dict(item.payload))
        if reason is not None:
            faults.append(Fault(f"{item.payload!r} is not JSON: {reason}", f"{where}.payload"))
    if not isinstance(cast("object", item.options), CronOptions):
        faults.append(Fault(f"{item.options!r} is not a CronOptions", f"{where}.options", hint="write CronOptions(…)"))
        return
    faults += [
        Fault(fault.message, f"{where}.options.{fault.field}", hint=fault.hint) for fault in option_faults(item.options)
    ]


def _number_faults(name: str, value: object, allowed: range) -> list[Fault]:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value in allowed):
        return []
    return [Fault(f"{value!r} is not between {allowed[0]} and {allowed[-1]}", name)]
