"""A queue: its name and its limits."""

from __future__ import annotations

from msgspec import Struct, field

LONGEST_NAME = 200
"""The maximum length of the name of a queue."""


class Window(Struct, frozen=True):
    """At most `limit` starts in any `per` microseconds."""

    limit: int
    per: int


class Limits(Struct, frozen=True, omit_defaults=True):
    """How many runs of a queue may be under way, and how many may begin. None means no limit.

    A run is under way from its first claim to its end, also while it waits, is suspended or has lost its worker.
    """

    concurrency: int | None = None
    """In the whole fleet."""
    worker_concurrency: int | None = None
    """In the memory of one worker."""
    rate: Window | None = None
    partition_concurrency: int | None = None
    """Of one partition, in the whole fleet."""
    partition_worker_concurrency: int | None = None
    """Of one partition, in the memory of one worker."""
    partition_rate: Window | None = None

    @property
    def shared(self) -> bool:
        """Whether the workers of the fleet have to count these limits together."""
        limits = (self.concurrency, self.rate, self.partition_concurrency, self.partition_rate)
        return any(limit is not None for limit in limits)

    @property
    def by_partition(self) -> bool:
        """Whether a limit counts each partition by itself."""
        limits = (self.partition_concurrency, self.partition_worker_concurrency, self.partition_rate)
        return any(limit is not None for limit in limits)


class Queue(Struct, frozen=True):
    """A queue as stored. `exceptions` are the limits of single partitions that differ from `limits`."""

    name: str
    limits: Limits = Limits()
    retry: str | None = None
    paused: bool = False
    declared: str | None = None
    version: str | None = None
    created: int = 0
    exceptions: dict[str, Limits] = field(default_factory=dict[str, Limits])

    @property
    def shared(self) -> bool:
        """Whether the workers of the fleet have to count the limits of this queue together."""
        return self.limits.shared or any(limits.shared for limits in self.exceptions.values())

    @property
    def windows(self) -> frozenset[int]:
        """The lengths of the windows of the queue's rate limits."""
        each = (self.limits, *self.exceptions.values())
        rates = [rate for limits in each for rate in (limits.rate, limits.partition_rate) if rate is not None]
        return frozenset(rate.per for rate in rates)

    @property
    def has_concurrency(self) -> bool:
        """Whether a limit counts the runs under way in the fleet."""
        each = (self.limits, *self.exceptions.values())
        return any(limits.concurrency is not None or limits.partition_concurrency is not None for limits in each)


class QueueCounts(Struct, frozen=True):
    """The number of runs in a queue: ready to start, due later, and running."""

    ready: int = 0
    scheduled: int = 0
    under_way: int = 0
