"""Find the sessions and processes that hold the locks of the library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.errors import MainspringError
from mainspring.store.open import open_store

if TYPE_CHECKING:
    from mainspring.store.open import StoreSettings


def blockers(url: str, settings: StoreSettings, *, everywhere: bool = False) -> list[str]:
    """Return descriptions of the sessions or processes that block this process. With `everywhere`: that block any process of the library.

    Returns an empty list if they cannot be found out, because the caller reports another problem.
    """
    try:
        store = open_store(url, settings)
    except MainspringError:
        return []
    try:
        return store.blockers(everywhere=everywhere)
    except MainspringError:
        return []
    finally:
        store.close()
