"""Queries and actions of operators on queues."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import asdict, replace

from mainspring.errors import InvalidInput, NotFound
from mainspring.model.clock import SECOND, to_datetime
from mainspring.model.given import check_name, check_text, check_whole, explained, short
from mainspring.model.queues import LONGEST_NAME, Limits, Queue, QueueCounts, Window
from mainspring.operations.actions import Actions, Answer
from mainspring.recurrence.durations import parse_duration

if TYPE_CHECKING:
    from mainspring.model.clock import Clock
    from mainspring.store.verbs.queues import Queues as StoredQueues

QUEUE_ACTIONS = Actions("queues")


@explained()
@dataclass(frozen=True, slots=True, init=False)
class Rate:
    """At most `limit` starts in any interval of length `per`: `Rate(100, per="1m")`. Raises `InvalidInput` for other values."""

    limit: int
    per: timedelta

    def __init__(self, limit: int, per: timedelta | float | str = "1s") -> None:
        length = parse_duration(per)
        check_whole("Rate: limit", limit, 1)
        if length < timedelta(milliseconds=1):
            raise InvalidInput(f"Rate: per is a length of time, at least a millisecond, not {per!r}")
        object.__setattr__(self, "limit", limit)
        object.__setattr__(self, "per", length)

    @classmethod
    def read(cls, text: str) -> Rate:
        """Parse a rate such as `100/1m`. Raises `InvalidInput`."""
        count, slash, per = text.partition("/")
        if not slash or not count.strip().isdigit():
            raise InvalidInput(f"a rate is a number, a slash and a length of time, such as 100/1m, not {text!r}")
        return cls(int(count), per.strip())

    def __str__(self) -> str:
        return f"{self.limit}/{self.per.total_seconds():g}s"


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How many runs of a queue may be under way, and how many may begin. None: no limit."""

    concurrency: int | None = None
    worker_concurrency: int | None = None
    rate: Rate | None = None
    partition_concurrency: int | None = None
    partition_worker_concurrency: int | None = None
    partition_rate: Rate | None = None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """The runs of one partition of a queue."""

    ready: int
    scheduled: int
    under_way: int
    limits: QueueLimits | None
    """The limits of this partition, if they differ from those of the queue."""


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue with its limits and counts. `exists` is False for a queue that was not declared and in which runs wait."""

    name: str
    exists: bool
    paused: bool
    limits: QueueLimits
    ready: int
    """Runs that wait to begin."""
    scheduled: int
    """Runs that are due later."""
    under_way: int
    """Runs that have begun and not ended, including those that wait."""
    created: datetime | None
    partitions: dict[str, PartitionInfo] = field(default_factory=dict[str, PartitionInfo])
    """Only in a description: by partition key, `""` for runs without one."""


class HasQueues(Protocol):
    """A store, or its part inside a user's transaction."""

    @property
    def queues(self) -> StoredQueues: ...


class Queues:
    """The verbs of queues. All of them block."""

    def __init__(self, store: HasQueues, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def list(self) -> list[QueueInfo]:
        """Return all queues by name, including those that do not exist and in which runs wait."""
        counts = self._store.queues.counts()
        made = {queue.name: queue for queue in self._store.queues.all()}
        return [_info(name, made.get(name), counts.get(name)) for name in sorted({*made, *counts})]

    def describe(self, name: str) -> QueueInfo:
        """Return one queue with the counts of its partitions. Raises `NotFound`."""
        queue = self._store.queues.get(check_name("the name of a queue", name))
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
        """Create a queue, or change the given limits, at once and for all workers.

        Other limits stay, and None removes a limit. With a partition, change the limits of that partition alone. Raises `NotFound` for a
        partition of an unknown queue, and `InvalidInput` for a wrong limit.
        """
        check_queue_name(name)
        there = self._store.queues.get(name)
        if partition is None:
            queue = there or Queue(name, created=self._clock.now())
            retry = changes.pop("retry", queue.retry)
            limits = changed(queue.limits, changes)
            self._store.queues.set(replace(queue, limits=limits, retry=retry))
        else:
            key = "" if partition == "" else check_text("partition", partition)
            if there is None:
                raise NotFound(f"there is no queue {name!r}; make it before giving a partition limits of its own")
            wrong = sorted(key for key in changes if not key.startswith("partition_"))
            if wrong:
                raise InvalidInput(
                    f"a partition has no {', '.join(wrong)}; there are the limits that begin with partition_"
                )
            own = there.exceptions.get(key, there.limits)
            alone = None if changes and all(value is None for value in changes.values()) else changed(own, changes)
            self._store.queues.set_partition(name, key, alone)
        return self.describe(name)

    @QUEUE_ACTIONS(lambda name, _: Answer(f"queue {name} is paused"))
    def pause(self, name: str) -> None:
        """Stop beginning runs of a queue until it is resumed. Runs that have begun continue."""
        self._pause(name, paused=True)

    @QUEUE_ACTIONS(lambda name, _: Answer(f"queue {name} is resumed"))
    def resume(self, name: str) -> None:
        """Begin runs of a paused queue again."""
        self._pause(name, paused=False)

    def _pause(self, name: str, *, paused: bool) -> None:
        if not self._store.queues.pause(check_name("the name of a queue", name), paused=paused):
            raise NotFound(f"there is no queue {name!r}")

    @QUEUE_ACTIONS(lambda name, _: Answer(f"queue {name} is deleted", {"deleted": True}), role="admin")
    def delete(self, name: str, *, missing_ok: bool = False) -> bool:
        """Delete a queue. Its runs that have not begun wait until a queue of that name exists again."""
        gone = self._store.queues.delete(check_name("the name of a queue", name))
        if not gone and not missing_ok:
            raise NotFound(f"there is no queue {name!r}")
        return gone


def check_queue_name(name: object) -> str:
    """Return the name if a queue may have it. Raises `InvalidInput`."""
    if (
        not isinstance(name, str)
        or not name.strip()
        or len(name) > LONGEST_NAME
        or not name.isprintable()
        or "," in name
    ):
        raise InvalidInput(
            f"a queue's name has 1 to {LONGEST_NAME} printable characters, none of them a comma, not {short(name)}"
        )
    return name


def changed(limits: Limits, changes: dict[str, Any]) -> Limits:
    """Return limits with some of them changed. Raises `InvalidInput` for a wrong value."""
    values: dict[str, Any] = {}
    for name, value in changes.items():
        if name.endswith("rate"):
            if value is not None and not isinstance(value, Rate):
                raise InvalidInput(f"{name} is a Rate, such as Rate(100, per='1m'), not {value!r}")
            values[name] = None if value is None else Window(value.limit, round(value.per.total_seconds() * SECOND))
        else:
            values[name] = None if value is None else check_whole(name, value, 1)
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
    values: dict[str, Any] = asdict(limits)
    rates: dict[str, Any] = {name: _rate(value) for name, value in values.items() if isinstance(value, Window)}
    return QueueLimits(**{**values, **rates})


def _rate(window: Window) -> Rate:
    return Rate(window.limit, timedelta(microseconds=window.per))
