"""The queues, schedules and functions for alerts that an app's code declares, until a worker writes them to the database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from mainspring.engine.retry import Retry, stored
from mainspring.errors import AlreadyRegistered, InvalidInput
from mainspring.model.queues import Limits, Queue
from mainspring.operations.queues import Rate, changed, check_queue_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainspring.model.schedules import Hook
    from mainspring.schedules.definition import Definition


@dataclass(frozen=True, slots=True)
class DeclaredQueue:
    """A queue that the code declares. Options may name it: `fn.options(queue=emails)`."""

    name: str


class QueueArguments(TypedDict, total=False):
    """The arguments of a queue: its limits, and the retry policy of its runs. None is no limit."""

    concurrency: int | None
    """Running runs in the whole fleet."""
    worker_concurrency: int | None
    """Running runs in one worker."""
    rate: Rate | None
    """Starts within a length of time."""
    partition_concurrency: int | None
    """Running runs of one partition in the whole fleet."""
    partition_worker_concurrency: int | None
    """Running runs of one partition in one worker."""
    partition_rate: Rate | None
    """Starts of one partition within a length of time."""
    retry: Retry | int | None


def limits_and_retry(given: QueueArguments) -> tuple[dict[str, Any], str | None]:
    """Return the named limits and the retry policy as stored. Raise an error for a name that is neither."""
    unknown = sorted(set(given) - set(QueueArguments.__annotations__))
    if unknown:
        known = ", ".join(QueueArguments.__annotations__)
        raise InvalidInput(f"a queue has no {', '.join(unknown)}; it has {known}")
    retry = given.get("retry")
    limits = {name: value for name, value in given.items() if name != "retry"}
    return limits, None if retry is None else stored(Retry.of(retry))


class DeclaredQueues:
    """All queues that an app's code declares, by name."""

    def __init__(self) -> None:
        self._all: dict[str, Queue] = {}

    def add(self, name: str, given: QueueArguments) -> DeclaredQueue:
        check_queue_name(name)
        limits, retry = limits_and_retry(given)
        made = Queue(name, changed(Limits(), limits), retry)
        made = msgspec.structs.replace(made, declared=_text(made))
        there = self._all.get(name)
        if there is not None and there.declared != made.declared:
            raise AlreadyRegistered(f"the queue {name!r} is declared twice, with different limits")
        self._all[name] = made
        return DeclaredQueue(name)

    def __iter__(self) -> Iterator[Queue]:
        return iter(self._all.values())

    def __contains__(self, name: str | None) -> bool:
        return name in self._all

    def digest(self) -> str:
        """A text that is the same for the same declarations."""
        return repr(sorted((queue.name, queue.declared) for queue in self)) if self._all else ""


def _text(queue: Queue) -> str:
    declared_json: dict[str, Any] = {
        "limits": queue.limits,
        "retry": None if queue.retry is None else msgspec.Raw(queue.retry.encode()),
    }
    return msgspec.json.encode(declared_json).decode()


class DeclaredSchedules:
    """All schedules that an app's code declares, by id, and its functions for alerts."""

    def __init__(self) -> None:
        self._all: dict[str, Definition] = {}
        self.hooks: dict[tuple[str, str], Hook] = {}
        """Functions that receive alerts, by event and name."""

    def add(self, definition: Definition) -> None:
        there = self._all.get(definition.id)
        if there is not None and there.columns() != definition.columns():
            raise AlreadyRegistered(
                f"two schedules are called {definition.id!r}; give one of them another id"
                + (" with @app.scheduled(…, id=…)" if definition.action.times else "")
            )
        self._all[definition.id] = definition

    def __iter__(self) -> Iterator[Definition]:
        return iter(self._all.values())

    def __bool__(self) -> bool:
        return bool(self._all)

    def digest(self) -> str:
        """A text that is the same for the same declarations."""
        schedules = [sorted(each.columns().items()) for _, each in sorted(self._all.items())]
        return repr((schedules, sorted(self.hooks))) if self.hooks else repr(schedules)
