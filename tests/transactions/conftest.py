from __future__ import annotations

from typing import Any, cast

import pytest

from tests.transactions import bank


@pytest.fixture
def url(store_url: str, request: pytest.FixtureRequest) -> str:
    """A database with a ledger of the user's own. What the module's functions have `seen` before is forgotten."""
    bank.execute(store_url, bank.LEDGER)
    module = cast("Any", request).module
    getattr(module, "seen", []).clear()
    return store_url
