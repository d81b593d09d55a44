"""Charts as SVG. Colours come from the style sheet, by class. Geometry is in attributes, so that no style is inline."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

from markupsafe import Markup, escape

from mainspring.web.formatting import OUTCOMES, count, duration

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.operations.overview import Bar
    from mainspring.operations.schedules.pictures import Day

_WORST = (
    "run_failed", "start_failed", "missed", "dropped", "skipped_overlap", "late", "replaced", "skipped_by_request", "paused",
    "buffered", "pending", "fired",
)  # fmt: skip
_CELL = 13


Link: TypeAlias = "Callable[[Bar], str]"
"""The address of the runs that a column represents."""


def ended(bars: Sequence[Bar], link: Link) -> Markup:
    """Draw ended runs as stacked columns."""
    most = max([bar.succeeded + bar.failed + bar.cancelled for bar in bars] or [0])
    step = count_step(most)
    shapes: list[Markup] = []
    for number, bar in enumerate(bars):
        below = 0.0
        for name, value in (("succeeded", bar.succeeded), ("cancelled", bar.cancelled), ("failed", bar.failed)):
            if value:
                high = max(1.5, 50 * value / step)
                below += high
                shapes.append(_rect(number * 10 + 1, 100 - below, 8, high, f"c-{name}"))
        words = f"{bar.start:%H:%M} UTC: {bar.succeeded} succeeded, {bar.failed} failed, {bar.cancelled} cancelled"
        shapes.append(_hover(number, words, link(bar) if bar.succeeded + bar.failed + bar.cancelled else None))
    return _chart(bars, shapes, "Runs that ended, over time", [count(2 * step), count(step)] if most else [])


def line(bars: Sequence[Bar], field: str, title: str, link: Link) -> Markup:
    """Draw an average per column, as columns. A column without runs has none."""
    values: list[float | None] = [getattr(bar, field) for bar in bars]
    most = max([value for value in values if value is not None] or [0.0])
    step = time_step(most, 2) if most else 1.0
    shapes: list[Markup] = []
    for number, (bar, value) in enumerate(zip(bars, values, strict=True)):
        if value is not None:
            high = max(1.5, 50 * value / step)
            shapes.append(_rect(number * 10 + 1, 100 - high, 8, high, "c-accent"))
            shapes.append(_hover(number, f"{bar.start:%H:%M} UTC: {duration(value)}", link(bar)))
    return _chart(bars, shapes, title, [duration(2 * step), duration(step)] if most else [])


def _chart(bars: Sequence[Bar], shapes: list[Markup], title: str, heights: list[str]) -> Markup:
    """Draw columns, with the maximum and the middle on the vertical axis and times on the horizontal one."""
    if not heights:
        return Markup('<p class="chart-empty">nothing yet</p>')
    span = (bars[-1].start - bars[0].start) * len(bars) / max(1, len(bars) - 1)
    times = [f"{duration(span)} ago", f"{duration(span / 2)} ago", "now"]
    return Markup(
        '<figure class="chart"><svg viewBox="0 0 {} 100" preserveAspectRatio="none" role="group" aria-label="{}">{}{}</svg>'
        '<div class="chart-y" aria-hidden="true">{}</div><div class="chart-x" aria-hidden="true">{}</div></figure>'
    ).format(
        len(bars) * 10,
        title,
        Markup("").join(_level(10 * len(bars), y) for y in (0, 50)),
        Markup("").join(shapes),
        Markup("").join(Markup("<span>{}</span>").format(each) for each in [*heights, "0"]),
        Markup("").join(Markup("<span>{}</span>").format(each) for each in times),
    )


def _level(width: int, y: int) -> Markup:
    return Markup('<path d="M0 {}H{}" class="level"/>').format(y, width)


def month(days: Sequence[Day]) -> Markup:
    """Draw thirty days of a schedule, one column each, coloured by the worst outcome."""
    shapes = [_day(number * 10, 0, 'width="8" height="24"', day) for number, day in enumerate(days)]
    return Markup(
        '<figure class="month"><svg viewBox="0 0 {} 24" role="img" aria-label="{}">{}</svg>'
        "<figcaption><span>{:%d %b}</span><span>today</span></figcaption></figure>"
    ).format(len(days) * 10 - 2, f"The last {len(days)} days", Markup("").join(shapes), days[0].day)


def year(days: Sequence[Day], today: datetime) -> Markup:
    """Draw a year of a schedule: a column for each week, a row for each weekday. Clock changes are marked."""
    shapes: list[Markup] = []
    here = today.date()
    for number, day in enumerate(days):
        x, y = 30 + number // 7 * _CELL, 18 + number % 7 * _CELL
        if day.day.day <= 7 and number % 7 == 0:
            shapes.append(Markup('<text x="{}" y="11" class="axis">{:%b}</text>').format(x, day.day))
        shapes.append(_day(x, y, 'width="11" height="11"', day, " today" if day.day == here else ""))
        if day.clocks:
            shapes.append(
                Markup('<path d="M{} {}l5 0l-2.5 5z" class="clocks"><title>{}</title></path>').format(
                    x + 3, y + 3, clock_words(day)
                )
            )
    for row, name in ((0, "Mon"), (2, "Wed"), (4, "Fri"), (6, "Sun")):
        shapes.append(Markup('<text x="0" y="{}" class="axis">{}</text>').format(18 + row * _CELL + 9, name))
    width = 30 + (len(days) + 6) // 7 * _CELL
    return Markup('<svg class="year" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        width, 18 + 7 * _CELL, "A year of days: what was, and what is to come", Markup("").join(shapes)
    )


def _day(x: int, y: int, size: str, day: Day, mark: str = "") -> Markup:
    """Draw the cell of a day. Pages have hundreds of them, so only text that needs it is escaped."""
    return Markup(  # noqa: S704
        f'<rect x="{x}" y="{y}" {size} rx="2" class="{day_class(day)}{mark}"><title>{escape(day_words(day))}</title></rect>'
    )


def day_class(day: Day) -> str:
    """Return the CSS class of a day."""
    for name in _WORST:
        if day.outcomes.get(name):
            return f"o-{name}"
    return "o-coming" if day.coming else "o-none"


def day_words(day: Day) -> str:
    parts = [
        OUTCOMES[name] if name == "fired" else f"{count} {OUTCOMES.get(name, name)}"
        for name, count in day.outcomes.items()
    ]
    if day.coming and day.first is not None:
        more = f" and {day.coming - 1} more" if day.coming > 1 else ""
        parts.append(f"to come: {day.first.astimezone(UTC):%H:%M} UTC{more}")
    if day.clocks:
        parts.append(clock_words(day))
    return f"{day.day:%a %d %b %Y}: {', '.join(parts) or 'nothing'}"


def clock_words(day: Day) -> str:
    moved = duration(abs(day.clocks))
    return f"the clocks go {'forward' if day.clocks > 0 else 'back'} by {moved}"


def _rect(x: float, y: float, width: float, height: float, name: str) -> Markup:
    return Markup('<rect x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}" class="{}"/>').format(
        x, y, width, height, name
    )


def _hover(number: int, text: str, address: str | None) -> Markup:
    """Draw the tooltip of a column and the link to its runs. The link takes no keyboard focus: the legend has links for keys."""
    shape = Markup('<rect x="{}" y="0" width="10" height="100" class="hover"><title>{}</title></rect>').format(
        number * 10, text
    )
    return (
        Markup('<a href="{}" tabindex="-1" aria-label="{}">{}</a>').format(address, text, shape) if address else shape
    )


def axis(marks: Sequence[tuple[float, timedelta]]) -> Markup:
    """Draw the times along a waterfall. Without a view box, positions in percent do not stretch the text."""
    return Markup('<svg class="marks">{}</svg>').format(
        Markup("").join(
            Markup('<text x="{:.2f}%" y="12" class="axis">{}</text>').format(percent, duration(since))
            for percent, since in marks
        )
    )


@dataclass(frozen=True, slots=True)
class Part:
    """A span of time on a line."""

    start: datetime
    end: datetime
    look: str
    """The colour of the span: step, wait, child, transaction, queue, failed, pause or live."""
    words: str = ""


def spans(parts: Sequence[Part], low: datetime, high: datetime, marks: Sequence[tuple[float, timedelta]]) -> Markup:
    """Draw spans of time on a line from `low` to `high`, to scale. A span too short to be seen is drawn as a mark."""
    whole = max(high - low, timedelta(microseconds=1))
    shapes = [Markup('<path d="M{:.1f} 0V10" class="level"/>').format(10 * percent) for percent, _ in marks]
    for part in parts:
        x = min(max(0.0, 1000 * ((part.start - low) / whole)), 997.0)
        width = max(0.0 if part.look == "pause" else 3.0, 1000 * ((part.end - part.start) / whole))
        shapes.append(
            Markup('<rect x="{:.1f}" y="1" width="{:.1f}" height="8" class="w-{}">{}</rect>').format(
                x, min(width, 1000 - x), part.look, Markup("<title>{}</title>").format(part.words) if part.words else ""
            )
        )
    return Markup(
        '<svg class="bars" viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true">{}</svg>'
    ).format(Markup("").join(shapes))


_SECOND_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400)
_DAY = 86_400


def count_step(most: float, marks: int = 2) -> int:
    """Return the smallest of 1, 2, 5, 10, 20 … that reaches `most` in `marks` steps."""
    return max(1, round(_decimal(most / marks)))


def time_step(seconds: float, marks: int) -> float:
    """Return the smallest round duration that reaches `seconds` in `marks` steps: decimal below a second, then clock units."""
    wanted = seconds / marks
    if wanted <= 1:
        return _decimal(wanted)
    return next((step for step in _SECOND_STEPS if step >= wanted), 0) or _decimal(wanted / _DAY) * _DAY


def _decimal(wanted: float) -> float:
    """Return the smallest number that is 1, 2 or 5 times a power of ten and at least `wanted`."""
    power = 1e-6
    while True:
        for digit in (1, 2, 5):
            if digit * power >= wanted * (1 - 1e-9):
                return digit * power
        power *= 10
