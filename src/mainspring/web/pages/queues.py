"""Queues: what is in them, what they let through, and changing that while workers work."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from mainspring.model.clock import to_datetime
from mainspring.model.states import LIVE
from mainspring.operations.queues import QueueInfo, QueueLimits, Rate
from mainspring.operations.run_lists import RunGlance
from mainspring.web.views import Body, Done, NoQuery, Pages, Reason, Scene

pages = Pages()
Name = Annotated[str, Meta(min_length=1, max_length=200, description="The name of a queue.")]
Count = Annotated[int, Meta(ge=0, le=1_000_000_000, description="A limit; 0 takes it away.")]
RateText = Annotated[str, Meta(max_length=40, description="Such as 100/1m; empty or 0 takes the limit away.")]


class Limits(Struct):
    """How many runs may be under way, and how many may begin. Null: no limit. Rates are written 100/60s."""

    concurrency: int | None
    worker_concurrency: int | None
    rate: str | None
    partition_concurrency: int | None
    partition_worker_concurrency: int | None
    partition_rate: str | None


class QueueRow(Struct):
    """A queue, what is in it and how long the oldest ready run has waited."""

    name: str
    exists: bool
    """False: runs name it, and nobody has made it."""
    paused: bool
    limits: Limits
    ready: int
    scheduled: int
    under_way: int
    oldest: datetime | None


class QueueList(Struct):
    """All queues, by name."""

    queues: list[QueueRow]


class QueueName(Struct):
    """Which queue."""

    name: Name


class Share(Struct):
    """What is in one partition of a queue."""

    partition: str
    ready: int
    scheduled: int
    under_way: int
    limits: Limits | None


class QueueAnswer(Struct):
    """A queue with its partitions and the latest runs in it."""

    queue: QueueRow
    runs: list[RunGlance]
    """Those that have not ended; the latest."""
    partitions: list[Share]
    more: bool
    """There are more partitions than are shown."""


class OneQueue(Body):
    """A queue to act on, and why."""

    name: Name
    reason: Reason | None = None


class Setting(OneQueue):
    """Limits to change; what is left out stays as it is.

    With a partition: those of that one alone, by the limits per partition; taking all of them away makes it one like the others.
    """

    partition: Annotated[str, Meta(max_length=600)] | None = None
    concurrency: Count | None = None
    worker_concurrency: Count | None = None
    rate: RateText | None = None
    partition_concurrency: Count | None = None
    partition_worker_concurrency: Count | None = None
    partition_rate: RateText | None = None


_MOST_PARTITIONS = 200
_MOST_RUNS = 20


@pages.view("/queues", "queues.html")
def queues(scene: Scene, query: NoQuery) -> QueueList:
    """All queues: depth, age and limits."""
    del query
    ages = scene.operations.watch.queue_ages()
    return QueueList([_row(info, ages) for info in scene.operations.queues.list()])


@pages.view("/queues/{name:path}", "queue.html")
def queue(scene: Scene, query: QueueName) -> QueueAnswer:
    """One queue: its partitions, and the latest runs in it that have not ended."""
    found = scene.operations.queues.describe(query.name)
    shares = [
        Share(
            scene.redactor.partition(name),
            each.ready,
            each.scheduled,
            each.under_way,
            None if each.limits is None else _limits(each.limits),
        )
        for name, each in list(found.partitions.items())[:_MOST_PARTITIONS]
    ]
    runs = scene.operations.runs.glance(queue=query.name, state=tuple(LIVE), limit=_MOST_RUNS).runs
    return QueueAnswer(
        _row(found, scene.operations.watch.queue_ages()),
        [scene.redactor.glance(run) for run in runs],
        shares,
        len(found.partitions) > len(shares),
    )


def _of(body: OneQueue) -> list[str]:
    return [body.name]


@pages.action("/queues/pause", _of)
def pause(scene: Scene, body: OneQueue) -> Done:
    """Let nothing new begin; what is under way goes on."""
    scene.operations.queues.pause(body.name)
    return Done(f"queue {body.name} is paused", {})


@pages.action("/queues/resume", _of)
def resume(scene: Scene, body: OneQueue) -> Done:
    """Let runs begin again."""
    scene.operations.queues.resume(body.name)
    return Done(f"queue {body.name} goes on", {})


@pages.action("/queues/set", _of)
def set_limits(scene: Scene, body: Setting) -> Done:
    """Change the limits of a queue, from now on, in all workers."""
    changes: dict[str, Any] = {}
    for name in ("concurrency", "worker_concurrency", "partition_concurrency", "partition_worker_concurrency"):
        value = getattr(body, name)
        if value is not None:
            changes[name] = value or None
    for name in ("rate", "partition_rate"):
        text = getattr(body, name)
        if text is not None:
            changes[name] = None if text.strip() in {"", "0"} else Rate.read(text)
    scene.operations.queues.describe(body.name)
    scene.operations.queues.set(body.name, body.partition or None, changes)
    what = f"partition {body.partition} of queue {body.name}" if body.partition else f"queue {body.name}"
    return Done(f"{what} has new limits", {name: str(value) for name, value in changes.items()})


@pages.action("/queues/delete", _of, role="admin")
def delete(scene: Scene, body: OneQueue) -> Done:
    """Forget a queue. Its runs that have not begun wait until there is one of that name again."""
    there = scene.operations.queues.delete(body.name)
    return Done(f"queue {body.name} is deleted" if there else f"there was no queue {body.name}", {"deleted": there})


def _row(info: QueueInfo, ages: dict[str, int]) -> QueueRow:
    oldest = ages.get(info.name)
    return QueueRow(
        info.name,
        info.exists,
        info.paused,
        _limits(info.limits),
        info.ready,
        info.scheduled,
        info.under_way,
        None if oldest is None else to_datetime(oldest),
    )


def _limits(limits: QueueLimits) -> Limits:
    return Limits(
        limits.concurrency,
        limits.worker_concurrency,
        None if limits.rate is None else str(limits.rate),
        limits.partition_concurrency,
        limits.partition_worker_concurrency,
        None if limits.partition_rate is None else str(limits.partition_rate),
    )
