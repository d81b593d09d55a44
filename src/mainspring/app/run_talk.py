"""What a run says and receives: `run.receive`, `run.set_event`, `run.write_stream`, `run.close_stream`."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from mainspring.app.dual import refuse_blocking_on_loop, refuse_coroutine_in_def_run
from mainspring.app.names import named
from mainspring.app.options import micros
from mainspring.app.transacting import run_ready
from mainspring.engine import talking
from mainspring.engine.context import Line, StepScope, TransactionScope, current, here
from mainspring.engine.drivers import drive, drive_blocking, on_loop
from mainspring.errors import NotInRun
from mainspring.store.messages import Entry
from mainspring.store.ops import Tell

if TYPE_CHECKING:
    from mainspring.app.names import Event, Stream, Topic
    from mainspring.app.options import Duration
    from mainspring.app.runtime import Runtime
    from mainspring.codec import ValueCodec
    from mainspring.engine.recording import Flow
    from mainspring.store.messages import Table

T = TypeVar("T")
Future = Coroutine[Any, Any, T]


class Receive:
    """`await run.receive(topic, timeout=…)`: the next message of a topic, each once, in order; None when the time is over."""

    @overload
    def __call__(self, topic: Topic[T], timeout: None = None) -> Future[T]: ...
    @overload
    def __call__(self, topic: Topic[T], timeout: Duration) -> Future[T | None]: ...
    @overload
    def __call__(self, topic: str, timeout: Duration | None = None) -> Future[Any]: ...
    def __call__(self, topic: Topic[Any] | str, timeout: Duration | None = None) -> Future[Any]:
        refuse_coroutine_in_def_run("run.receive.sync(…)")
        line = _line("receive")
        return drive(line.execution, self._flow(line, topic, timeout))

    @overload
    def sync(self, topic: Topic[T], timeout: None = None) -> T: ...
    @overload
    def sync(self, topic: Topic[T], timeout: Duration) -> T | None: ...
    @overload
    def sync(self, topic: str, timeout: Duration | None = None) -> Any: ...
    def sync(self, topic: Topic[Any] | str, timeout: Duration | None = None) -> Any:
        """The same in a `def` workflow."""
        refuse_blocking_on_loop("await run.receive(…)")
        line = _line("receive")
        return drive_blocking(line.execution, self._flow(line, topic, timeout))

    @staticmethod
    def _flow(line: Line, topic: Topic[Any] | str, timeout: Duration | None) -> Flow:
        name, codec = named(topic, "topic")
        ex = line.execution
        until = None if timeout is None else ex.engine.clock.now() + micros(timeout)
        ex.outstanding += 1
        return talking.receive(ex, line.next_position(), name, until, codec)


class SetEvent:
    """`await run.set_event(key, value)`: a named value that anybody can read, also after the end; the last one counts."""

    @overload
    def __call__(self, key: Event[T], value: T) -> Future[None]: ...
    @overload
    def __call__(self, key: str, value: Any) -> Future[None]: ...
    def __call__(self, key: Event[Any] | str, value: Any) -> Future[None]:
        refuse_coroutine_in_def_run("run.set_event.sync(…)")
        name, codec = named(key, "event")
        return _say("set_event", "events", name, _text(name, codec, value))

    @overload
    def sync(self, key: Event[T], value: T) -> None: ...
    @overload
    def sync(self, key: str, value: Any) -> None: ...
    def sync(self, key: Event[Any] | str, value: Any) -> None:
        """The same in a `def` workflow or step."""
        refuse_blocking_on_loop("await run.set_event(…)")
        name, codec = named(key, "event")
        _say_sync("set_event", "events", name, _text(name, codec, value))


class WriteStream:
    """`await run.write_stream(key, value)`: one more value of a stream that anybody can read."""

    @overload
    def __call__(self, key: Stream[T], value: T) -> Future[None]: ...
    @overload
    def __call__(self, key: str, value: Any) -> Future[None]: ...
    def __call__(self, key: Stream[Any] | str, value: Any) -> Future[None]:
        refuse_coroutine_in_def_run("run.write_stream.sync(…)")
        name, codec = named(key, "stream")
        return _say("write_stream", "streams", name, _text(name, codec, value))

    @overload
    def sync(self, key: Stream[T], value: T) -> None: ...
    @overload
    def sync(self, key: str, value: Any) -> None: ...
    def sync(self, key: Stream[Any] | str, value: Any) -> None:
        """The same in a `def` workflow or step."""
        refuse_blocking_on_loop("await run.write_stream(…)")
        name, codec = named(key, "stream")
        _say_sync("write_stream", "streams", name, _text(name, codec, value))


class CloseStream:
    """`await run.close_stream(key)`: readers come to their end here."""

    def __call__(self, key: Stream[Any] | str) -> Future[None]:
        refuse_coroutine_in_def_run("run.close_stream.sync(…)")
        return _say("close_stream", "streams", named(key, "stream")[0], None)

    def sync(self, key: Stream[Any] | str) -> None:
        """The same in a `def` workflow or step."""
        refuse_blocking_on_loop("await run.close_stream(…)")
        _say_sync("close_stream", "streams", named(key, "stream")[0], None)


def _text(key: str, codec: ValueCodec, value: Any) -> str:
    return here().execution.engine.check_size(codec.encode(value), value, f"a value of {key!r}")


def _say(kind: str, table: Table, key: str, value: str | None) -> Future[None]:
    where = here()
    if isinstance(where, Line):
        return drive(where.execution, _flow(where, kind, table, key, value))
    outer = current.get()
    return (
        _join(outer, where, table, key, value)
        if isinstance(outer, TransactionScope)
        else _tell(where, table, key, value)
    )


def _say_sync(kind: str, table: Table, key: str, value: str | None) -> None:
    where = here()
    outer = current.get()
    if isinstance(where, Line):
        drive_blocking(where.execution, _flow(where, kind, table, key, value))
    elif isinstance(outer, TransactionScope):
        run_ready(_join(outer, where, table, key, value))
    else:
        on_loop(where.execution, _tell(where, table, key, value))


def _join(scope: TransactionScope, step: StepScope, table: Table, key: str, value: str | None) -> Future[None]:
    """In a transaction: it is said if, and only if, that commits."""
    ex = step.execution
    fence = None if scope.recorded else (ex.id, ex.engine.worker_id, ex.epoch)
    return cast("Runtime", scope.home).transacting.say(scope, [_entry(step, table, key, value)], fence)


def _flow(line: Line, kind: str, table: Table, key: str, value: str | None) -> Flow:
    ex = line.execution
    position = line.next_position()
    ex.outstanding += 1
    return talking.say(
        ex, position, kind, key, lambda: [Entry(table, ex.id, key, value, ex.engine.clock.now(), position)]
    )


async def _tell(scope: StepScope, table: Table, key: str, value: str | None) -> None:
    """In the middle of a step: it is said at once, and again when the step is tried again."""
    ex = scope.execution
    entry = _entry(scope, table, key, value)
    await ex.engine.committer.commit(Tell(ex.id, [entry], ex.engine.worker_id, ex.epoch))


def _entry(scope: StepScope, table: Table, key: str, value: str | None) -> Entry:
    ex = scope.execution
    return Entry(table, ex.id, key, value, ex.engine.clock.now(), scope.position)


def _line(verb: str) -> Line:
    where = here()
    if isinstance(where, StepScope):
        raise NotInRun(f"run.{verb} belongs in a workflow; inside a step nothing is recorded by itself")
    return where
