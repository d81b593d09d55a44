"""The factory of the parts of an app that have threads. A simulator replaces it with parts without threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.app.waiting.in_process import Endings

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from mainspring.app.settings import Settings
    from mainspring.model.clock import Clock
    from mainspring.services.heartbeat import Heartbeat
    from mainspring.store.committer import Committer
    from mainspring.store.protocol import Store


class Parts:
    """Makes the store and the parts that have threads. Modules are loaded on first use, so that importing an app is fast."""

    def store(self, url: str, settings: Settings) -> Store:
        from mainspring.store.open import open_store  # noqa: PLC0415

        return open_store(url, settings)

    def committer(self, store: Store, clock: Clock) -> Committer:
        from mainspring.store.committer import Committer  # noqa: PLC0415

        return Committer(store.apply, clock, store.at_once)

    def endings(self, store: Store, settings: Settings) -> Endings:
        return Endings(store.endings, settings.poll, lambda: bool(store.workers()))

    def heartbeat(self, **parts: Any) -> Heartbeat:
        from mainspring.services.heartbeat import Heartbeat  # noqa: PLC0415

        return Heartbeat(**parts)

    def loop_watch(self, loop: asyncio.AbstractEventLoop, thread: int) -> Callable[[], None]:
        """Begin to watch a worker's loop for code that blocks it. Return the function that ends the watch."""
        from mainspring.app.blocked_loop import LoopWatch  # noqa: PLC0415

        return LoopWatch(loop, thread).start()
