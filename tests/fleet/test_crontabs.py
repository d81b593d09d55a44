"""Crontabs of worker processes that come at the same time, with the same file and with different ones."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from mainspring.app.declarations.crontab import Crontab
from mainspring.model.clock import SECOND, SystemClock, to_datetime
from mainspring.operations.schedules.crontabs import Crontabs
from tests.support.processes import APP, Process, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from mainspring import App
    from mainspring.store.protocol import Store
    from tests.support.processes import Fleet

pytestmark = pytest.mark.processes
MISSED = 10
MINUTE = 60 * SECOND


def started(fleet: Fleet, crontab: Path, count: int = 1, lease: float = 2) -> list[Process]:
    """Workers that are on their way, all at once. Three times per lease they look at their files."""
    return [
        fleet.process("-m", "mainspring", "worker", APP, "--crontab", str(crontab), lease=lease) for _ in range(count)
    ]


def ready(workers: list[Process]) -> None:
    for worker in workers:
        worker.says("ready;", within=60)


def patterns(store: Store, entry: str) -> list[str]:
    row = store.schedules.get(entry)
    return [] if row is None else sorted(each["cron"] for each in json.loads(row.spec)["cron"])


async def test_four_processes_with_one_file_make_up_for_each_missed_time_once(
    fleet: Fleet, client: App, store: Store, tmp_path: Path
) -> None:
    crontab = tmp_path / "crontab"
    crontab.write_text("* * * * * cron_job ?fill=1h\n")
    past = SystemClock()
    past.offset = -MISSED * MINUTE
    known_since = past.now()
    definitions = Crontab(None, crontab, None).definitions(client._runtime.registry)
    Crontabs(store, past, client._runtime.ids).bring(
        definitions
    )  # somebody listed it then; since then nobody was there

    ready(started(fleet, crontab, 4, lease=60))
    minutes = [known_since // MINUTE * MINUTE + number * MINUTE for number in range(1, MISSED + 1)]
    expected = {to_datetime(minute).strftime("%Y-%m-%dT%H:%M:%S.000Z") for minute in minutes}
    await asyncio.to_thread(
        eventually, lambda: expected <= {entry.step for entry in fleet.ledger.entries()}, "all are made up for", 60
    )
    times = [entry.step for entry in fleet.ledger.entries()]
    assert len(times) == len(set(times))


async def test_processes_with_different_files_have_all_their_entries_and_patterns(
    fleet: Fleet, store: Store, tmp_path: Path
) -> None:
    files = [tmp_path / "first", tmp_path / "second"]
    for number, file in enumerate(files):
        file.write_text(f"{number} 4 * * * cron_job\n0 5 * * * cron_job ?id=own{number}\n")
    ready([*started(fleet, files[0], 2), *started(fleet, files[1], 2)])
    await asyncio.to_thread(
        eventually, lambda: patterns(store, "cron_job") == ["0 4 * * *", "1 4 * * *"], "both patterns count", 60
    )
    assert (patterns(store, "own0"), patterns(store, "own1")) == (["0 5 * * *"], ["0 5 * * *"])


async def test_a_file_that_is_replaced_under_running_processes_is_taken_over_by_all_and_a_bad_one_by_none(
    fleet: Fleet, store: Store, tmp_path: Path
) -> None:
    crontab, other = tmp_path / "crontab", tmp_path / "other"
    crontab.write_text("0 4 * * * cron_job\n")
    workers = started(fleet, crontab, 3)
    ready(workers)
    other.write_text("0 4 * * * nobody_knows\n61 * * * * cron_job\n")
    other.replace(crontab)
    for worker in workers:
        await asyncio.to_thread(worker.says, "has errors; the previous one stays in force", 60)
    assert patterns(store, "cron_job") == ["0 4 * * *"]
    other.write_text("30 6 * * * cron_job\n0 7 * * * cron_job ?id=more\n")
    other.replace(crontab)
    for worker in workers:
        await asyncio.to_thread(worker.says, "its entries are in force now", 60)
    await asyncio.to_thread(
        eventually, lambda: patterns(store, "cron_job") == ["30 6 * * *"], "the new pattern counts alone", 60
    )
    assert patterns(store, "more") == ["0 7 * * *"]
