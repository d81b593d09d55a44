"""Every way to say when: cron dialects, calendars, intervals, exclusions, zones and their transitions, in words and in times.

Pure and public: nothing here reads a clock, a file of the user's or a database.
"""

from typing import TYPE_CHECKING

from mainspring.recurrence.ambiguity import AmbiguousCron, ambiguity
from mainspring.recurrence.calendars import Calendar
from mainspring.recurrence.crons import Cron
from mainspring.recurrence.dialects import Dialect
from mainspring.recurrence.durations import format_duration, parse_duration
from mainspring.recurrence.intervals import Interval
from mainspring.recurrence.search import Fold, Gap
from mainspring.recurrence.spec import Spec
from mainspring.recurrence.spec_input import DateRange

if TYPE_CHECKING:
    from mainspring.recurrence.crontab import parse_crontab
    from mainspring.recurrence.crontab_items import CronItem, CronOptions, ParsedCronItem, parse_cron_items
    from mainspring.recurrence.lints import Advice, lint

__all__ = [
    "Advice",
    "AmbiguousCron",
    "Calendar",
    "Cron",
    "CronItem",
    "CronOptions",
    "DateRange",
    "Dialect",
    "Fold",
    "Gap",
    "Interval",
    "ParsedCronItem",
    "Spec",
    "ambiguity",
    "format_duration",
    "lint",
    "parse_cron_items",
    "parse_crontab",
    "parse_duration",
]

_LATER = {
    "Advice": "lints",
    "CronItem": "crontab_items",
    "CronOptions": "crontab_items",
    "ParsedCronItem": "crontab_items",
    "lint": "lints",
    "parse_cron_items": "crontab_items",
    "parse_crontab": "crontab",
}
"""Names that few programs use, and the modules that are imported when one does."""


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - see above

    value: object = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = value
    return value
