"""An event loop without threads or real time. When it is idle, the stage decides what happens next."""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any

from mainspring.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.testing.simulation.stage import Stage


class _Idle(selectors.BaseSelector):
    """Never waits: a call to wait means that the loop is idle."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, fileobj if isinstance(fileobj, int) else fileobj.fileno(), events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout > 0:
            self._stage.idle(timeout)
        return []

    def get_map(self) -> dict[Any, selectors.SelectorKey]:
        return self._keys


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Uses the time of the stage. Calls that would run on a thread become actions, which the stage performs in its own order."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        super().__init__(_Idle(stage))
        stage.loop = self

    def time(self) -> float:
        return self._stage.time

    def end_all_tasks(self) -> None:
        """Cancel the remaining tasks, as at the end of a program."""
        for task in asyncio.all_tasks(self):
            task.cancel()
        for _ in range(10):
            self.call_soon(self.stop)
            self.run_forever()

    def _write_to_self(self) -> None:
        """Do nothing: there is no other thread that could have to wake this one."""

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        del executor
        future = self.create_future()

        def fail() -> None:
            if not future.done():
                future.set_exception(StoreUnavailable("the process is dead"))

        self._stage.add(getattr(func, "process", None), lambda: _resolve(future, func, args), fail)
        return future


def _resolve(future: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        value = func(*args)
    except Exception as error:  # noqa: BLE001  (the waiting caller gets it)
        if not future.done():
            future.set_exception(error)
    else:
        if not future.done():
            future.set_result(value)
