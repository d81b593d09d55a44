"""A log line at the start of a run that no worker would begin."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from mainspring.errors import StoreError
from mainspring.operations.unserved import why_unserved

if TYPE_CHECKING:
    from mainspring.store.protocol import Store

log = logging.getLogger("mainspring.app")

_MOST = 1_000
"""Queues and versions that are remembered at most: an app may have a queue for each of its tenants."""


class Destinations:
    """The queues and versions that runs were started with here and that this app does not have itself. Each is looked up once."""

    def __init__(self) -> None:
        self._noted: set[tuple[str | None, str | None]] = set()
        self._unchecked: dict[tuple[str | None, str | None], str] = {}

    def note(self, workflow: str, queue: str | None, version: str | None) -> None:
        """Remember where a run is started. Cheap and thread-safe; `check` looks it up."""
        place = (queue, version)
        if place != (None, None) and place not in self._noted and len(self._noted) < _MOST:
            self._noted.add(place)
            self._unchecked[place] = workflow

    def __bool__(self) -> bool:
        """Whether something was noted and not checked yet."""
        return bool(self._unchecked)

    def check(self, store: Store) -> None:
        """Warn if a queue does not exist, or if no worker has a version. Without an answer of the database there is no warning."""
        while self._unchecked:
            (queue, version), workflow = self._unchecked.popitem()
            with contextlib.suppress(StoreError):
                found = why_unserved(store, queue, version)
                if found is not None:
                    log.warning(
                        "a run of %s was started that no worker begins, because %s; %s",
                        workflow,
                        found.found,
                        found.hint,
                    )
