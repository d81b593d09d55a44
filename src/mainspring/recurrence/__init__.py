"""Every way to say when: cron dialects, calendars, intervals, exclusions, zones and their transitions, in words and in times.

Pure and public: nothing here reads a clock, a file of the user's or a database.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainspring.recurrence.ambiguous import AmbiguousCron, ambiguity
    from mainspring.recurrence.calendars import Calendar
    from mainspring.recurrence.crons import Cron
    from mainspring.recurrence.crontab import parse_crontab
    from mainspring.recurrence.crontab_items import CronItem, CronOptions, ParsedCronItem, parse_cron_items
    from mainspring.recurrence.dialects import Dialect
    from mainspring.recurrence.durations import format_duration, parse_duration
    from mainspring.recurrence.intervals import Interval
    from mainspring.recurrence.lints import Advice, lint
    from mainspring.recurrence.search import Fold, Gap
    from mainspring.recurrence.spec import Spec
    from mainspring.recurrence.spec_input import DateRange

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

_HOMES = {
    "Advice": "lints",
    "AmbiguousCron": "ambiguous",
    "Calendar": "calendars",
    "Cron": "crons",
    "CronItem": "crontab_items",
    "CronOptions": "crontab_items",
    "DateRange": "spec_input",
    "Dialect": "dialects",
    "Fold": "search",
    "Gap": "search",
    "Interval": "intervals",
    "ParsedCronItem": "crontab_items",
    "Spec": "spec",
    "ambiguity": "ambiguous",
    "format_duration": "durations",
    "lint": "lints",
    "parse_cron_items": "crontab_items",
    "parse_crontab": "crontab",
    "parse_duration": "durations",
}
"""The module of each name, imported when the name is first used: every program has durations, few have crontabs."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
