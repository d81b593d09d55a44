"""Who holds the locks that processes of this library wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.errors import MainspringError
from mainspring.store.open import open_store

if TYPE_CHECKING:
    from mainspring.store.open import StoreSettings


def blockers(url: str, settings: StoreSettings, *, everywhere: bool = False) -> list[str]:
    """The sessions or processes that this process waits for, in words; with `everywhere`, any process of the library.

    None if that cannot be found out now: the caller has other troubles to report.
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
