"""Print one schedule, and its ticks as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mainspring.cli import display
from mainspring.cli.display import ago, at, compact, span
from mainspring.cli.terminal import echo, safe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from mainspring.operations.schedules.audit import ScheduleAudit
    from mainspring.operations.schedules.info import ScheduleDescription, ScheduleInfo, TickInfo

HEAD = ("ID", "WORKFLOW", "STATE", "NEXT", "STARTS", "MISSED", "WHEN", "NOTE")
TICK_HEAD = ("NOMINAL (UTC)", "SOURCE", "OUTCOME", "LATE BY", "RUN", "ENDED", "REASON")
_OPTIONS = ("id", "timeout", "attributes", "version", "queue", "priority", "partition")
_QUIET = {"limit", "maxRunning", "bufferLimit", "coalesce", "whenActive", "pauseOnFailure"}


def row(schedule: ScheduleInfo, now: datetime) -> tuple[str, ...]:
    """Return a row of the list of schedules."""
    return (
        schedule.id,
        schedule.workflow,
        schedule.state,
        "" if schedule.next is None else "now" if schedule.next <= now else ago(schedule.next, now),
        str(schedule.starts),
        str(schedule.missed),
        schedule.description,
        schedule.fault or _notes(schedule),
    )


def _notes(schedule: ScheduleInfo) -> str:
    notes = [schedule.note, schedule.pause_note if schedule.paused else None]
    return "; ".join(
        dict.fromkeys([each for each in notes if each] + (["differs from the code"] if schedule.differs else []))
    )


def tick_row(tick: TickInfo) -> tuple[str, ...]:
    """Return a row of the list of ticks. A span of ticks is one row."""
    nominal = f"{tick.nominal:%Y-%m-%d %H:%M:%S}"
    if tick.until is not None:
        nominal += f" to {tick.until:%Y-%m-%d %H:%M:%S} ({tick.count})"
    late = "" if tick.acted is None or tick.run is None else span(max(tick.acted - tick.due, tick.due - tick.due))
    return nominal, tick.source, tick.outcome, late, tick.run or "", tick.run_state or "", tick.reason or ""


def show_schedule(schedule: ScheduleDescription, now: datetime) -> None:
    """Print a schedule with its definition, state, counters and ticks."""
    echo(
        f"{click.style(safe(schedule.id), bold=True)}  {safe(schedule.workflow)}  {click.style(schedule.state, bold=True)}\n"
    )
    for name, text in _facts(schedule, now):
        echo(f"{click.style(f'{name:<13}', dim=True)}{safe(text)}")
    if schedule.upcoming:
        echo("")
        first = "when resumed" if schedule.paused and schedule.resume_at is None else "next"
        for number, moment in enumerate(schedule.upcoming):
            echo(f"{first if number == 0 else '':<13}{at(moment, now)}")
    if schedule.recent:
        echo("")
        display.table(TICK_HEAD, [tick_row(tick) for tick in schedule.recent])
    older = [tick for tick in schedule.recent_starts if tick not in schedule.recent]
    if older and len(older) == len(schedule.recent_starts):  # the latest starts are not among the latest ticks
        echo("\nlatest starts")
        display.table(TICK_HEAD, [tick_row(tick) for tick in older])


def _facts(schedule: ScheduleDescription, now: datetime) -> Iterator[tuple[str, str]]:
    yield "when", schedule.description
    yield "spec", compact(schedule.spec)
    yield "input", "(scheduled_at, started_at)" if schedule.action["times"] else compact(schedule.action["input"])
    options = {key: schedule.action[key] for key in _OPTIONS if schedule.action[key]}
    yield "runs", compact(options)
    yield "policy", compact({key: value for key, value in schedule.policy.items() if value or key not in _QUIET})
    for name, text in (
        ("note", schedule.note if schedule.note != schedule.pause_note else None),
        ("paused" if schedule.paused else "resumed", schedule.pause_note),
        ("differs", _differs(schedule)),
        ("stopped", schedule.stopped),
        ("fault", schedule.fault),
        ("unknown", schedule.unknown),
        ("resumes", None if schedule.resume_at is None else at(schedule.resume_at, now)),
        ("remaining", None if schedule.remaining is None else str(schedule.remaining)),
        ("attributes", compact(schedule.attributes) if schedule.attributes else None),
    ):
        if text:
            yield name, text
    yield "created", at(schedule.created, now)
    if schedule.updated != schedule.created:
        yield "updated", at(schedule.updated, now)
    yield (
        "declared by",
        f"version {schedule.declared_by}" if schedule.declared_by else "no version: created at run time",
    )
    yield "revision", str(schedule.revision)
    yield from _progress(schedule)


def _differs(schedule: ScheduleDescription) -> str | None:
    if not schedule.differs:
        return None
    return f"from the code, in {', '.join(schedule.differs)}; `mainspring schedules reset {schedule.id}` undoes that"


def _progress(schedule: ScheduleDescription) -> Iterator[tuple[str, str]]:
    counted = ("starts", "missed", "skipped", "dropped", "failures")
    yield "counters", ", ".join(f"{getattr(schedule, name)} {name}" for name in counted)
    if schedule.running:
        yield "running", ", ".join(schedule.running)
    if schedule.buffered:
        yield "buffered", str(schedule.buffered)
    if schedule.skips:
        yield "to skip", ", ".join(f"{moment:%Y-%m-%d %H:%M:%S}" for moment in schedule.skips)
    for backfill in schedule.backfills:
        yield "backfill", f"{backfill.id}: {backfill.started} started, up to {backfill.reached:%Y-%m-%d %H:%M:%S}"
    if schedule.last_failure is not None:
        yield "last failure", str(schedule.last_failure.get("message", schedule.last_failure.get("type")))


def show_audit(audit: ScheduleAudit) -> None:
    """Print the audit of a schedule."""
    echo(
        f"{click.style(safe(audit.schedule), bold=True)}  {audit.since:%Y-%m-%d %H:%M:%S} to {audit.until:%Y-%m-%d %H:%M:%S} UTC\n"
    )
    rows = [(name, f"{count:,}") for name, count in audit.classes.items()]
    if audit.manual:
        rows.append(("on request", f"{audit.manual:,}"))
    if audit.unaccounted_count:
        rows.append(("unaccounted for", f"{audit.unaccounted_count:,}"))
    display.table(("WHAT", "TICKS"), rows or [("nothing", "0")])
    if audit.lateness:
        shown = ", ".join(f"{name} {seconds * 1000:,.0f} ms" for name, seconds in audit.lateness.items())
        echo(f"\nfrom its time to its run: {shown}")
    for moment in audit.unaccounted[:10]:
        echo(f"no tick for {moment:%Y-%m-%d %H:%M:%S}")
    if audit.notable:
        echo("")
        display.table(TICK_HEAD, [tick_row(tick) for tick in audit.notable[:20]])
