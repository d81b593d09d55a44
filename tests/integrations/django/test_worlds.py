"""Tests of a project with virtual time."""

from __future__ import annotations

import unittest
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction

from mainspring.testing import Fake
from tests.integrations.django import configured

if TYPE_CHECKING:
    from mainspring.integrations.django import DjangoApp


@pytest.fixture
def tasks(bank: DjangoApp) -> Any:
    from tests.integrations.django.bank import tasks  # noqa: PLC0415

    return tasks


def test_a_day_takes_no_time(bank: DjangoApp, tasks: Any) -> None:
    from mainspring.integrations.django.testing import world  # noqa: PLC0415
    from tests.integrations.django.bank.models import Entry  # noqa: PLC0415

    with world(at="2030-01-01T00:00Z") as w:
        with transaction.atomic():
            run = tasks.transfer.start.sync("a", 5)
            later = tasks.note.using(run_after=w.now + timedelta(hours=30)).enqueue("later")
        w.drain()
        assert bank.runs.get.sync(run.id).state == "waiting"
        w.advance("25h")
        assert run.result.sync()["before"] == 0
        later.refresh()
        assert str(later.status) == "READY"
        w.advance_to(datetime(2030, 1, 2, 7, tzinfo=UTC))
        later.refresh()
        assert (str(later.status), later.started_at) == ("SUCCESSFUL", datetime(2030, 1, 2, 6, tzinfo=UTC))
        assert later.enqueued_at == datetime(2030, 1, 1, tzinfo=UTC)
    assert sorted(Entry.objects.values_list("text", flat=True)) == ["a", "booked a", "later"]


def test_tasks_can_be_replaced_and_a_world_begins_without_earlier_runs(bank: DjangoApp, tasks: Any) -> None:
    from mainspring.integrations.django.testing import world  # noqa: PLC0415

    mail = Fake("sent")
    with world() as w, w.replace(tasks.note, mail):
        assert bank.handle(tasks.note.enqueue("hello").id).result.sync() == "sent"
        tasks.transfer.start.sync("never ends", 1)
        w.drain()
    assert mail.arguments[0] == (("hello",), {})
    with world():
        assert bank.runs.list.sync().runs == []


def test_the_test_case_has_a_world_for_each_test(bank: DjangoApp, tasks: Any) -> None:
    from mainspring.integrations.django.testing import WorldTestCase  # noqa: PLC0415
    from tests.integrations.django.bank.models import Entry  # noqa: PLC0415

    class Cases(WorldTestCase):
        at = "2030-01-01T00:00Z"

        def test_one(self) -> None:
            tasks.note.using(run_after=self.world.now + timedelta(days=3)).enqueue("one")
            self.world.advance("4d")
            self.assertEqual(Entry.objects.get().text, "one")  # noqa: PT009

        test_two = test_one

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Cases).run(result)
    assert (result.testsRun, result.errors, result.failures) == (2, [], [])


def test_a_test_database_in_memory_is_refused() -> None:
    from mainspring.integrations.django.testing import world  # noqa: PLC0415

    configured.use("sqlite:///:memory:")
    with pytest.raises(ImproperlyConfigured, match="name a file"), world():
        pass
