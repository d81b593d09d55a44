"""The dialect of Temporal: 5 fields, 6 with the year last, 7 with seconds first too. All must match.

Also `@daily` and similar shorthands, `@every 1h/5m`, `TZ=Zone ` in front and `# a comment` at the end.
"""

from __future__ import annotations

from mainspring.errors import Fault, InvalidInput
from mainspring.recurrence.cron.dialects.reading import Reading, Values, Word, count_fault, words
from mainspring.recurrence.cron.dialects.vixie import SHORTHANDS, shorthand_fault
from mainspring.recurrence.cron.fields import DATE, HOUR, MINUTE, MONTH, SECOND, WEEKDAY, YEAR, Grammar
from mainspring.recurrence.durations import parse_duration, whole_numbers
from mainspring.recurrence.search.search import Cycle

_FIELDS = (SECOND, MINUTE, HOUR, DATE, MONTH, WEEKDAY, YEAR)


def read(text: str, faults: list[Fault]) -> Reading:
    body, _, comment = text.partition("#")
    found = words(body)
    timezone = None
    if found and found[0].text.startswith(("TZ=", "CRON_TZ=")):
        timezone = found[0].text.partition("=")[2]
        if not timezone:
            faults.append(Fault("the zone is missing", "timezone", found[0].column, hint="write TZ=Europe/Paris"))
        del found[0]
    reading = _shorthand(found, text, faults) if found and found[0].text.startswith("@") else _fields(found, faults)
    return reading._replace(comment=comment.strip(), timezone=None if reading.cycle else timezone)


def _fields(found: list[Word], faults: list[Fault]) -> Reading:
    if not 5 <= len(found) <= 7:
        faults.append(count_fault(len(found), "5 to 7", "[second] minute hour day-of-month month day-of-week [year]"))
        return Reading()
    to_the_second = len(found) == 7
    if not to_the_second:
        found.insert(0, Word("0", 1))
    if len(found) == 6:
        found.append(Word("*", 1))
    grammar = Grammar(faults)
    known = len(faults)
    values = Values(*(grammar.read(field, word.text, word.column) for field, word in zip(_FIELDS, found, strict=True)))
    if not to_the_second and any(fault.field == YEAR.name for fault in faults[known:]):
        faults.append(
            Fault(
                "the sixth of six fields is the year",
                hint="for seconds in front write Cron(…, dialect='vixie') or 7 fields",
            )
        )
    return Reading((values,), to_the_second=to_the_second)


def _shorthand(found: list[Word], text: str, faults: list[Fault]) -> Reading:
    word = found[0].text.lower()
    if word == "@every":
        return Reading(cycle=_every(found, faults))
    written = SHORTHANDS.get(word)
    if written is None or len(found) > 1:
        if written is None:
            faults.append(shorthand_fault(found[0].text, text))
        else:
            faults.append(
                Fault(f"{found[1].text!r} follows {word}", column=found[1].column, hint=f"{word} stands alone")
            )
        return Reading()
    return _fields(words(written), faults)


def _every(found: list[Word], faults: list[Fault]) -> Cycle | None:
    if len(found) != 2:
        faults.append(
            Fault("@every needs one interval", column=found[0].column, hint="write @every 1h30m or @every 6h/5h")
        )
        return None
    try:
        return parse_cycle(found[1].text)
    except InvalidInput as error:
        faults.append(Fault(str(error), "@every", found[1].column))
        return None


def parse_cycle(text: str) -> Cycle:
    """Parse `6h/5h`: every 6 hours, 5 hours into each. `1.5h` is 90 minutes.

    Raises `InvalidInput` for an interval below a second, or an offset that is not shorter than the interval.
    """
    every_text, slash, offset_text = text.partition("/")
    every = parse_duration(whole_numbers(every_text))
    offset = parse_duration(whole_numbers(offset_text)) if slash else None
    seconds = round(every.total_seconds())
    phase = round(offset.total_seconds()) if offset is not None else 0
    if seconds < 1:
        raise InvalidInput(f"interval: {every_text!r} is shorter than a second")
    if phase >= seconds:
        raise InvalidInput(f"interval: the offset {offset_text!r} is not shorter than the interval {every_text!r}")
    return Cycle(seconds, phase)
