"""Recurrence: cron dialects, calendars, intervals, exclusions and time zones, computed as times and described in English.

Pure and public: no module here reads a clock, a user's file or a database.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainspring.recurrence.calendars import Calendar
    from mainspring.recurrence.cron.crontab import parse_crontab
    from mainspring.recurrence.cron.crontab_items import CronItem, CronOptions, ParsedCronItem, parse_cron_items
    from mainspring.recurrence.cron.dialects import Dialect
    from mainspring.recurrence.cron.expression import AmbiguousCron, Cron, ambiguity
    from mainspring.recurrence.durations import format_duration, parse_duration
    from mainspring.recurrence.input import DateRange
    from mainspring.recurrence.intervals import Interval
    from mainspring.recurrence.lint import Advice, lint
    from mainspring.recurrence.search.search import Fold, Gap
    from mainspring.recurrence.spec import Spec

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

_MODULES = {
    "Advice": "lint",
    "AmbiguousCron": "cron.expression",
    "Calendar": "calendars",
    "Cron": "cron.expression",
    "CronItem": "cron.crontab_items",
    "CronOptions": "cron.crontab_items",
    "DateRange": "input",
    "Dialect": "cron.dialects",
    "Fold": "search.search",
    "Gap": "search.search",
    "Interval": "intervals",
    "ParsedCronItem": "cron.crontab_items",
    "Spec": "spec",
    "ambiguity": "cron.expression",
    "format_duration": "durations",
    "lint": "lint",
    "parse_cron_items": "cron.crontab_items",
    "parse_crontab": "cron.crontab",
    "parse_duration": "durations",
}
"""The module of each public name, imported on first use: every program uses durations, few use crontabs."""


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
