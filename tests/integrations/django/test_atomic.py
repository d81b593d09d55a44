"""The ORM inside transactions of runs: `@app.atomic`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from django.db import OperationalError, connection, connections, transaction

from mainspring import Client
from mainspring.errors import InTransaction
from mainspring.store.external.tx import Again
from tests.support.processes import PROJECT, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from mainspring.integrations.django import DjangoApp


@pytest.fixture
def tasks(bank: DjangoApp) -> Any:
    from tests.integrations.django.bank import tasks  # noqa: PLC0415

    return tasks


def _texts() -> list[str]:
    from tests.integrations.django.bank.models import Entry  # noqa: PLC0415

    return sorted(Entry.objects.values_list("text", flat=True))


def test_rows_outcome_and_what_is_enqueued_are_one_commit(bank: DjangoApp, tasks: Any) -> None:
    with bank:
        assert tasks.blocking_transfer("a", 1) > 0
        run = tasks.transfer.start.sync("b", 2)
        eventually(lambda: bank.runs.get.sync(run.id).state == "waiting", "it sleeps")
        tasks.book.start.sync("c", 3).result.sync()
        bank.drain.sync()
    assert _texts() == ["a", "b", "booked a", "booked b", "booked c", "c"]
    assert [(step.name, step.kind) for step in bank.runs.steps.sync(run.id)][:2] == [
        ("count", "step"),
        ("book", "transaction"),
    ]


def test_an_exception_rolls_everything_back_and_is_the_outcome(bank: DjangoApp, tasks: Any) -> None:
    with bank:
        with pytest.raises(tasks.Broken):
            tasks.blocking_transfer("a", -1)
        bank.drain.sync()
    assert _texts() == []
    assert [run.workflow for run in bank.runs.list.sync().runs] == ["blocking_transfer"]


def test_a_transaction_that_is_marked_for_rollback_is_not_taken_for_committed(bank: DjangoApp, tasks: Any) -> None:
    with bank:
        run = tasks.marks.start.sync()
        with pytest.raises(InTransaction, match="marked for rollback"):
            run.result.sync()
    assert _texts() == []
    (step,) = bank.runs.steps.sync(run.id)
    assert step.error is not None


def test_a_plain_transaction_refuses_queries_that_are_no_part_of_it(bank: DjangoApp, tasks: Any) -> None:
    with bank, pytest.raises(InTransaction, match=r"@app\.atomic"):
        tasks.misled.sync()


def test_a_transaction_in_the_body_of_a_workflow_is_refused(bank: DjangoApp, tasks: Any) -> None:
    with bank:
        for workflow in (tasks.atomic_in_body, tasks.step_in_atomic):
            with pytest.raises(InTransaction, match="replay"):
                workflow()
    assert _texts() == []


def test_outside_runs_it_is_a_transaction_or_part_of_the_one_that_is_open(bank: DjangoApp, tasks: Any) -> None:
    tasks.book("alone", 1)
    with transaction.atomic():
        tasks.book("part", 1)
        with pytest.raises(tasks.Broken):
            tasks.book("undone", -1)
    with pytest.raises(RuntimeError, match="all of it"), transaction.atomic():
        tasks.book("undone as well", 1)
        raise RuntimeError("all of it")
    assert _texts() == ["alone", "part"]
    assert len(bank.runs.list.sync().runs) == 2


def test_a_transaction_that_is_rolled_back_for_others_is_made_again(
    bank: DjangoApp, tasks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mainspring.integrations.django import atomic  # noqa: PLC0415

    judged: list[BaseException] = []
    real = atomic._judged

    def judge(error: Any, raw: Any) -> BaseException:
        judged.append(real(error, raw))
        return judged[-1]

    monkeypatch.setattr(atomic, "_judged", judge)
    with bank:
        assert tasks.conflicted.sync() == 2
    (found,) = judged
    assert isinstance(found, Again) or (connection.vendor == "sqlite" and "busy" in str(found))
    assert _texts() == ["attempt 2"]


def test_a_connection_that_the_server_closed_is_not_used_again(
    bank: DjangoApp, tasks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has no server")
    monkeypatch.setattr(bank, "closes_connections", False)
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", None)
    monkeypatch.setitem(connections.settings["default"], "CONN_HEALTH_CHECKS", True)
    with bank:
        for _ in range(3):
            pid = bank.handle(tasks.backend_pid.start.sync().id).result.sync()
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
        assert tasks.book.start.sync("after", 1).result.sync() > 0
        bank.closes_connections = True
        tasks.backend_pid.start.sync().result.sync()  # on the same thread, whose connection it closes


@pytest.mark.processes
def test_a_killed_worker_leaves_exactly_one_of_everything(
    bank: DjangoApp, tasks: Any, store_url: str, tmp_path: Path
) -> None:
    """Workers are killed at each of the moments around a commit; the runs go on elsewhere, and no row is there twice."""
    ids = [tasks.ledger.options(id=f"ledger-{number}").start.sync(number).id for number in range(12)]
    for number, moment in enumerate(["inside", "recorded", "committed"] * 2):
        worker = _worker(store_url, tmp_path, moment, number)
        try:
            assert worker.wait(120) == -signal.SIGKILL, (tmp_path / f"said-{number}").read_text()
        finally:
            worker.kill()
            worker.wait()
    last = _worker(store_url, tmp_path, "never", 99)
    try:
        with Client(store_url) as client:
            eventually(lambda: _all_succeeded(client, ids), "all runs and tasks end", within=120)
            notes = client.runs.list.sync(workflow=tasks.note.module_path, limit=200).runs
    finally:
        last.terminate()
        last.wait(60)
    places = sorted(f"{number}.{part}" for number in range(12) for part in range(3))
    assert [text for text in _texts() if text.startswith("row")] == [f"row {place}" for place in places]
    assert sorted(run.input["*args"][0] for run in notes) == [f"note {place}" for place in places]


def _all_succeeded(client: Client, ids: list[str]) -> bool:
    runs = client.runs.list.sync(limit=200).runs
    return {run.id for run in runs} >= set(ids) and all(run.state == "succeeded" for run in runs)


def _worker(url: str, folder: Path, moment: str, number: int) -> subprocess.Popen[bytes]:
    with (folder / f"said-{number}").open("wb") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.integrations.django.doomed", url, moment],
            cwd=PROJECT,
            env={**os.environ, "PYTHONPATH": f"{PROJECT}"},
            stdout=said,
            stderr=said,
        )


def test_a_busy_database_is_a_reason_to_try_again() -> None:
    from mainspring.errors import StoreUnavailable  # noqa: PLC0415
    from mainspring.integrations.django import atomic  # noqa: PLC0415

    error = OperationalError("the server has gone")
    assert isinstance(atomic._judged(error, None), StoreUnavailable)
    assert atomic._judged(error, object()) is error
