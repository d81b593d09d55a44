"""Programs around small parts of a process that have a thread of their own. Small enough to be searched for everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.app import waits
from mainspring.app.waits import Endings
from mainspring.model.runs import Ending
from mainspring.model.states import State
from tests.interleavings.explore import Case, files_of
from tests.interleavings.primitives import Thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mainspring.errors import MainspringError
    from tests.interleavings.scheduler import Scheduler

_NEVER = 1_000_000.0
_END = Ending("a", State.SUCCEEDED, None, None, None)


class _Waiters:
    """Waiters for the end of run `a`, and the store that knows of it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._ended = False
        self.endings = Endings(self._ask, _NEVER)
        self.told: list[Ending | MainspringError | None] = []

    def _ask(self, ids: Iterable[str]) -> dict[str, Ending | None]:
        self._scheduler.point("ask", "the store")
        found: dict[str, Ending | None] = {}
        found.update(dict.fromkeys(ids, _END if self._ended else None))
        self._scheduler.point("answer of", "the store")
        return found

    def wait(self) -> None:
        """As `result()` waits: first subscribe, then look whether the run has ended already."""
        self.endings.watch("a", self.told.append)
        if self._ask(["a"])["a"] is not None:
            self.endings.unwatch("a", self.told.append)
            self.told.append(_END)

    def end(self) -> None:
        """The run ends, and the store sends a signal."""
        self._ended = True
        self.endings.look(frozenset({"a"}))

    def settle(self) -> None:
        """The run ends in this process."""
        self._ended = True
        self.endings.resolve("a", _END)


def _together(scheduler: Scheduler, *work: Callable[[], None]) -> None:
    threads = [Thread(scheduler, one, one.__name__) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _all_are_notified(scheduler: Scheduler, end: str) -> None:
    waiters = _Waiters(scheduler)
    _together(scheduler, waiters.wait, waiters.wait, getattr(waiters, end))
    scheduler.wait("wait for", "the end of the run", lambda: len(waiters.told) >= 2)
    waiters.endings.close()
    assert set(waiters.told) == {_END}


def _wait_against_close(scheduler: Scheduler) -> None:
    waiters = _Waiters(scheduler)
    _together(scheduler, waiters.wait, waiters.endings.close)


def _case(name: str, run: Callable[[Scheduler], None]) -> list[Case]:
    return [Case(f"part: {name}", run), Case(f"part: {name} (lines)", run, lines=files_of(waits))]


CASES = [
    *_case("the end of a run reaches all waiters", lambda scheduler: _all_are_notified(scheduler, "end")),
    *_case("an end in this process reaches all waiters", lambda scheduler: _all_are_notified(scheduler, "settle")),
]
LISTED = [*_case("waiting for an end against close", _wait_against_close)]
"""A defect that is known: `close` joins a thread that is not started yet. To be moved to `CASES` when it is mended."""
