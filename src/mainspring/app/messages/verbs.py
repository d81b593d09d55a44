"""Messages, events and streams from any code: `app.send`, `app.get_event`, `app.read_stream`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from mainspring.app.caller.current import current_caller
from mainspring.app.dual import OverloadedVerb
from mainspring.app.messages.names import named, stored_text
from mainspring.codec import value_codec
from mainspring.errors import InvalidInput, NotFound
from mainspring.model.given import check_name, check_text, check_whole
from mainspring.store.messages import Post
from mainspring.store.sealing.payloads import readable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence

    from mainspring.app.functions.options import Duration
    from mainspring.app.messages.names import Event, Stream, Topic
    from mainspring.app.runtime import Runtime
    from mainspring.store.messages import Reading
    from mainspring.store.protocol import Store

T = TypeVar("T")


class Message:
    """A message for `send_many`."""

    __slots__ = ("key", "message", "run_id", "topic")

    def __init__(self, run_id: str, topic: Topic[Any] | str, message: Any, *, key: str | None = None) -> None:
        self.run_id = run_id
        self.topic = topic
        self.message = message
        self.key = key


def send(runtime: Runtime, messages: Sequence[Message], label: str) -> Coroutine[Any, Any, None]:
    """Send messages: all of them or none."""
    posts = [_post(runtime, message) for message in messages]
    keyed = [(post.run, post.key) for post in posts if post.key is not None]
    if len(set(keyed)) != len(keyed):
        raise InvalidInput("send: two messages for one run have the same key; a key names one message")
    return current_caller(runtime).send(posts, label)


def _post(runtime: Runtime, message: Message) -> Post:
    if not isinstance(message, Message):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"send_many takes Messages: Message(run_id, topic, value), not {message!r}")
    topic, codec = named(message.topic, "topic")
    if not check_name("the id of a run, which send takes first,", message.run_id):
        raise InvalidInput("send takes the id of a run first, not an empty text")
    key = None if message.key is None else check_text("the key of a message", message.key)
    body = stored_text(runtime.settings, codec, message.message, f"a message for {message.run_id!r}")
    return Post(message.run_id, topic, body, runtime.clock.now(), key)


def get_events(runtime: Runtime, run_id: str) -> Coroutine[Any, Any, dict[str, Any]]:
    """Return all events of a run, by key."""
    check_name("the id of a run", run_id)

    def all_events(store: Store) -> dict[str, Any]:
        found: Reading = store.messages.events(run_id)
        if found.state is None:
            raise NotFound(f"run {run_id!r} not found")
        codec = value_codec(Any, "an event")
        return {
            entry.key: codec.decode(readable(entry.value or "null", f"event {entry.key!r} of run {run_id!r}"))
            for entry in found.entries
        }

    return current_caller(runtime).read("get_events", dict[str, Any], all_events)


class GetEvent(OverloadedVerb):
    """The verb `get_event` of apps and clients."""

    __slots__ = ()
    _name = "get_event"

    @overload
    def __call__(
        self, run_id: str, key: Event[T], timeout: Duration | None = None
    ) -> Coroutine[Any, Any, T | None]: ...
    @overload
    def __call__(self, run_id: str, key: str, timeout: Duration | None = None) -> Coroutine[Any, Any, Any]: ...
    def __call__(self, run_id: str, key: Event[Any] | str, timeout: Duration | None = None) -> Coroutine[Any, Any, Any]:
        self._awaited()
        return self._get(run_id, key, timeout)

    @overload
    def sync(self, run_id: str, key: Event[T], timeout: Duration | None = None) -> T | None: ...
    @overload
    def sync(self, run_id: str, key: str, timeout: Duration | None = None) -> Any: ...
    def sync(self, run_id: str, key: Event[Any] | str, timeout: Duration | None = None) -> Any:
        """Get the event's value, blocking until it is set."""
        return self._blocked(lambda: self._get(run_id, key, timeout))

    def _get(self, run_id: str, key: Event[Any] | str, timeout: Duration | None) -> Coroutine[Any, Any, Any]:
        check_name("the id of a run", run_id)
        name, codec = named(key, "event")
        return current_caller(self._owner._runtime).get_event(run_id, name, codec, timeout)  # noqa: SLF001


class ReadStream(OverloadedVerb):
    """The verb `read_stream` of apps and clients."""

    __slots__ = ()
    _name = "read_stream"

    @overload
    def __call__(
        self, run_id: str, key: Stream[T], offset: int = 0, *, timeout: Duration | None = None
    ) -> AsyncIterator[T]: ...
    @overload
    def __call__(
        self, run_id: str, key: str, offset: int = 0, *, timeout: Duration | None = None
    ) -> AsyncIterator[Any]: ...
    def __call__(
        self, run_id: str, key: Stream[Any] | str, offset: int = 0, *, timeout: Duration | None = None
    ) -> AsyncIterator[Any]:
        self._awaited()
        return self._read(run_id, key, offset, timeout)

    @overload
    def sync(self, run_id: str, key: Stream[T], offset: int = 0, *, timeout: Duration | None = None) -> Iterator[T]: ...
    @overload
    def sync(self, run_id: str, key: str, offset: int = 0, *, timeout: Duration | None = None) -> Iterator[Any]: ...
    def sync(
        self, run_id: str, key: Stream[Any] | str, offset: int = 0, *, timeout: Duration | None = None
    ) -> Iterator[Any]:
        """Iterate over the values, blocking until the next is written."""
        values = self._read(run_id, key, offset, timeout)

        async def one() -> list[Any]:
            try:
                return [await anext(values)]
            except StopAsyncIteration:
                return []

        def following() -> Iterator[Any]:
            while found := self._blocked(one):
                yield found[0]

        return following()

    def _read(self, run_id: str, key: Stream[Any] | str, offset: int, timeout: Duration | None) -> AsyncIterator[Any]:
        check_name("the id of a run", run_id)
        name, codec = named(key, "stream")
        check_whole("read_stream: an offset", offset)
        return current_caller(self._owner._runtime).read_stream(run_id, name, codec, offset, timeout)  # noqa: SLF001
