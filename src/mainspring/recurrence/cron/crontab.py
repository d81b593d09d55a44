"""Parse crontab files: five fields, a task, `?options` and a JSON5 payload on each line."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote_plus

from mainspring.errors import Fault, InvalidCron
from mainspring.recurrence.cron.crontab_items import (
    ID_OPTION,
    TASK,
    TASK_AS_IDENTIFIER,
    CronOptions,
    JobKeyMode,
    ParsedCronItem,
    checked_options,
    duplicate_faults,
    no_json,
    option_faults,
    parsed_item,
)
from mainspring.recurrence.cron.dialects.graphile import FIELDS, read_field
from mainspring.recurrence.cron.dialects.reading import Word, words
from mainspring.recurrence.cron.expression import Cron

if TYPE_CHECKING:
    from collections.abc import Iterator

_OPTIONS = ("id", "fill", "max", "queue", "jobKey", "jobKeyMode", "priority")
_NUMBER = re.compile(r"-?[0-9]{1,99}")
_FILL = re.compile(r"(?:[0-9]+[smhdw])+")
_JSON5_COLUMN = re.compile(r"^<string>:\d+ |(?:,? at)? column (\d+)$")
_LONGEST_PAYLOAD = 65_536
_DEEPEST_PAYLOAD = 64
_DEEPEST_JSON5 = 32
"""The JSON5 parser needs more than twenty frames of the stack for each level. This leaves room for those of the caller."""


def parse_crontab(text: str) -> list[ParsedCronItem]:
    """Parse the contents of a crontab file and return its entries. Raises one `InvalidCron` with all faults, by line and column."""
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers need not be typed
        raise InvalidCron("crontab", [Fault(f"{text!r} is a {type(text).__name__}, not text")])
    items: list[ParsedCronItem] = []
    faults: list[Fault] = []
    for number, line in enumerate(re.split(r"\r?\n", text.removeprefix("\ufeff")), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            entry = _Line(line, number, faults).parse()
            if entry is not None:
                items.append(entry)
    faults += duplicate_faults(items)
    if faults:
        raise InvalidCron("crontab", sorted(faults, key=lambda fault: (fault.line or 0, fault.column or 0)))
    return items


class _Line:
    """One entry of a crontab, with the columns of its parts."""

    def __init__(self, text: str, number: int, faults: list[Fault]) -> None:
        self._text, self._number, self._faults = text, number, faults

    def parse(self) -> ParsedCronItem | None:
        known = len(self._faults)
        found = words(self._text)
        if len(found) < 6 or found[0].text.startswith("@"):
            self._fault(*self._too_short(found))
            return None
        inner: list[Fault] = []
        for field, word in zip(FIELDS, found, strict=False):
            read_field(field, word, inner)
        for fault in inner:
            self._fault(fault.message, fault.column, fault.field, fault.hint)
        task, rest = found[5], found[6:]
        identifier, options = None, CronOptions()
        if rest and rest[0].text.startswith("?"):
            identifier, options = self._options(rest[0])
            rest = rest[1:]
        name = TASK_AS_IDENTIFIER if identifier is None else TASK
        self._faults += name.faults(task.text, "task", task.column, self._number)
        payload = self._payload(rest[0]) if rest else None
        if len(self._faults) > known:
            return None
        cron = Cron(" ".join(word.text for word in found[:5]), "graphile")
        return parsed_item(
            task.text, identifier, cron, options=checked_options(options), payload=payload, line=self._number
        )

    def _fault(
        self, message: str, column: int | None = None, field: str | None = None, hint: str | None = None
    ) -> None:
        self._faults.append(Fault(message, field, column, self._number, hint))

    @staticmethod
    def _too_short(found: list[Word]) -> tuple[str, int, None, str]:
        if found[0].text.startswith("@"):
            return f"{found[0].text!r} is not known here", found[0].column, None, "write five fields and a task"
        hint = "minute hour day-of-month month day-of-week task"
        return f"{len(found)} of six parts are there", found[-1].column, None, hint

    # ---- options ----

    def _options(self, word: Word) -> tuple[str | None, CronOptions]:
        given: dict[str, Word] = {}
        if word.text == "?":
            self._fault("there are no options after the question mark", word.column, "options")
        for key, value in self._pairs(word):
            if key not in _OPTIONS:
                self._fault("is not an option", value.column, key, f"there are {', '.join(_OPTIONS)}")
            elif key in given:
                self._fault("is given twice", value.column, key)
            else:
                given[key] = value
        identifier = given.get("id")
        if identifier is not None:
            self._faults += ID_OPTION.faults(identifier.text, "id", identifier.column, self._number)
        options = CronOptions(
            backfill_period=self._fill(given.get("fill")),
            max_attempts=self._number_of("max", given),
            queue_name=given["queue"].text if "queue" in given else None,
            job_key=given["jobKey"].text if "jobKey" in given else None,
            job_key_mode=cast("JobKeyMode", given["jobKeyMode"].text) if "jobKeyMode" in given else None,
            priority=self._number_of("priority", given),
        )
        for fault in option_faults(options):
            column = given[fault.field].column if fault.field in given else word.column
            self._fault(fault.message, column, fault.field, fault.hint)
        return identifier.text if identifier else None, options

    @staticmethod
    def _pairs(word: Word) -> Iterator[tuple[str, Word]]:
        column = word.column + 1
        for part in word.text[1:].split("&"):
            key, _, value = part.partition("=")
            if part:
                yield unquote_plus(key), Word(unquote_plus(value), column)
            column += len(part) + 1

    def _fill(self, word: Word | None) -> str:
        if word is None:
            return "0s"
        if not _FILL.fullmatch(word.text):
            self._fault(f"{word.text!r} is not a time phrase", word.column, "fill", "write one like 4w3d2h1m")
            return "0s"
        return word.text

    def _number_of(self, key: str, given: dict[str, Word]) -> int | None:
        word = given.get(key)
        if word is None:
            return None
        if not _NUMBER.fullmatch(word.text):
            self._fault(f"{word.text!r} is not a whole number", word.column, key)
            return None
        return int(word.text)

    # ---- payload ----

    def _payload(self, word: Word) -> dict[str, Any] | None:
        text = self._text[word.column - 1 :].rstrip()
        if not text.startswith("{") or not text.endswith("}"):
            hint = "after the task come ?options and then a {payload}; comments have lines of their own"
            self._fault(f"{word.text!r} is out of place", word.column, None, hint)
            return None
        if "\r" in text:
            column = word.column + text.index("\r")
            self._fault("there is a carriage return in it", column, "payload", "write a JSON5 object on one line")
            return None
        try:
            value = _read_json5(text)
        except ValueError as error:
            message = str(error)
            matched = re.search(r"column (\d+)", message)
            column = word.column + (int(matched[1]) - 1 if matched else 0)
            self._fault(_JSON5_COLUMN.sub("", message), column, "payload", "write a JSON5 object on one line")
            return None
        if not isinstance(value, dict):
            self._fault("is not an object", word.column, "payload", "write {…}")
            return None
        return cast("dict[str, Any]", value)


def _read_json5(text: str) -> object:
    """Parse a JSON5 value whose numbers JSON can express. Raises `ValueError` for any fault."""
    if len(text) > _LONGEST_PAYLOAD:
        raise ValueError(f"{len(text)} characters are too many")
    depth = _depth(text)
    if depth > _DEEPEST_PAYLOAD:
        raise ValueError(_too_deep(_DEEPEST_PAYLOAD))
    try:
        value: object = json.loads(
            text, parse_constant=_refuse
        )  # most payloads are plain JSON, which this parses much faster
    except json.JSONDecodeError:
        if depth > _DEEPEST_JSON5:
            raise ValueError(_too_deep(_DEEPEST_JSON5)) from None
        import json5  # noqa: PLC0415 - few programs read crontabs, and the import is slow

        value = json5.loads(text)
    json_fault = no_json(value)
    if json_fault is not None:
        raise ValueError(json_fault)
    return value


def _too_deep(levels: int) -> str:
    return f"it is nested too deeply, {levels} levels are the most"


def _depth(text: str) -> int:
    """Return the maximum nesting of brackets. Brackets in strings count too: an upper bound is enough."""
    depth = deepest = 0
    for character in text:
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}" and depth:
            depth -= 1
    return deepest


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is nothing that JSON can carry")
