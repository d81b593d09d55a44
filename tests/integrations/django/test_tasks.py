"""The backend of Django's tasks, on both databases."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.utils import timezone

from mainspring.errors import MainspringError
from mainspring.integrations.django.compat import (
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
    task_finished,
    task_started,
)
from mainspring.integrations.django.results import HISTORY
from tests.integrations.django.decorator import default_task_backend
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainspring.integrations.django import DjangoApp
    from mainspring.integrations.django.compat import AnyResult


@pytest.fixture
def tasks(bank: DjangoApp) -> Any:
    from tests.integrations.django.bank import tasks  # noqa: PLC0415

    return tasks


def _ended(app: DjangoApp, result: AnyResult) -> AnyResult:
    """The result, once the task is over."""
    try:
        app.handle(result.id).result.sync(timeout=60)
    except TimeoutError:
        raise
    except BaseException:  # noqa: BLE001  (how it ended is in the result)
        pass
    result.refresh()
    return result


def test_a_task_is_executed_by_a_worker_and_its_result_is_read_anywhere(bank: DjangoApp, tasks: Any) -> None:
    before = timezone.now()
    result = tasks.add.enqueue(2, b=3)
    assert (result.status, result.attempts, result.is_finished) == (TaskResultStatus.READY, 0, False)
    assert (result.args, result.kwargs) == ([2], {"b": 3})
    assert default_task_backend.get_result(result.id) == result
    with bank:
        _ended(bank, result)
    assert (result.status, result.return_value, result.attempts) == (TaskResultStatus.SUCCESSFUL, 5, 1)
    assert result.errors == []
    (worker,) = result.worker_ids
    assert worker
    times = [before, result.enqueued_at, result.started_at, result.finished_at]
    assert times == sorted(times)
    assert result.last_attempted_at == result.started_at
    assert tasks.add.get_result(result.id) == result


def test_a_coroutine_is_a_task_too(bank: DjangoApp, tasks: Any) -> None:
    async def enqueued() -> AnyResult:
        found: AnyResult = await tasks.aadd.aenqueue(2, 3)
        assert await tasks.aadd.aget_result(found.id) == found
        return found

    result = asyncio.run(enqueued())
    with bank:
        assert _ended(bank, result).return_value == 5
    assert result.attempts == 1


@pytest.mark.parametrize(
    ("name", "args", "path", "last"),
    [
        ("fail", ["no money"], "tests.integrations.django.bank.tasks.Broken", "Broken: no money\n"),
        ("leave", [], "builtins.SystemExit", "SystemExit: leaving\n"),
        ("unreadable", [], "builtins.TypeError", "Unsupported type: <class 'object'>\n"),
    ],
)
def test_a_task_that_fails_says_how(
    bank: DjangoApp, tasks: Any, name: str, args: list[str], path: str, last: str
) -> None:
    with bank:
        result = _ended(bank, getattr(tasks, name).enqueue(*args))
    assert (result.status, result.attempts, result.is_finished) == (TaskResultStatus.FAILED, 1, True)
    (error,) = result.errors
    assert error.exception_class_path == path
    assert error.traceback.startswith("Traceback (most recent call last):\n")
    assert error.traceback.endswith(last)
    assert issubclass(error.exception_class, BaseException)
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value


def test_a_context_knows_its_task_and_its_attempt(bank: DjangoApp, tasks: Any) -> None:
    with bank:
        result = _ended(bank, tasks.who.enqueue())
        assert result.return_value == {"id": result.id, "attempt": 1, "status": "RUNNING", "args": []}


def test_a_queue_retries_a_task_and_all_attempts_are_in_its_result(bank: DjangoApp, tasks: Any) -> None:
    with bank:
        result = _ended(bank, tasks.third_time.enqueue())
    assert (result.status, result.return_value, result.attempts) == (TaskResultStatus.SUCCESSFUL, "attempt 3", 3)
    assert [error.traceback.splitlines()[-1].rpartition(": ")[2] for error in result.errors] == [
        "attempt 1",
        "attempt 2",
    ]
    assert len(set(result.worker_ids)) == 1
    assert result.last_attempted_at is not None
    assert result.started_at is not None
    assert result.last_attempted_at > result.started_at


def test_a_task_of_its_own_is_retried_and_limited_in_time(bank: DjangoApp, tasks: Any) -> None:
    with bank:
        result = _ended(bank, tasks.twice.enqueue())
        assert (result.status, result.attempts, len(result.errors)) == (TaskResultStatus.FAILED, 2, 2)
        assert bank.runs.get.sync(result.id).timeout == 600


def test_higher_priorities_come_first(bank: DjangoApp, tasks: Any) -> None:
    for name, priority in (("low", -100), ("normal", 0), ("high", 100), ("above", 1)):
        tasks.slow.using(priority=priority).enqueue(name)
    with bank:
        bank.drain.sync()
    assert tasks.order == ["high", "above", "normal", "low"]
    info = bank.runs.list.sync(workflow=tasks.slow.module_path).runs
    assert sorted(each.priority for each in info) == [-100, -1, 0, 100]


def test_a_task_waits_for_its_time(bank: DjangoApp, tasks: Any) -> None:
    later = timezone.now() + timedelta(hours=1)
    result = tasks.add.using(run_after=later).enqueue(1, 2)
    with bank:
        bank.drain.sync()
        result.refresh()
        assert result.status == TaskResultStatus.READY
        assert bank.runs.get.sync(result.id).due == later
    again = default_task_backend.get_result(result.id)
    assert again.task.run_after == later
    assert again == result


def test_a_queue_that_only_a_call_names_is_made_where_any_is_valid(bank: DjangoApp, tasks: Any) -> None:
    task = tasks.add.using(backend="any", queue_name="only-here")
    with bank:
        result = _ended(bank, task.enqueue(1, 2))
    assert (result.return_value, result.backend, result.task.queue_name) == (3, "any", "only-here")
    with pytest.raises(InvalidTask, match="only-there"):
        tasks.add.using(queue_name="only-there")


def test_what_is_no_task_has_no_result(bank: DjangoApp, tasks: Any) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        default_task_backend.get_result("nothing")
    run = tasks.enqueue_in_body.start.sync()
    with pytest.raises(TaskResultDoesNotExist):
        default_task_backend.get_result(run.id)


def test_blocking_a_loop_is_refused_and_the_coroutine_is_named(bank: DjangoApp, tasks: Any) -> None:
    async def wrong() -> None:
        with pytest.raises(SynchronousOnlyOperation, match="aenqueue"):
            tasks.add.enqueue(1, 2)
        with pytest.raises(SynchronousOnlyOperation, match="aget_result"):
            default_task_backend.get_result("any")

    asyncio.run(wrong())


def test_a_cancelled_task_has_failed_and_says_why(bank: DjangoApp, tasks: Any) -> None:
    result = tasks.add.enqueue(1, 2)
    bank.handle(result.id).cancel.sync(reason="not needed")
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert [error.traceback for error in result.errors] == ["not needed\n"]
    assert issubclass(result.errors[0].exception_class, MainspringError)


def test_a_task_that_is_enqueued_in_a_workflow_is_enqueued_once(bank: DjangoApp, tasks: Any) -> None:
    with bank:
        for workflow in (tasks.enqueue_in_body, tasks.aenqueue_in_body):
            run = workflow.start.sync()
            assert bank.handle(run.result.sync()).result.sync() == 5
            assert [step.kind for step in bank.runs.steps.sync(run.id)] == ["start"]


@pytest.fixture
def said() -> Iterator[list[tuple[str, str, str]]]:
    """What Django's signals say: which, of which task, and its status."""
    arrived: list[tuple[str, str, str]] = []
    signals = {"enqueued": task_enqueued, "started": task_started, "finished": task_finished}
    receivers: list[Any] = []
    for name, signal in signals.items():

        def notify(task_result: AnyResult, name: str = name, **_: Any) -> None:
            arrived.append((name, task_result.task.name, str(task_result.status)))

        receivers.append(notify)
        signal.connect(notify)
    yield arrived
    for signal, notify in zip(signals.values(), receivers, strict=True):
        signal.disconnect(notify)


def test_signals_are_sent_and_failures_are_logged_with_their_exception(
    bank: DjangoApp, tasks: Any, said: list[tuple[str, str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with bank:
        _ended(bank, tasks.add.enqueue(1, 2))
        _ended(bank, tasks.fail.enqueue("oh"))
        _ended(bank, tasks.third_time.enqueue())
        eventually(lambda: len(said) == 11, "all signals")
    assert [one for one in said if one[1] == "add"] == [
        ("enqueued", "add", "READY"),
        ("started", "add", "RUNNING"),
        ("finished", "add", "SUCCESSFUL"),
    ]
    assert [one for one in said if one[1] == "fail"][2] == ("finished", "fail", "FAILED")
    assert [one[0] for one in said if one[1] == "third_time"] == ["enqueued", *["started"] * 3, "finished"]
    (logged,) = [each for each in caplog.records if each.levelno == logging.ERROR and "FAILED" in each.getMessage()]
    assert logged.exc_info is not None
    assert str(logged.exc_info[1]) == "oh"


def test_the_history_is_one_event_of_the_run(bank: DjangoApp, tasks: Any) -> None:
    with bank:
        result = _ended(bank, tasks.add.enqueue(1, 2))
        assert list(bank.get_events.sync(result.id)) == [HISTORY]


def test_a_queue_that_only_the_settings_name_is_not_warned_of_before_a_worker_has_started(
    bank: DjangoApp, tasks: Any, caplog: pytest.LogCaptureFixture
) -> None:
    tasks.add.enqueue(1, 2)
    assert "no worker begins" not in caplog.text
