# pyright: reportPrivateUsage=false
"""The verbs with which one talks to runs, typed by the names they are given: `app.send`, `app.get_event`, `app.read_stream`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, overload

from mainspring.app.asking import Ask
from mainspring.app.dual import dual
from mainspring.app.functions import as_call
from mainspring.app.joined import JoinedBlock
from mainspring.app.later import FunctionVerbs, delay_of, time_of
from mainspring.app.nouns import RunVerbs, VersionVerbs, WorkerVerbs
from mainspring.app.queues import QueueVerbs
from mainspring.app.several import First, Gather
from mainspring.app.talk import Message, Talk
from mainspring.app.verb import Verb

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator

    from mainspring.app.functions import Call
    from mainspring.app.handle import Handle
    from mainspring.app.names import Event, Stream, Topic
    from mainspring.app.options import Duration, Moment
    from mainspring.app.verb import Future

R = TypeVar("R")
T = TypeVar("T")


class Send(Verb):
    """Send a message to a run; it is stored, and received once. With a `key`, a second one with that key is not sent."""

    name = "send"

    @overload
    def __call__(self, run_id: str, topic: Topic[T], message: T, *, key: str | None = None) -> Future[None]: ...
    @overload
    def __call__(self, run_id: str, topic: str, message: Any, *, key: str | None = None) -> Future[None]: ...
    def __call__(self, run_id: str, topic: Topic[Any] | str, message: Any, *, key: str | None = None) -> Future[None]:
        self._ready()
        return self._made(run_id, topic, message, key)

    @overload
    def sync(self, run_id: str, topic: Topic[T], message: T, *, key: str | None = None) -> None: ...
    @overload
    def sync(self, run_id: str, topic: str, message: Any, *, key: str | None = None) -> None: ...
    def sync(self, run_id: str, topic: Topic[Any] | str, message: Any, *, key: str | None = None) -> None:
        self._may_block()
        self._wait(self._made(run_id, topic, message, key))

    def _made(self, run_id: str, topic: Topic[Any] | str, message: Any, key: str | None) -> Future[None]:
        return self._talk.send(
            [Message(run_id, topic, message, key=key)], topic if isinstance(topic, str) else topic.name
        )


class GetEvent(Verb):
    """The value of an event of a run, as soon as it has one. None when `timeout` is over, or the run has ended without it."""

    name = "get_event"

    @overload
    def __call__(self, run_id: str, key: Event[T], timeout: Duration | None = None) -> Future[T | None]: ...
    @overload
    def __call__(self, run_id: str, key: str, timeout: Duration | None = None) -> Future[Any]: ...
    def __call__(self, run_id: str, key: Event[Any] | str, timeout: Duration | None = None) -> Future[Any]:
        self._ready()
        return self._talk.get_event(run_id, key, timeout)

    @overload
    def sync(self, run_id: str, key: Event[T], timeout: Duration | None = None) -> T | None: ...
    @overload
    def sync(self, run_id: str, key: str, timeout: Duration | None = None) -> Any: ...
    def sync(self, run_id: str, key: Event[Any] | str, timeout: Duration | None = None) -> Any:
        self._may_block()
        return self._wait(self._talk.get_event(run_id, key, timeout))


class ReadStream(Verb):
    """The values of a stream of a run, from an offset on, as they come, until it is closed or the run has ended."""

    name = "read_stream"

    @overload
    def __call__(self, run_id: str, key: Stream[T], offset: int = 0) -> AsyncIterator[T]: ...
    @overload
    def __call__(self, run_id: str, key: str, offset: int = 0) -> AsyncIterator[Any]: ...
    def __call__(self, run_id: str, key: Stream[Any] | str, offset: int = 0) -> AsyncIterator[Any]:
        self._ready()
        return self._talk.read_stream(run_id, key, offset)

    @overload
    def sync(self, run_id: str, key: Stream[T], offset: int = 0) -> Iterator[T]: ...
    @overload
    def sync(self, run_id: str, key: str, offset: int = 0) -> Iterator[Any]: ...
    def sync(self, run_id: str, key: Stream[Any] | str, offset: int = 0) -> Iterator[Any]:
        self._may_block()
        return self._values(self._talk.read_stream(run_id, key, offset))

    def _values(self, values: AsyncIterator[Any]) -> Iterator[Any]:
        async def one() -> list[Any]:
            try:
                return [await anext(values)]
            except StopAsyncIteration:
                return []

        while found := self._wait(one()):
            yield found[0]


class Voice:
    """What apps and clients have in common: seeing runs and talking to them, also inside somebody's transaction."""

    _spelled: ClassVar[str]

    @property
    def _talk(self) -> Talk:
        raise NotImplementedError

    def _block(self, work: Coroutine[Any, Any, T], label: str) -> T:
        raise NotImplementedError

    @property
    def runs(self) -> RunVerbs:
        """Seeing and stopping runs."""
        return RunVerbs(self._talk.runtime)

    @property
    def versions(self) -> VersionVerbs:
        """Seeing versions of the app, and helping runs that no worker can continue."""
        return VersionVerbs(self._talk.runtime)

    @property
    def workers(self) -> WorkerVerbs:
        """Seeing the fleet."""
        return WorkerVerbs(self._talk.runtime)

    @property
    def queues(self) -> QueueVerbs:
        """Seeing and steering queues."""
        return QueueVerbs(self._talk.runtime)

    @property
    def scheduled_functions(self) -> FunctionVerbs:
        """What was scheduled with run_after and run_at: get, list, cancel_all."""
        return FunctionVerbs(self._talk.runtime)

    @dual
    def start_many(self, /, calls: Iterable[Call[Any]]) -> Coroutine[Any, Any, list[Handle[Any]]]:
        """Start many runs in one commit: `app.start_many(enrich.bind(item) for item in items)`."""
        return self._talk.runtime.starting.many([as_call(call) for call in calls])

    @dual
    def send_many(self, /, messages: Iterable[Message]) -> Coroutine[Any, Any, None]:
        """Send messages, all of them or none: `app.send_many([Message(run_id, topic, value), …])`."""
        return self._talk.send(list(messages), "send_many")

    @dual
    def get_events(self, /, run_id: str) -> Coroutine[Any, Any, dict[str, Any]]:
        """All events of a run, by key."""
        return self._talk.get_events(run_id)

    @dual
    def run_after(self, /, delay: Duration, call: Call[R]) -> Coroutine[Any, Any, Handle[R]]:
        """Schedule a function to run after a delay; 0 is as soon as this commits. Inside a transaction it is part of it."""
        length = delay_of(delay)
        return self._talk.runtime.starting.later(as_call(call), lambda now: now + length)

    @dual
    def run_at(self, /, when: Moment, call: Call[R]) -> Coroutine[Any, Any, Handle[R]]:
        """Schedule a function to run at a time: an aware datetime, or seconds since 1970. The past means at once."""
        runtime = self._talk.runtime
        time = time_of(when, runtime.clock.now())
        return runtime.starting.later(as_call(call), lambda _: time)

    def joined(self, connection: Any) -> JoinedBlock:
        """Make every verb inside the block part of the transaction that is open on `connection`.

        A sqlite3 or psycopg connection (also an asynchronous one), or a SQLAlchemy Connection or Session (also asynchronous
        ones). Committing stays yours.
        """
        return JoinedBlock(self._talk.runtime, connection)

    @property
    def send(self) -> Send:
        """Send a message to a run: `await app.send(run_id, topic, message)`."""
        return Send(self)

    @property
    def get_event(self) -> GetEvent:
        """The value of an event of a run: `await app.get_event(run_id, key, timeout=…)`."""
        return GetEvent(self)

    @property
    def read_stream(self) -> ReadStream:
        """The values of a stream of a run: `async for value in app.read_stream(run_id, key):`."""
        return ReadStream(self)

    @property
    def ask(self) -> Ask:
        """Ask a run something and wait for its answer: `await app.ask(run_id, question, value, timeout=…)`."""
        return Ask(self)

    @property
    def gather(self) -> Gather:
        """The results of runs, in the order of the handles: `await app.gather(*handles)`."""
        return Gather(self)

    @property
    def first(self) -> First:
        """The handle of the run that ends first: `await app.first(*handles)`."""
        return First(self)
