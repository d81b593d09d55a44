"""Every way to say when: cron dialects, calendars, intervals, exclusions, zones and their transitions, in words and in times.

Pure and public: nothing here reads a clock, a file of the user's or a database.
"""

from mainspring.recurrence.durations import parse_duration

__all__ = ["parse_duration"]
