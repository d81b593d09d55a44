"""How long the next time takes, beside cronsim and croniter: same run, same expression, same zone, parsed once.

    python bench/recurrence.py

Each figure is the best of several rounds over the same starting points of a year, so that no library is measured at a
moment that suits it. Walking (each next from the last) and jumping (each from a new point) are both shown, since
cronsim and croniter are built to walk.
"""

from __future__ import annotations

import time
import warnings
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from croniter import croniter
from cronsim import CronSim
from rich.console import Console
from rich.table import Table

from mainspring.recurrence import Calendar, Cron, Interval, Spec

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = "Europe/Berlin"
ZONE = ZoneInfo(KEY)
EXPRESSIONS = ["*/5 * * * *", "0 9 1 1 *", "0 0 29 2 *", "30 8-18 * * mon-fri"]
STARTS = [datetime(2026, 1, 1, 0, 3, tzinfo=ZONE) + timedelta(hours=29 * number) for number in range(300)]
STEPS, ROUNDS = 15, 15
AT_LEAST = {"cronsim": 5, "croniter": 10}


def best(call: Callable[[], object], times: int) -> float:
    """Microseconds for one of the `times` things that a call does: the best of a few rounds."""
    rounds: list[float] = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        call()
        rounds.append((time.perf_counter() - begin) / times * 1e6)
    return min(rounds)


def walk_ours(text: str) -> Callable[[], object]:
    spec = Spec(cron=[Cron(text)], timezone=KEY)

    def walk() -> None:
        when: datetime | None = STARTS[0]
        for _ in range(STEPS):
            assert when is not None
            when = spec.next(when)

    return walk


def walk_cronsim(text: str) -> Callable[[], object]:
    walker = CronSim(text, STARTS[0])
    begin = walker.dt

    def walk() -> None:
        walker.dt = begin
        for _ in range(STEPS):
            next(walker)

    return walk


def walk_croniter(text: str) -> Callable[[], object]:
    walker = croniter(text, STARTS[0])

    def walk() -> None:
        walker.set_current(STARTS[0], force=True)
        for _ in range(STEPS):
            walker.get_next(datetime)

    return walk


def jump(text: str) -> float:
    spec = Spec(cron=[Cron(text)], timezone=KEY)
    return best(lambda: [spec.next(start) for start in STARTS], len(STARTS))


def crowd() -> Spec:
    """Fifty calendars and fifty exclusions."""
    calendars = [Calendar(hour=n * 7 % 24, minute=n * 13 % 60, day_of_week=n % 7) for n in range(50)]
    excluded = [Calendar(month=n % 12 + 1, day_of_month=n * 11 % 28 + 1) for n in range(50)]
    return Spec(calendars=calendars, exclude=excluded, timezone=KEY)


def main() -> None:
    warnings.simplefilter("ignore")
    console = Console(width=120)
    table = Table(title=f"next, microseconds each, {KEY}")
    for column in ("expression", "mainspring", "jumping", "cronsim", "ratio", "croniter", "ratio", "parse"):
        table.add_column(column, justify="left" if column == "expression" else "right")
    kept = True
    for text in EXPRESSIONS:
        walkers: list[Callable[[], object]] = [walk_ours(text), walk_cronsim(text), walk_croniter(text)]
        ours, cronsim, other = (best(walk, STEPS) for walk in walkers)
        parse = best(lambda text=text: [Cron(text) for _ in range(300)], 300)  # type: ignore[misc]
        kept &= cronsim / ours >= AT_LEAST["cronsim"] and other / ours >= AT_LEAST["croniter"]
        figures: list[Any] = [
            f"{ours:.2f}",
            f"{jump(text):.2f}",
            f"{cronsim:.1f}",
            f"{cronsim / ours:.0f} x",
            f"{other:.1f}",
        ]
        table.add_row(text, *figures, f"{other / ours:.0f} x", f"{parse:.1f}")
    console.print(table)
    rest = Table(title="other specs, microseconds per next (jumping)")
    rest.add_column("spec")
    rest.add_column("next", justify="right")
    specs = {
        "50 calendars and 50 exclusions": crowd(),
        "every 6 hours (interval)": Spec(intervals=[Interval("6h", offset="5h")]),
        "Friday 29 February": Spec(cron=[Cron("0 0 29 2 fri", "dbos")], timezone=KEY),
        "last working day of the month": Spec(cron=[Cron("0 17 LW * *")], timezone=KEY),
        "weekdays, not on 25 December": Spec(
            cron=["0 9 * * mon-fri"], exclude=[Calendar(month=12, day_of_month=25)], timezone=KEY
        ),
    }
    for name, spec in specs.items():
        figure = best(lambda spec=spec: [spec.next(start) for start in STARTS], len(STARTS))  # type: ignore[misc]
        kept &= figure < 100
        rest.add_row(name, f"{figure:.2f}")
    console.print(rest)
    console.print("All budgets are kept." if kept else "A BUDGET IS NOT KEPT.")


if __name__ == "__main__":
    main()
