"""`app.queues`: listing and changing queues at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from mainspring.app.caller.current import current_caller
from mainspring.app.declarations.declared import QueueArguments, limits_and_retry
from mainspring.app.dual import dual
from mainspring.model.queues import Limits
from mainspring.operations.queues import QueueInfo, Queues, changed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from mainspring.app.runtime import Runtime

R = TypeVar("R")


class QueueVerbs:
    """Verbs on queues. Inside a run each is recorded, and happens once. `describe`, `pause` and `resume` raise `NotFound` for an unknown queue."""

    _spelled = "app.queues"

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def _look(self, verb: str, kind: Any, question: Callable[[Queues], R]) -> Coroutine[Any, Any, R]:
        clock = self._runtime.clock
        caller = current_caller(self._runtime)
        return caller.read(f"queues.{verb}", kind, lambda store: question(Queues(store, clock)))

    def _change(self, verb: str, kind: Any, work: Callable[[Queues], R]) -> Coroutine[Any, Any, R]:
        clock = self._runtime.clock
        caller = current_caller(self._runtime)
        return caller.change(f"queues.{verb}", kind, lambda store, _: work(Queues(store, clock)))

    @dual
    def list(self, /) -> Coroutine[Any, Any, list[QueueInfo]]:
        """List all queues by name, also undeclared ones that runs wait in."""
        return self._look("list", list[QueueInfo], lambda queues: queues.list())

    @dual
    def describe(self, /, name: str) -> Coroutine[Any, Any, QueueInfo]:
        """Look up a queue, with the figures of each partition. Raises `NotFound` if the queue does not exist and no run waits in it."""
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
        """Create a queue, or change the given limits, at once and for all workers. Other limits stay; None removes a limit.

        With a `partition`, the `partition_` limits are those of that partition alone; if all are None, it has the limits of the other
        partitions again.
        """
        limits, policy = limits_and_retry(named)
        changed(Limits(), limits)
        changes = limits | ({"retry": policy} if "retry" in named else {})
        return self._change("set", QueueInfo, lambda queues: queues.set(name, partition, dict(changes)))

    @dual
    def pause(self, /, name: str) -> Coroutine[Any, Any, None]:
        """Stop beginning runs of a queue until it is resumed. Runs that have begun continue."""
        return self._change("pause", None, lambda queues: queues.pause(name))

    @dual
    def resume(self, /, name: str) -> Coroutine[Any, Any, None]:
        """Begin runs of a paused queue again."""
        return self._change("resume", None, lambda queues: queues.resume(name))

    @dual
    def delete(self, /, name: str) -> Coroutine[Any, Any, bool]:
        """Delete a queue. Runs that have not begun wait until a queue of that name exists again. Returns False if there is none."""
        return self._change("delete", bool, lambda queues: queues.delete(name, missing_ok=True))
