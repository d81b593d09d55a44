"""A fleet on a fresh database, and this process as its client: it starts runs and asks about them, and executes none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mainspring import Settings
from mainspring.store.open import open_store
from tests.fleet import apps
from tests.support.processes import Fleet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mainspring import App
    from mainspring.store.protocol import Store


@pytest.fixture
def lease() -> float:
    """Short, so that the dead are soon found."""
    return 0.6


@pytest.fixture
def fleet(tmp_path: Path, store_url: str, lease: float) -> Iterator[Fleet]:
    """No polling to speak of: what must be noticed is told."""
    with Fleet(tmp_path, store_url, lease=lease, poll=60) as made:
        yield made


@pytest.fixture
def client(store_url: str) -> Iterator[App]:
    """`apps.app` in this process, connected to the fleet's database, not entered."""
    yield from connected(store_url)


def connected(url: str) -> Iterator[App]:
    runtime = apps.app._runtime
    runtime.url, runtime.settings = url, Settings(poll=60, work=False)
    yield apps.app
    apps.app.close()


@pytest.fixture
def store(client: App, store_url: str) -> Iterator[Store]:
    """The bare store, to look at rows."""
    opened = open_store(store_url, Settings())
    opened.open()
    yield opened
    opened.close()
