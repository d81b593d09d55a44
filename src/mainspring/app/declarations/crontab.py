"""Crontab files of an app: `app.crontab(…)` and `mainspring worker --crontab FILE`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mainspring.engine.registry import Bound
from mainspring.engine.retry import Retry, stored
from mainspring.errors import Fault, InvalidCron, InvalidInput
from mainspring.model.given import check_several
from mainspring.recurrence.cron.crontab import parse_crontab
from mainspring.recurrence.cron.crontab_items import ParsedCronItem, duplicate_faults, idle_faults, parse_cron_items
from mainspring.schedules.actions import LATE, Action
from mainspring.schedules.definition import Definition
from mainspring.schedules.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mainspring.engine.registry import Function, Registry
    from mainspring.recurrence.cron.crontab_items import CronItem

_ATTEMPTS = 25


class Crontab:
    """The source of crontab entries: a text, a file that is read again when it changes, or items made in code."""

    def __init__(self, text: str | None, file: str | Path | None, items: Iterable[Any] | None) -> None:
        if [text, file, items].count(None) != 2:
            raise InvalidInput("crontab takes exactly one of text=, file= and items=")
        if file is not None and not isinstance(file, (str, Path)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"crontab: file is the path of a file, not {file!r}")
        self.file = None if file is None else Path(file)
        self._items = [] if items is None else _parsed(check_several("crontab: items", items))
        if text is not None:
            self._items = _read(text, "crontab")
        self._seen: float | None = None
        self.load()

    def load(self) -> None:
        """Read the crontab's file, if it has one. If the file is missing or invalid, the entries read before stay in force."""
        if self.file is None:
            return
        self._seen = self._stamp()
        try:
            text = self.file.read_text("utf-8")
        except (OSError, ValueError) as error:  # a path with a null byte is a ValueError
            raise InvalidInput(f"the crontab {self.file} cannot be read: {error}") from None
        self._items = _read(text, str(self.file))

    def reload(self, registry: Registry) -> None:
        """Read the file again. If it is refused, also for its tasks, the entries read before stay in force."""
        before = self._items
        try:
            self.load()
            self.definitions(registry)
        except InvalidInput:
            self._items = before
            raise

    @property
    def changed(self) -> bool:
        """Whether the file has changed since it was read last."""
        return self.file is not None and self._stamp() != self._seen

    def _stamp(self) -> float | None:
        try:
            return self.file.stat().st_mtime_ns if self.file is not None else None
        except (OSError, ValueError):
            return None

    def definitions(self, registry: Registry) -> list[Definition]:
        """Return the entries as schedules. Raise one error that lists everything that is wrong with any of them."""
        made: list[Definition] = []
        faults: list[Fault] = []
        for item in self._items:
            try:
                made.append(_definition(item, registry))
            except InvalidInput as error:
                faults.append(Fault(str(error), field=item.identifier, line=item.line))
        if faults:
            raise InvalidCron(str(self.file or "crontab"), faults)
        return made


def _read(text: str, name: str) -> list[ParsedCronItem]:
    try:
        return _firing(parse_crontab(text))
    except InvalidCron as error:
        raise InvalidCron(name, error.faults) from None


def _firing(items: list[ParsedCronItem]) -> list[ParsedCronItem]:
    faults = idle_faults(items)
    if faults:
        raise InvalidCron("crontab", faults)
    return items


def _parsed(items: Sequence[CronItem | ParsedCronItem]) -> list[ParsedCronItem]:
    if any(isinstance(item, ParsedCronItem) for item in items):
        wrong = [item for item in items if not isinstance(item, ParsedCronItem)]
        if wrong:
            raise InvalidInput("crontab: items are all CronItems, or all made by parse_crontab or parse_cron_items")
        parsed: list[Any] = list(items)
        faults = duplicate_faults(parsed)
        if faults:
            raise InvalidCron("crontab", faults)
        return _firing(parsed)
    every: list[Any] = list(items)
    return _firing(parse_cron_items(every))


def _definition(item: ParsedCronItem, registry: Registry) -> Definition:
    function = registry.get(item.task)
    options = item.options
    if function.at_most_once and (options.max_attempts or 1) > 1:
        raise InvalidInput(
            f"{function.name!r} is never started a second time (at_most_once), so max cannot be {options.max_attempts}"
        )
    fill = item.backfill_period
    retry = Retry(options.max_attempts or _ATTEMPTS, first=math.e, factor=math.e, cap=math.exp(10))
    action = Action(
        "",
        function.kind,
        timeout=function.timeout if function.kind == "workflow" else None,
        queue=options.queue_name or function.queue,
        priority=options.priority or 0,
        key=options.job_key,
        key_mode=options.job_key_mode,
        retry=None if function.at_most_once else stored(retry),
        cron=_parameter(function),
    )
    policy = Policy("allow_all", catchup=max(fill.total_seconds(), LATE))
    return Definition(item.identifier, function.name, *_input(function, item), policy, action)


def _input(function: Function, item: ParsedCronItem) -> tuple[str, Any]:
    payload = {**(item.payload or {}), "_cron": {"ts": "1970-01-01T00:00:00.000Z", "backfilled": False}}
    text = function.codec.bind_and_encode((payload,), {})
    if not isinstance(json.loads(text).get(_parameter(function)), dict):
        raise InvalidInput(_takes(function))
    return text, item.spec()


def _parameter(function: Function) -> str:
    names = list(function.codec.signature.parameters)
    if function.bound is not Bound.NOT or not names:
        raise InvalidInput(_takes(function))
    return names[0]


def _takes(function: Function) -> str:
    return f"the task {function.name!r} has to take one dict, the payload, and takes {function.codec.signature}"
