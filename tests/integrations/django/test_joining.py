"""What is started inside Django's transactions is part of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from django.test import override_settings

from mainspring.errors import InTransaction
from mainspring.integrations.django.conf import configuration
from tests.integrations.django import configured

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mainspring.integrations.django import DjangoApp


@pytest.fixture
def tasks(bank: DjangoApp) -> Any:
    from tests.integrations.django.bank import tasks  # noqa: PLC0415

    return tasks


def _runs(app: DjangoApp) -> list[str]:
    return sorted(run.workflow.rpartition(".")[2] for run in app.runs.list.sync().runs)


def _texts() -> list[str]:
    from tests.integrations.django.bank.models import Entry  # noqa: PLC0415

    return sorted(Entry.objects.values_list("text", flat=True))


class _Undo(Exception):
    """Rolls a transaction back."""


def test_a_task_is_enqueued_if_and_only_if_the_transaction_commits(bank: DjangoApp, tasks: Any) -> None:
    from tests.integrations.django.bank.models import Entry  # noqa: PLC0415

    with pytest.raises(_Undo), transaction.atomic():
        Entry.objects.create(text="undone")
        tasks.note.enqueue("undone, too")
        raise _Undo
    assert (_runs(bank), _texts()) == ([], [])
    with transaction.atomic():
        Entry.objects.create(text="done")
        result = tasks.note.enqueue("done, too")
        assert _runs(bank) == []
    with bank:
        bank.handle(result.id).result.sync()
    assert _texts() == ["done", "done, too"]


def test_a_savepoint_that_is_rolled_back_takes_its_tasks_with_it(bank: DjangoApp, tasks: Any) -> None:
    with transaction.atomic():
        tasks.add.enqueue(1, 2)
        with pytest.raises(_Undo), transaction.atomic():
            tasks.note.enqueue("undone")
            raise _Undo
    assert _runs(bank) == ["add"]


def test_workflows_and_delays_are_part_of_the_transaction_too(bank: DjangoApp, tasks: Any) -> None:
    def started() -> None:
        tasks.transfer.start.sync("a", 1)
        tasks.transfer.options(id="b").start.sync("b", 1)
        bank.run_after.sync("1h", tasks.book.bind("c", 1))
        bank.start_many.sync([tasks.count.bind(), tasks.count.bind()])
        with bank.joined():
            bank.handle("b").cancel.sync()

    with pytest.raises(_Undo), transaction.atomic():
        started()
        raise _Undo
    assert _runs(bank) == []
    with transaction.atomic():
        started()
    assert _runs(bank) == ["book", "count", "count", "transfer", "transfer"]
    assert bank.runs.get.sync("b").state == "cancelled"


def test_a_coroutine_joins_the_transaction_of_the_code_that_waits_for_it(bank: DjangoApp, tasks: Any) -> None:
    with pytest.raises(_Undo), transaction.atomic():
        async_to_sync(tasks.add.aenqueue)(1, 2)
        raise _Undo
    assert _runs(bank) == []
    with transaction.atomic():
        async_to_sync(tasks.add.aenqueue)(1, 2)
    assert _runs(bank) == ["add"]


def test_a_task_that_enqueues_in_a_transaction_does_so_once(bank: DjangoApp, tasks: Any) -> None:
    with bank:
        result = tasks.enqueues.enqueue("it")
        bank.handle(bank.handle(result.id).result.sync()).result.sync()
    assert _texts() == ["after it", "it"]
    assert _runs(bank) == ["enqueues", "note"]
    child = next(run for run in bank.runs.list.sync().runs if run.workflow.endswith("note"))
    assert child.parent is None


def test_joining_without_a_transaction_says_what_to_open(bank: DjangoApp) -> None:
    with pytest.raises(InTransaction, match=r"transaction\.atomic"):
        bank.joined()


# -- databases that differ ---------------------------------------------------------------------------------------------
@pytest.fixture
def other(bank: DjangoApp, tmp_path: Path) -> Iterator[str]:
    """A second database of Django's."""
    configured.use(f"sqlite:///{tmp_path / 'other.db'}", "other")
    yield "other"
    configured.forget("other")


def test_a_transaction_of_another_database_is_not_passed_over_in_silence(
    bank: DjangoApp, tasks: Any, other: str
) -> None:
    with transaction.atomic(using=other):
        with pytest.raises(InTransaction, match="the database other"):
            tasks.add.enqueue(1, 2)
        with pytest.raises(InTransaction, match="on_commit"):
            tasks.transfer.start.sync("a", 1)
        with transaction.atomic():
            tasks.add.enqueue(1, 2)
    assert _runs(bank) == ["add"]


def test_immediate_starts_at_once_whatever_becomes_of_the_transaction(
    bank: DjangoApp, tasks: Any, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with override_settings(MAINSPRING={"ATOMIC": "immediate"}):
        monkeypatch.setattr(bank, "configuration", configuration())
    with pytest.raises(_Undo), transaction.atomic(using=other):
        tasks.add.enqueue(1, 2)
        tasks.transfer.start.sync("a", 1)
        raise _Undo
    assert _runs(bank) == ["add", "transfer"]


def test_on_commit_starts_after_the_commit(
    bank: DjangoApp, tasks: Any, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with override_settings(MAINSPRING={"ATOMIC": "on_commit"}):
        monkeypatch.setattr(bank, "configuration", configuration())
    with pytest.raises(_Undo), transaction.atomic(using=other):
        tasks.add.enqueue(1, 2)
        raise _Undo
    assert _runs(bank) == []
    with transaction.atomic(using=other):
        result = tasks.add.enqueue(1, 2)
        assert _runs(bank) == []
        with pytest.raises(InTransaction, match="on_commit"):
            tasks.transfer.start.sync("a", 1)
    assert [run.id for run in bank.runs.list.sync().runs] == [result.id]
