"""Recurrence: cron dialects, calendars, intervals, exclusions and time zones, computed as times and described in English.

Pure and public: no module here reads a clock, a user's file or a database.
"""

from typing import TYPE_CHECKING

from mainspring._exports import exported

if TYPE_CHECKING:
    from mainspring.recurrence.advice import Advice, lint
    from mainspring.recurrence.calendars import Calendar
    from mainspring.recurrence.cron.crontab import parse_crontab
    from mainspring.recurrence.cron.crontab_items import CronItem, CronOptions, ParsedCronItem, parse_cron_items
    from mainspring.recurrence.cron.dialects import Dialect
    from mainspring.recurrence.cron.expression import AmbiguousCron, Cron, ambiguity
    from mainspring.recurrence.durations import format_duration, parse_duration
    from mainspring.recurrence.input import DateRange
    from mainspring.recurrence.intervals import Interval
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

if not TYPE_CHECKING:
    _HOMES = {
        "advice": ("Advice", "lint"),
        "calendars": ("Calendar",),
        "cron.crontab": ("parse_crontab",),
        "cron.crontab_items": ("CronItem", "CronOptions", "ParsedCronItem", "parse_cron_items"),
        "cron.dialects": ("Dialect",),
        "cron.expression": ("AmbiguousCron", "Cron", "ambiguity"),
        "durations": ("format_duration", "parse_duration"),
        "input": ("DateRange",),
        "intervals": ("Interval",),
        "search.search": ("Fold", "Gap"),
        "spec": ("Spec",),
    }
    """The public names, by the module that is imported when one of them is used: every program uses durations, few use crontabs."""

    __getattr__ = exported(globals(), _HOMES)
