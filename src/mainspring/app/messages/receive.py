"""`run.receive`: the next message that was sent to the current run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from mainspring.app.caller.colours import refuse_blocking_on_loop
from mainspring.app.caller.current import current_branch
from mainspring.app.functions.options import micros
from mainspring.app.messages.names import named
from mainspring.app.sync.dual import OverloadedVerb
from mainspring.engine.drivers import drive, drive_blocking
from mainspring.engine.operations import messages

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from mainspring.app.functions.options import Duration
    from mainspring.app.messages.names import Topic
    from mainspring.engine.effects import Flow
    from mainspring.engine.replay.context import Branch

T = TypeVar("T")


class Receive(OverloadedVerb):
    """The next message of a topic, each once, in order: `await run.receive(topic, timeout=…)`. None when the time is over."""

    __slots__ = ()
    _name = "receive"

    @overload
    def __call__(self, topic: Topic[T], timeout: None = None) -> Coroutine[Any, Any, T]: ...
    @overload
    def __call__(self, topic: Topic[T], timeout: Duration) -> Coroutine[Any, Any, T | None]: ...
    @overload
    def __call__(self, topic: str, timeout: Duration | None = None) -> Coroutine[Any, Any, Any]: ...
    def __call__(self, topic: Topic[Any] | str, timeout: Duration | None = None) -> Coroutine[Any, Any, Any]:
        branch = current_branch("receive")
        self._awaited()
        return drive(branch.execution, _flow(branch, topic, timeout))

    @overload
    def sync(self, topic: Topic[T], timeout: None = None) -> T: ...
    @overload
    def sync(self, topic: Topic[T], timeout: Duration) -> T | None: ...
    @overload
    def sync(self, topic: str, timeout: Duration | None = None) -> Any: ...
    def sync(self, topic: Topic[Any] | str, timeout: Duration | None = None) -> Any:
        """The same in a `def` workflow."""
        refuse_blocking_on_loop("await run.receive(…)")
        branch = current_branch("receive")
        return drive_blocking(branch.execution, _flow(branch, topic, timeout))


def _flow(branch: Branch, topic: Topic[Any] | str, timeout: Duration | None) -> Flow:
    name, codec = named(topic, "topic")
    ex = branch.execution
    until = None if timeout is None else ex.engine.clock.now() + micros(timeout)
    return messages.receive(ex, branch.take_position(), name, until, codec)
