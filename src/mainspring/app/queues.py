"""Queues in code, `app.queue(…)`, and at run time, `app.queues`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict, TypeVar, Unpack

import msgspec

from mainspring.app.changing import change
from mainspring.app.dual import dual
from mainspring.engine.retry import Retry, stored
from mainspring.errors import AlreadyRegistered, InvalidInput
from mainspring.model.queues import Limits, Queue
from mainspring.operations.queues import QueueInfo, Queues, Rate, changed, check_queue_name

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from mainspring.app.runtime import Runtime

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class DeclaredQueue:
    """A queue that the code declares. It can be named in options: `fn.options(queue=emails)`."""

    name: str


class QueueArguments(TypedDict, total=False):
    """What a queue can be made with: its limits, and how its runs that fail are tried again. None is no limit."""

    concurrency: int | None
    """Runs under way in the whole fleet."""
    worker_concurrency: int | None
    """… in one worker."""
    rate: Rate | None
    """Starts within a length of time."""
    partition_concurrency: int | None
    """Runs of one partition under way in the whole fleet."""
    partition_worker_concurrency: int | None
    """… in one worker."""
    partition_rate: Rate | None
    """Starts of one partition within a length of time."""
    retry: Retry | int | None


def limits_and_retry(given: QueueArguments) -> tuple[dict[str, Any], str | None]:
    """The limits that are named, and the policy as it is stored. A name that is none of them is an error."""
    unknown = sorted(set(given) - set(QueueArguments.__annotations__))
    if unknown:
        known = ", ".join(QueueArguments.__annotations__)
        raise InvalidInput(f"a queue has no {', '.join(unknown)}; it has {known}")
    retry = given.get("retry")
    limits = {name: value for name, value in given.items() if name != "retry"}
    return limits, None if retry is None else stored(Retry.of(retry))


class QueueDeclarations:
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

    def __contains__(self, name: str) -> bool:
        return name in self._all

    def digest(self) -> str:
        """All of it as one text: the same declarations, the same text."""
        return repr(sorted((queue.name, queue.declared) for queue in self)) if self._all else ""


def _text(queue: Queue) -> str:
    said: dict[str, Any] = {
        "limits": queue.limits,
        "retry": None if queue.retry is None else msgspec.Raw(queue.retry.encode()),
    }
    return msgspec.json.encode(said).decode()


class QueueVerbs:
    """Seeing and steering queues. Recorded when called inside a run."""

    _spelled: ClassVar[str] = "app.queues"

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def _block(self, work: Coroutine[Any, Any, R], label: str) -> R:
        return self._runtime.block(work, label)

    def _look(self, verb: str, kind: Any, question: Callable[[Queues], R]) -> Coroutine[Any, Any, R]:
        clock = self._runtime.clock
        return self._runtime.ask_store(f"queues.{verb}", kind, lambda store: question(Queues(store, clock)), reads=True)

    def _change(self, verb: str, kind: Any, work: Callable[[Queues], R]) -> Coroutine[Any, Any, R]:
        clock = self._runtime.clock
        return change(self._runtime, f"queues.{verb}", kind, lambda store: work(Queues(store, clock)))

    @dual
    def list(self, /) -> Coroutine[Any, Any, list[QueueInfo]]:
        """All queues by name, also those that runs wait for and that nobody has made."""
        return self._look("list", list[QueueInfo], lambda queues: queues.list())

    @dual
    def describe(self, /, name: str) -> Coroutine[Any, Any, QueueInfo]:
        """One queue, with what is in each of its partitions. `NotFound` if there is none and no run waits for one."""
        return self._look("describe", QueueInfo, lambda queues: queues.describe(name))

    @dual
    def set(
        self,
        /,
        name: str,
        *,
        partition: str | None = None,
        **named: Unpack[QueueArguments],
    ) -> Coroutine[Any, Any, QueueInfo]:
        """Make a queue, or change what is named of it, at once and for all workers; the rest stays. None takes a limit away.

        With a `partition` the limits that begin with `partition_` are those of that partition alone; all of them None gives it
        those of the others again.
        """
        limits, policy = limits_and_retry(named)
        changed(Limits(), limits)
        changes = limits | ({"retry": policy} if "retry" in named else {})
        return self._change("set", QueueInfo, lambda queues: queues.set(name, partition, dict(changes)))

    @dual
    def pause(self, /, name: str) -> Coroutine[Any, Any, None]:
        """Begin none of its runs until it is resumed. Those that have begun go on."""
        return self._change("pause", None, lambda queues: queues.pause(name))

    @dual
    def resume(self, /, name: str) -> Coroutine[Any, Any, None]:
        """Begin its runs again."""
        return self._change("resume", None, lambda queues: queues.resume(name))

    @dual
    def delete(self, /, name: str) -> Coroutine[Any, Any, bool]:
        """Forget a queue; its runs wait until there is one of that name again. False if there is none."""
        return self._change("delete", bool, lambda queues: queues.delete(name))
