"""What rows about queues mean, in every store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from mainspring.model.queues import Limits
from mainspring.store.queues import QueueCounts
from mainspring.store.unreadable import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.model.queues import Queue


def to_json(limits: Limits) -> str:
    return msgspec.json.encode(limits).decode()


def to_exceptions(rows: Sequence[Sequence[Any]]) -> dict[str, dict[str, Limits]]:
    """Limits of single partitions by queue: from rows of queue, partition, limits."""
    found: dict[str, dict[str, Limits]] = {}
    read = readable(
        "queue_partitions",
        rows,
        lambda row: (row[0], row[1], msgspec.json.decode(row[2], type=Limits)),
        lambda row: f"{row[0]}/{row[1]}",
    )
    for queue, partition, limits in read:
        found.setdefault(queue, {})[partition] = limits
    return found


def to_queue_with(queue: Queue, exceptions: dict[str, dict[str, Limits]]) -> Queue:
    """A queue with the limits of its single partitions."""
    return msgspec.structs.replace(queue, exceptions=exceptions.get(queue.name, {}))


def counted(rows: Sequence[Sequence[Any]], group: Callable[[str, str], str]) -> dict[str, QueueCounts]:
    """From rows of queue, partition, state, begun, count: what is in each group of them."""
    totals: dict[str, list[int]] = {}
    for queue, partition, state, begun, count in rows:
        total = totals.setdefault(group(queue, partition), [0, 0, 0])
        total[1 if state == "scheduled" else 2 if begun else 0] += count
    return {name: QueueCounts(*total) for name, total in totals.items()}
