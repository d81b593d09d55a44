"""Talking to runs, from anywhere: inside a run each of these is an operation that is recorded once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.app.ears import Ear
from mainspring.app.names import named
from mainspring.app.options import micros
from mainspring.app.transacting import refuse_waiting
from mainspring.codec import check_size, value_codec
from mainspring.engine import talking
from mainspring.engine.branches import ours
from mainspring.engine.context import Line, TransactionScope, current
from mainspring.engine.drivers import drive
from mainspring.errors import InvalidInput, NotFound, NotSerializable
from mainspring.store.messages import Post
from mainspring.store.ops import Tell, Verdict

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Sequence

    from mainspring.app.names import Event, Stream, Topic
    from mainspring.app.options import Duration
    from mainspring.app.runtime import Runtime
    from mainspring.codec import ValueCodec
    from mainspring.store.messages import Reading

_PAGE = 100


class Message:
    """A message for `send_many`."""

    __slots__ = ("key", "message", "run_id", "topic")

    def __init__(self, run_id: str, topic: Topic[Any] | str, message: Any, *, key: str | None = None) -> None:
        self.run_id = run_id
        self.topic = topic
        self.message = message
        self.key = key


class Talk:
    """The verbs of one app or client."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @property
    def runtime(self) -> Runtime:
        return self._runtime

    # -- sending -------------------------------------------------------------------------------------------------------
    def send(self, messages: Sequence[Message], label: str) -> Coroutine[Any, Any, None]:
        """Send messages, all of them or none."""
        posts = [self._post(message) for message in messages]
        keyed = [(post.run, post.key) for post in posts if post.key is not None]
        if len(set(keyed)) != len(keyed):
            raise InvalidInput("send: two messages for one run have the same key; a key names one message")
        where = current.get()
        if isinstance(where, Line):
            ex = where.execution
            ex.outstanding += 1
            for post in posts:
                post.sender = ex.id
            return drive(ex, talking.say(ex, where.next_position(), "send", label, lambda: list(posts)))
        step = where.step if isinstance(where, TransactionScope) else where
        if step is not None:
            for post in posts:
                post.sender = step.execution.id
                post.key = post.key or step.next_key()
        if isinstance(where, TransactionScope):
            return self._runtime.transacting.say(where, list(posts))
        return self._tell(posts)

    def _post(self, message: Message) -> Post:
        topic, codec = named(message.topic, "topic")
        if not isinstance(message.run_id, str) or not message.run_id:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"send takes the id of a run first, not {message.run_id!r}")
        body = self.text(codec, message.message, f"a message for {message.run_id!r}")
        return Post(message.run_id, topic, body, self._runtime.clock.now(), message.key)

    def text(self, codec: ValueCodec, value: Any, what: str) -> str:
        """A value as it is stored."""
        return check_size(codec.encode(value), value, self._runtime.settings.value_bytes, what)

    @ours
    async def _tell(self, posts: list[Post]) -> None:
        if not posts:
            return
        connection = await self._runtime.connected()
        try:
            answer = await connection.committer.commit(Tell(posts[0].run, list(posts)), patient=False)
        except (ValueError, TypeError, ArithmeticError) as error:
            raise NotSerializable(f"the database refused a message: {error}") from error
        if answer.verdict is Verdict.UNKNOWN:
            raise talking.unknown_error(answer.unknown)

    # -- events --------------------------------------------------------------------------------------------------------
    def get_event(self, run_id: str, event: Event[Any] | str, timeout: Duration | None) -> Coroutine[Any, Any, Any]:
        key, codec = named(event, "event")
        where = current.get()
        if isinstance(where, Line):
            ex = where.execution
            until = None if timeout is None else ex.engine.clock.now() + micros(timeout)
            ex.outstanding += 1
            return drive(ex, talking.event(ex, where.next_position(), run_id, key, until=until, codec=codec))
        refuse_waiting("get_event")
        return self._get_event(run_id, key, codec, timeout)

    @ours
    async def _get_event(self, run_id: str, key: str, codec: ValueCodec, timeout: Duration | None) -> Any:
        connection = await self._runtime.connected()
        with Ear(connection.ears, connection.clock, run_id, timeout) as ear:
            while True:
                found: Reading = await self._runtime.in_thread(connection.store.messages.event, run_id, key)
                if found.state is None:
                    raise NotFound(f"there is no run {run_id!r}, or no longer")
                if found.entries:
                    return codec.decode(found.entries[0].value or "null")
                if found.state.ended or not await ear.wait():
                    return None

    def get_events(self, run_id: str) -> Coroutine[Any, Any, dict[str, Any]]:
        """All events of a run, by key."""
        kind: Any = dict[str, Any]
        return self._runtime.ask_store(
            "get_events", kind, lambda store: _all_events(store.messages.events(run_id), run_id), reads=True
        )

    # -- streams -------------------------------------------------------------------------------------------------------
    def read_stream(self, run_id: str, stream: Stream[Any] | str, offset: int) -> AsyncIterator[Any]:
        """The values of a stream from an offset on, until it is closed or its run has ended."""
        key, codec = named(stream, "stream")
        if offset < 0:
            raise InvalidInput(f"read_stream: an offset is 0 or more, not {offset}")
        where = current.get()
        if isinstance(where, Line):
            return self._read_in_run(where, run_id, key, codec, offset)
        refuse_waiting("read_stream")
        return self._read(run_id, key, codec, offset)

    async def _read_in_run(
        self, line: Line, run_id: str, key: str, codec: ValueCodec, offset: int
    ) -> AsyncIterator[Any]:
        ex = line.execution
        one: Any = list[codec.annotation]  # type: ignore[name-defined]
        listed = value_codec(one, codec.where)
        while True:
            ex.outstanding += 1
            flow = talking.stream(ex, line.next_position(), run_id, key, offset=offset, codec=listed)
            values = await drive(ex, flow)
            if not values:
                return
            yield values[0]
            offset += 1

    async def _read(self, run_id: str, key: str, codec: ValueCodec, offset: int) -> AsyncIterator[Any]:
        connection = await self._runtime.connected()
        with Ear(connection.ears, connection.clock, run_id, None) as ear:
            while True:
                found: Reading = await self._runtime.in_thread(
                    connection.store.messages.stream, run_id, key, offset, _PAGE
                )
                if found.state is None:
                    raise NotFound(f"there is no run {run_id!r}, or no longer")
                for entry in found.entries:
                    if entry.value is None:
                        return
                    yield codec.decode(entry.value)
                offset += len(found.entries)
                if found.entries:
                    continue
                if found.state.ended:
                    return
                await ear.wait()


def _all_events(found: Reading, run_id: str) -> dict[str, Any]:
    if found.state is None:
        raise NotFound(f"there is no run {run_id!r}, or no longer")
    codec = value_codec(Any, "an event")
    return {entry.key: codec.decode(entry.value or "null") for entry in found.entries}
