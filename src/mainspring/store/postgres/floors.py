"""The times from which claims and the scheduler search, while a search from the beginning of an index is slow.

A claimed run leaves a dead entry in the index of ready runs, and so does a schedule that was due. While another transaction keeps an old
snapshot open, vacuum cannot remove such entries, and a search from the beginning of the index reads all of them. `Floors` remembers for
claims up to where runs were claimed: by priority, in each group of runs with the same queue, function and partition. `ScheduleFloors`
remembers for passes of the scheduler up to where schedules have acted. The next searches begin there.

Runs and schedules that become ready below a floor are found all the same. Their notification says so (`overdue` of runs, `due` of
schedules), which drops the floors. And every few seconds a search covers everything, because notifications can get lost (`FullSearches`). While
such a full search is quick, there are no floors.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any, TypeAlias

from mainspring.model.clock import CLOCK_ERROR, SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_CLOCK = SystemClock()
SLACK = 100_000
"""How far below the last claimed run a search begins, in microseconds: commits are not in the order of due times."""
_QUICK = 3_000
"""A full search that takes less, in microseconds, needs no floors."""
_PAUSE = 2.0
"""How long, in seconds, searches begin at the floors. Longer if a full search is slow: those may take a twentieth of the time."""
_SHARE = 20
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_MOST_REMEMBERED = 1_000
_MOST_GROUPS = 1_000
"""A queue with floors in more groups than that is searched from the beginning."""

Group: TypeAlias = tuple[str, str, str]
"""A queue, a function and a partition."""

PLAIN = ""
"""Stands for runs without a queue: no queue has an empty name."""


class Counted:
    """The runs that count towards the concurrency of a queue: all that began at `since` or later, and the `earlier` ones."""

    def __init__(self, since: int = 0, earlier: Iterable[str] = ()) -> None:
        self.since = since
        self.earlier = list(earlier)


class FullSearches:
    """Decides which searches are full: the first two, those after a `drop`, one every few seconds, and all while they are quick."""

    def __init__(self) -> None:
        self._due = True
        self._slow = False
        self._used = False
        self._until = 0.0

    def drop(self) -> None:
        """Make the next search a full one. Thread-safe."""
        self._due = True

    def from_floors(self, monotonic: float) -> bool:
        """Whether a search may begin at the floors."""
        if self._used and not self._due and monotonic < self._until:
            return True
        self._due = False
        return False

    def searched_all(self, took: int, monotonic: float) -> bool:
        """Note how many microseconds a full search took. Return True if floors are needed.

        One that follows a quick search may be slow by chance: the first on a new connection is, whose plans and pages are not there yet.
        """
        slow_before, self._slow = self._slow, took > _QUICK
        self._used = self._slow and slow_before
        self._until = monotonic + max(_PAUSE, _SHARE * took / 1_000_000)
        return self._used


class ScheduleFloors:
    """The times from which a pass searches for due schedules and for unprocessed ends of their runs."""

    def __init__(self) -> None:
        self._searches = FullSearches()
        self._floors = (0, 0)
        self.drop = self._searches.drop

    def begin(self) -> tuple[int, int]:
        """The times to search from: no schedule is due before the first, and no unprocessed end is before the second."""
        if not self._searches.from_floors(_CLOCK.monotonic()):
            self._floors = (0, 0)
        return self._floors

    def looked(self, due: int | None, ended: int | None, now: int, took: float) -> None:
        """Remember the first due time and the first unprocessed end, found by a search that took so many seconds."""
        if self._floors == (0, 0) and not self._searches.searched_all(int(took * 1_000_000), _CLOCK.monotonic()):
            return
        firsts = (now if each is None else min(each, now) for each in (due, ended))
        due_floor, ended_floor = (max(1, first - CLOCK_ERROR) for first in firsts)
        self._floors = (due_floor, ended_floor)


class Floors:
    """The floors of one kind of claims: those of one worker for one set of functions. Any thread may drop them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._searches = FullSearches()
        self._floors: dict[str, dict[Group, dict[int, int]]] = {}
        self._before: dict[str, dict[Group, dict[int, int]]] = {}
        self._counted: dict[str, Counted] = {}
        self._due = self._deadline = self._resumed = 0
        self.drop = self._searches.drop

    def begin(self, monotonic: float) -> bool:
        """Whether a claim may begin at the floors. If not, they are cleared."""
        with self._lock:
            if self._searches.from_floors(monotonic):
                return True
            self._before = self._floors or self._before
            self._floors, self._counted = {}, {}
            self._due = self._deadline = self._resumed = 0
            return False

    def searched_all(self, took: int, monotonic: float) -> None:
        """Note how many microseconds a full search took."""
        if not self._searches.searched_all(took, monotonic):
            self._before = {}

    # -- ready runs ------------------------------------------------------------------------------------------------------
    def empty(self, queues: Iterable[str]) -> None:
        """Restore the earlier floors of all queues but these, because no run waits in the others."""
        with self._lock:
            for queue in self._before.keys() - set(queues):
                self._floors.setdefault(queue, self._before.pop(queue))

    def taken(self, runs: Iterable[tuple[Group, int, int]]) -> None:
        """Raise the floors to the priority and due time of claimed runs. No run of their groups below them is left to claim."""
        latest: dict[tuple[Group, int], int] = {}
        for group, priority, due in runs:
            if due > latest.get((group, priority), 0):
                latest[group, priority] = due
        with self._lock:
            for (group, priority), due in latest.items():
                groups = self._floors.setdefault(group[0], {})
                floors = groups.setdefault(group, {})
                floors[priority] = max(floors.get(priority, 0), due - SLACK)
                if len(groups) > _MOST_GROUPS:
                    groups.clear()

    def ranges(self) -> str:
        """The ranges to search, as JSON: for each group ranges of the index, from a key up to a priority."""
        with self._lock:
            groups = [each for queue in self._floors.values() for each in queue.items()]
            return json.dumps([row for group, floors in groups for row in _ranges(group, floors)])

    # -- scheduled runs, deadlines, and runs to continue -----------------------------------------------------------------
    def times(self) -> dict[str, int]:
        """The floors by time: of due times of scheduled runs, of deadlines, and of due times of runs to continue.

        No run below its floor is left to process.
        """
        return {"due_floor": self._due, "deadline_floor": self._deadline, "resumed_floor": self._resumed}

    def waiting(self, due: int | None, deadline: int | None, now: int) -> None:
        """Raise the floors by time, given the first due time of runs that are still scheduled, and the first deadline."""
        if due is None or due > now:
            self._due = max(self._due, now - CLOCK_ERROR)
        self._deadline = max(self._deadline, (now if deadline is None else min(deadline, now)) - CLOCK_ERROR)

    def resumed(self, due: int) -> None:
        """Raise the floor of runs to continue: none was due before this."""
        self._resumed = max(self._resumed, due - CLOCK_ERROR)

    # -- concurrency -------------------------------------------------------------------------------------------------------
    def counted(self, queue: str, now: int) -> Counted:
        """The result of the last count. If the clock was set back, all runs are counted again."""
        found = self._counted.get(queue)
        return found if found is not None and found.since <= now else Counted()

    def count(self, queue: str, since: int, earlier: list[str]) -> None:
        """Remember that of the runs that began before `since`, only these still count towards the concurrency of a queue."""
        if len(earlier) <= _MOST_REMEMBERED:
            self._counted[queue] = Counted(since, earlier)


def _ranges(group: Group, floors: Mapping[int, int]) -> Iterable[dict[str, Any]]:
    where = dict(zip(("queue", "workflow", "partition"), group, strict=True))
    priorities = sorted(floors)
    yield {**where, "low": _LOWEST, "since": 0, "high": priorities[0] - 1}
    for priority, following in zip(priorities, [*priorities[1:], None], strict=True):
        high = _HIGHEST if following is None else following - 1
        yield {**where, "low": priority, "since": floors[priority], "high": high}
