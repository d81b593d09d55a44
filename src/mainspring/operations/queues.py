"""What an operator may see of queues and do to them, each verb once: its sentence and its answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from mainspring.errors import InvalidInput, NotFound
from mainspring.model.clock import SECOND, to_datetime
from mainspring.model.queues import Limits, Queue, Window
from mainspring.operations.actions import Actions, Answer
from mainspring.recurrence.durations import parse_duration
from mainspring.store.queues import QueueCounts

if TYPE_CHECKING:
    from mainspring.model.clock import Clock
    from mainspring.store.queues import QueueStore

_LONGEST_NAME = 200
QUEUE_ACTIONS = Actions("queues")


@dataclass(frozen=True, slots=True, init=False)
class Rate:
    """At most `limit` starts in any stretch of time as long as `per`: `Rate(100, per="1m")`."""

    limit: int
    per: timedelta

    def __init__(self, limit: int, per: timedelta | float | str = "1s") -> None:
        length = parse_duration(per)
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"Rate: limit is a whole number from 1, not {limit!r}")
        if length < timedelta(milliseconds=1):
            raise InvalidInput(f"Rate: per is a length of time, at least a millisecond, not {per!r}")
        object.__setattr__(self, "limit", limit)
        object.__setattr__(self, "per", length)

    @classmethod
    def read(cls, text: str) -> Rate:
        """From "100/1m"."""
        count, slash, per = text.partition("/")
        if not slash or not count.strip().isdigit():
            raise InvalidInput(f"a rate is a number, a slash and a length of time, such as 100/1m, not {text!r}")
        return cls(int(count), per.strip())

    def __str__(self) -> str:
        return f"{self.limit}/{self.per.total_seconds():g}s"


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How many runs may be under way, and how many may begin. None: no limit."""

    concurrency: int | None = None
    worker_concurrency: int | None = None
    rate: Rate | None = None
    partition_concurrency: int | None = None
    partition_worker_concurrency: int | None = None
    partition_rate: Rate | None = None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """What is in one partition of a queue."""

    ready: int
    scheduled: int
    under_way: int
    limits: QueueLimits | None
    """Its own, if they differ from those of the queue's other partitions."""


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue as people look at it. `exists` is False for one that runs are waiting for and that was not declared."""

    name: str
    exists: bool
    paused: bool
    limits: QueueLimits
    ready: int
    """Runs that wait to begin."""
    scheduled: int
    """Runs that are due later."""
    under_way: int
    """Runs that have begun and not ended, also those that wait for something."""
    created: datetime | None
    partitions: dict[str, PartitionInfo] = field(default_factory=dict[str, PartitionInfo])
    """Only in a description: by key, "" for runs without one."""


class HasQueues(Protocol):
    """A store, or the part of it that works inside a user's transaction."""

    @property
    def queues(self) -> QueueStore: ...


class Queues:
    """The verbs. All of them block."""

    def __init__(self, store: HasQueues, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def list(self) -> list[QueueInfo]:
        """All queues by name, also those that runs wait for and that do not exist."""
        counts = self._store.queues.counts()
        made = {queue.name: queue for queue in self._store.queues.all()}
        return [_info(name, made.get(name), counts.get(name)) for name in sorted({*made, *counts})]

    def describe(self, name: str) -> QueueInfo:
        """One queue with what is in each of its partitions."""
        queue = self._store.queues.get(name)
        inside = self._store.queues.partitions(name)
        if queue is None and not inside:
            raise NotFound(f"there is no queue {name!r}, and no run waits for one")
        found = _info(name, queue, _sum(inside))
        exceptions = queue.exceptions if queue is not None else {}
        for key in sorted({*inside, *exceptions}):
            there = inside.get(key, QueueCounts())
            own = _limits(exceptions[key]) if key in exceptions else None
            found.partitions[key] = PartitionInfo(there.ready, there.scheduled, there.under_way, own)
        return found

    @QUEUE_ACTIONS(lambda name, _: Answer(f"queue {name} has new limits"))
    def set(self, name: str, partition: str | None, changes: dict[str, Any]) -> QueueInfo:
        """Make a queue, or change what is named of it, at once and for all workers; the rest stays.

        None takes a limit away. With a partition: the limits of that one alone.
        """
        check_queue_name(name)
        there = self._store.queues.get(name)
        if partition is None:
            queue = there or Queue(name, created=self._clock.now())
            retry = changes.pop("retry", queue.retry)
            limits = changed(queue.limits, changes)
            self._store.queues.set(replace(queue, limits=limits, retry=retry))
        else:
            if there is None:
                raise NotFound(f"there is no queue {name!r}; make it before giving a partition limits of its own")
            wrong = sorted(key for key in changes if not key.startswith("partition_"))
            if wrong:
                raise InvalidInput(
                    f"a partition has no {', '.join(wrong)}; there are the limits that begin with partition_"
                )
            own = there.exceptions.get(partition, there.limits)
            alone = None if changes and all(value is None for value in changes.values()) else changed(own, changes)
            self._store.queues.set_partition(name, partition, alone)
        return self.describe(name)

    @QUEUE_ACTIONS(lambda name, _: Answer(f"queue {name} is paused"))
    def pause(self, name: str) -> None:
        """Begin no more runs of a queue until it is resumed. Those that have begun go on."""
        self._pause(name, paused=True)

    @QUEUE_ACTIONS(lambda name, _: Answer(f"queue {name} goes on"))
    def resume(self, name: str) -> None:
        """Begin runs of a queue again."""
        self._pause(name, paused=False)

    def _pause(self, name: str, *, paused: bool) -> None:
        if not self._store.queues.pause(name, paused=paused):
            raise NotFound(f"there is no queue {name!r}")

    @QUEUE_ACTIONS(lambda name, _: Answer(f"queue {name} is deleted", {"deleted": True}), role="admin")
    def delete(self, name: str, *, missing_ok: bool = False) -> bool:
        """Delete a queue. Its runs that have not begun wait until there is one of that name again."""
        gone = self._store.queues.delete(name)
        if not gone and not missing_ok:
            raise NotFound(f"there is no queue {name!r}")
        return gone


def check_queue_name(name: object) -> str:
    """The name, if a queue may have it."""
    if (
        not isinstance(name, str)
        or not name.strip()
        or len(name) > _LONGEST_NAME
        or not name.isprintable()
        or "," in name
    ):
        raise InvalidInput(
            f"a queue's name has 1 to {_LONGEST_NAME} printable characters, none of them a comma, not {name!r}"
        )
    return name


def changed(limits: Limits, changes: dict[str, Any]) -> Limits:
    """Limits with some of them changed, checked."""
    values: dict[str, Any] = {}
    for name, value in changes.items():
        if name.endswith("rate"):
            if value is not None and not isinstance(value, Rate):
                raise InvalidInput(f"{name} is a Rate, such as Rate(100, per='1m'), not {value!r}")
            values[name] = None if value is None else Window(value.limit, round(value.per.total_seconds() * SECOND))
        elif value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
            values[name] = value
        else:
            raise InvalidInput(f"{name} is a whole number from 1, or None for no limit, not {value!r}")
    return replace(limits, **values)


def _info(name: str, queue: Queue | None, counts: QueueCounts | None) -> QueueInfo:
    counts = counts or QueueCounts()
    return QueueInfo(
        name,
        queue is not None,
        queue is not None and queue.paused,
        QueueLimits() if queue is None else _limits(queue.limits),
        counts.ready,
        counts.scheduled,
        counts.under_way,
        None if queue is None else to_datetime(queue.created),
    )


def _sum(counts: dict[str, QueueCounts]) -> QueueCounts:
    each = counts.values()
    return QueueCounts(
        sum(one.ready for one in each), sum(one.scheduled for one in each), sum(one.under_way for one in each)
    )


def _limits(limits: Limits) -> QueueLimits:
    return QueueLimits(
        limits.concurrency,
        limits.worker_concurrency,
        _rate(limits.rate),
        limits.partition_concurrency,
        limits.partition_worker_concurrency,
        _rate(limits.partition_rate),
    )


def _rate(window: Window | None) -> Rate | None:
    return None if window is None else Rate(window.limit, timedelta(microseconds=window.per))
