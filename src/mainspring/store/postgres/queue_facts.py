"""What a claim has to know of a queue on PostgreSQL: the questions, to be sent with others, and what their answers mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from mainspring.store import queues as text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainspring.model.queues import Queue
    from mainspring.store.postgres.wire import Row, Value
    from mainspring.store.queues import Recent

Asked: TypeAlias = "tuple[str, dict[str, Value]]"


class Statements(NamedTuple):
    """How a claim finds and takes what waits in queues."""

    waiting: str
    partitions: str
    unpartitioned: str
    take_shares: str


class Facts:
    """What is under way in one queue, as far as its limits ask, and the partitions in which runs wait.

    Answers are heard in the order in which the questions were given out.
    """

    def __init__(self, queue: Queue, turn: str, now: int, statements: Statements) -> None:
        self._text = statements
        self._name = queue.name
        self._turn = turn
        self._now = now
        self._counts = queue.counts_places
        self._windows = sorted(queue.windows)
        self._most = 0
        self._cut_off = True
        self.placed: dict[str, int] = {}
        self.recent: dict[int, Recent] = {}
        self.ahead = False
        """Whether starts were noted when a clock was ahead."""
        self.partitions: list[str] = []
        """In their turn: those after the one served last, the runs without one, then from the beginning."""

    def answers(self, queue: Queue) -> bool:
        """Whether this is what the limits of the queue ask for."""
        return (self._counts, self._windows) == (queue.counts_places, sorted(queue.windows))

    def of_limits(self) -> list[Asked]:
        placed: list[Asked] = [(text.COUNT_PLACED, {"queue": self._name})] if self._counts else []
        recent: list[Asked] = [
            (text.COUNT_RECENT, {"queue": self._name, "after": self._now - per}) for per in self._windows
        ]
        return placed + recent

    def hear_limits(self, answers: Iterator[list[Row]]) -> None:
        self.placed = dict(next(answers)) if self._counts else {}
        self.ahead = False
        for per in self._windows:
            rows = next(answers)
            self.recent[per] = text.recent(rows)
            self.ahead = self.ahead or text.ahead(rows, self._now)

    def knows_partitions(self, most: int) -> bool:
        """Whether the partitions are all, or at least so many of them."""
        return not self._cut_off or most <= self._most

    def of_partitions(self, most: int) -> list[Asked]:
        self._most = most
        values: dict[str, Value] = {"queue": self._name, "most": most}
        after: Asked = (self._text.partitions, values | {"after": self._turn})
        none: Asked = (self._text.unpartitioned, values)
        return [after, none, (self._text.partitions, values | {"after": ""})] if self._turn else [after, none]

    def hear_partitions(self, answers: Iterator[list[Row]]) -> None:
        after, none = next(answers), next(answers)
        first = next(answers) if self._turn else []
        self._cut_off = self._most <= max(len(after), len(first))
        self.partitions = [*(row[0] for row in after), *([""] if none else []), *(row[0] for row in first)]
