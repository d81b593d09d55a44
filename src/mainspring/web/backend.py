"""Calls operations for the pages of a dashboard on threads, because they block."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

from mainspring.app.client_api import runtime_of
from mainspring.errors import StoreReplaced
from mainspring.operations.connect import Operations, missing_file
from mainspring.operations.metrics import Family
from mainspring.web.views import Scene

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.app.app import App
    from mainspring.app.client import Client
    from mainspring.app.runtime import Connection
    from mainspring.store.committer import Committer
    from mainspring.web.redaction import Redactor

R = TypeVar("R")


class Backend:
    """Calls operations for the pages of one dashboard."""

    def __init__(self, source: App | Client, redactor: Redactor) -> None:
        self.runtime = runtime_of(source)
        self._redactor = redactor
        self._committer: Committer | None = None
        self._leaving = threading.Lock()

    async def call(self, question: Callable[[Scene], R]) -> R:
        """Call `work`, which blocks. The first call connects to the database.

        A database file that was replaced is opened again, unless this process is a worker, which owns runs of the old file.
        """
        connection = await self.runtime.connected()
        try:
            return await self._call(connection, question)
        except StoreReplaced:
            if self.runtime.engine is not None or missing_file(self.runtime.url) is not None:
                raise
            await self.runtime.in_thread(self._leave, connection)
            return await self._call(await self.runtime.connected(), question)

    async def _call(self, connection: Connection, question: Callable[[Scene], R]) -> R:
        self._committer = connection.committer
        runtime = self.runtime
        scene = Scene(Operations(connection.store, runtime.clock, runtime.ids), self._redactor)
        return await runtime.in_thread(question, scene)

    def _leave(self, connection: Connection) -> None:
        """Disconnect, unless another thread has done so and connected again."""
        with self._leaving:
            if self.runtime.connection() is connection:
                self.runtime.disconnect()

    def own_figures(self) -> list[Family]:
        """Return figures of this process: how many writes its commits have batched."""
        batches = Family("mainspring_commit_batches", "counter", "Commits that this process has made.")
        writes = Family("mainspring_commit_writes", "counter", "Writes that these commits have taken together.")
        if self._committer is not None:
            batches.add(self._committer.batches, "_total")
            writes.add(self._committer.committed, "_total")
        return [batches, writes]
