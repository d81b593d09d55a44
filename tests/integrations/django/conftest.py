"""A Django project on a fresh database of each kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("django")

from django.core.management import call_command
from django.db import connections

from tests.integrations.django import configured

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainspring.integrations.django import DjangoApp

configured.configure()


@pytest.fixture
def bank(store_url: str) -> Iterator[DjangoApp]:
    """The app of the project, not entered, on a database with all tables."""
    from mainspring.integrations.django.project import get_app  # noqa: PLC0415
    from tests.integrations.django.bank import tasks  # noqa: PLC0415  (Django is configured now)

    configured.use(store_url)
    app = get_app()
    app.closes_connections = True
    call_command("migrate", verbosity=0, run_syncdb=True)
    tasks.order.clear()
    yield app
    app.close()
    connections.close_all()
    configured.use("sqlite:///:memory:")
