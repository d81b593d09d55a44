"""Every way to say when: cron dialects, calendars, intervals, exclusions, zones and their transitions, in words and in times.

Pure and public: nothing here reads a clock, a file of the user's or a database.
"""

from mainspring.recurrence.ambiguity import AmbiguousCron
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
    "format_duration",
    "lint",
    "parse_cron_items",
    "parse_crontab",
    "parse_duration",
]
