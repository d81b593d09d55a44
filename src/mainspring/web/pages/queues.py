"""Queues: their runs and limits, and changing the limits while workers run."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from mainspring.model.clock import to_datetime
from mainspring.model.states import LIVE, State
from mainspring.operations.figures import FunctionFigures, figures_of_runs
from mainspring.operations.queues import QUEUE_ACTIONS, QueueInfo, QueueLimits, Rate
from mainspring.operations.runs.lists import RunSummary
from mainspring.web.views import Body, NoQuery, Pages, Reason, Scene

pages = Pages()
Name = Annotated[str, Meta(min_length=1, max_length=200, description="The name of a queue.")]
Count = Annotated[int, Meta(ge=0, le=1_000_000_000, description="A limit; 0 takes it away.")]
RateText = Annotated[str, Meta(max_length=40, description="Such as 100/1m; empty or 0 takes the limit away.")]


class Limits(Struct):
    """Limits of running runs and of starts. Null: no limit. Rates are written 100/60s."""

    concurrency: int | None
    worker_concurrency: int | None
    rate: str | None
    partition_concurrency: int | None
    partition_worker_concurrency: int | None
    partition_rate: str | None


class QueueRow(Struct):
    """A queue, its counts of runs, and the age of its oldest ready run."""

    name: str
    exists: bool
    """False for a queue that runs name but that was not declared."""
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
    """The name of a queue."""

    name: Name


class Share(Struct):
    """The counts of runs in one partition of a queue."""

    partition: str
    ready: int
    scheduled: int
    under_way: int
    limits: Limits | None


class QueueAnswer(Struct):
    """A queue with its partitions and the latest runs in it."""

    queue: QueueRow
    runs: list[RunSummary]
    """The latest runs that have not ended."""
    partitions: list[Share]
    more: bool
    """Whether there are more partitions than are shown."""
    figures: FunctionFigures
    """Figures of the latest ended runs of the queue."""


class OneQueue(Body):
    """A queue to act on, and why."""

    name: Name
    reason: Reason | None = None


class Setting(OneQueue):
    """Limits to change. Those that are left out stay as they are.

    With a partition, the limits of that partition alone; without any of its own, the queue's limits per partition apply again.
    """

    partition: Annotated[str, Meta(max_length=600)] | None = None
    create: bool = False
    """Create the queue if there is none of that name."""
    concurrency: Count | None = None
    worker_concurrency: Count | None = None
    rate: RateText | None = None
    partition_concurrency: Count | None = None
    partition_worker_concurrency: Count | None = None
    partition_rate: RateText | None = None


_MOST_PARTITIONS = 200
_MOST_RUNS = 20
_MOST_ENDED = 200
_ENDED = tuple(state for state in State if state.ended)


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
    runs = scene.operations.runs.summaries(queue=query.name, state=tuple(LIVE), limit=_MOST_RUNS).runs
    ended = scene.operations.runs.summaries(queue=query.name, state=_ENDED, limit=_MOST_ENDED).runs
    return QueueAnswer(
        _row(found, scene.operations.watch.queue_ages()),
        [scene.redactor.summary(run) for run in runs],
        shares,
        len(found.partitions) > len(shares),
        figures_of_runs(query.name, ended),
    )


def _of(body: OneQueue) -> list[str]:
    return [body.name]


@pages.action(QUEUE_ACTIONS["pause"], _of)
def pause(scene: Scene, body: OneQueue) -> None:
    scene.operations.queues.pause(body.name)


@pages.action(QUEUE_ACTIONS["resume"], _of)
def resume(scene: Scene, body: OneQueue) -> None:
    scene.operations.queues.resume(body.name)


@pages.action(QUEUE_ACTIONS["set"], _of)
def set_limits(scene: Scene, body: Setting) -> QueueInfo:
    changes: dict[str, Any] = {}
    for name in Limits.__struct_fields__:
        value: int | str | None = getattr(body, name)
        if isinstance(value, str):
            changes[name] = None if value.strip() in {"", "0"} else Rate.read(value)
        elif value is not None:
            changes[name] = value or None
    if not body.create:
        scene.operations.queues.describe(body.name)
    return scene.operations.queues.set(body.name, body.partition or None, changes)


@pages.action(QUEUE_ACTIONS["delete"], _of)
def delete(scene: Scene, body: OneQueue) -> bool:
    return scene.operations.queues.delete(body.name)


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
    values: dict[str, Any] = {name: getattr(limits, name) for name in Limits.__struct_fields__}
    rates: dict[str, Any] = {name: str(value) for name, value in values.items() if isinstance(value, Rate)}
    return Limits(**{**values, **rates})
