"""The dialect of crontab(5), with optional seconds in front, and `L`, `W` and `#` for the days."""

from __future__ import annotations

from mainspring.errors import Fault
from mainspring.recurrence.cron.dialects.graphile import either_day
from mainspring.recurrence.cron.dialects.reading import Reading, Values, Word, count_fault, words
from mainspring.recurrence.cron.fields import DATE, HOUR, MINUTE, MONTH, SECOND, WEEKDAY, Grammar

SHORTHANDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_FIELDS = (SECOND, MINUTE, HOUR, DATE, MONTH, WEEKDAY)


def read(text: str, faults: list[Fault]) -> Reading:
    stripped = text.strip()
    if stripped.startswith("@"):
        written = SHORTHANDS.get(stripped.lower())
        if written is None:
            faults.append(shorthand_fault(stripped, text))
            return Reading()
        text = written
    found = words(text)
    if len(found) not in {5, 6}:
        hint = "[second] minute hour day-of-month month day-of-week"
        if found and "=" in found[0].text:
            hint = "the zone goes into timezone="
        faults.append(count_fault(len(found), "5 or 6", hint))
        return Reading()
    to_the_second = len(found) == 6
    if not to_the_second:
        found.insert(0, Word("0", 1))
    grammar = Grammar(faults, rules=True, short_names=True)
    second, minute, hour, date, month, weekday = (
        grammar.read(field, word.text, word.column) for field, word in zip(_FIELDS, found, strict=True)
    )
    values = Values(second, minute, hour, date, month, weekday)
    # As in Vixie's cron, a field that begins with a star counts as unrestricted, whatever follows.
    both = not found[3].text.startswith("*") and not found[5].text.startswith("*")
    return Reading(either_day(values, both=both), to_the_second=to_the_second)


def shorthand_fault(word: str, text: str) -> Fault:
    column = len(text) - len(text.lstrip()) + 1
    if word.lower() == "@reboot":
        return Fault("@reboot names no time", column=column, hint="start the run when your application starts")
    if word.lower().startswith("@every"):
        return Fault(
            "@every is not a part of crontab(5)", column=column, hint="write an Interval, or dialect='temporal'"
        )
    return Fault(
        f"{word.split(maxsplit=1)[0]!r} is not a shorthand", column=column, hint=f"there are {', '.join(SHORTHANDS)}"
    )
