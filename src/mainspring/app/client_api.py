"""What apps and clients have in common: seeing runs, starting them, and sending to them, also inside a user's transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.app.caller.current import current_caller
from mainspring.app.caller.in_transaction import JoinedBlock
from mainspring.app.functions.functions import as_call, start_all
from mainspring.app.messages import verbs
from mainspring.app.messages.names import named
from mainspring.app.messages.questions import Ask
from mainspring.app.messages.verbs import GetEvent, Message, ReadStream
from mainspring.app.nouns.queues import QueueVerbs
from mainspring.app.nouns.runs import RunVerbs, VersionVerbs, WorkerVerbs
from mainspring.app.nouns.scheduled_functions import FunctionVerbs, delay_of, run_later, time_of
from mainspring.app.sync.dual import dual
from mainspring.app.sync.mapped import Mapped
from mainspring.app.waiting.handle import Handle
from mainspring.errors import InvalidInput
from mainspring.model.given import check_several

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Sequence

    from mainspring.app.functions.functions import Call
    from mainspring.app.functions.options import Duration, Moment
    from mainspring.app.messages.names import Topic
    from mainspring.app.runtime import Runtime

R = TypeVar("R")
T = TypeVar("T")


class ClientApi:
    """The verbs of apps and clients."""

    _spelled = ""

    @property
    def _runtime(self) -> Runtime:
        raise NotImplementedError

    @property
    def _is_part_of_app(self) -> bool:
        return True

    @property
    def runs(self) -> RunVerbs[Any]:
        """Seeing and stopping runs."""
        return RunVerbs(self._runtime)

    @property
    def versions(self) -> VersionVerbs:
        """Seeing versions of the app, and helping runs that no worker can continue."""
        return VersionVerbs(self._runtime)

    @property
    def workers(self) -> WorkerVerbs:
        """Seeing the fleet."""
        return WorkerVerbs(self._runtime)

    @property
    def queues(self) -> QueueVerbs:
        """Seeing and steering queues."""
        return QueueVerbs(self._runtime)

    @property
    def scheduled_functions(self) -> FunctionVerbs:
        """What was scheduled with run_after and run_at: get, list, cancel_all."""
        return FunctionVerbs(self._runtime)

    # -- starting ------------------------------------------------------------------------------------------------------
    @dual
    def start_many(self, /, calls: Iterable[Call[R]]) -> Coroutine[Any, Any, list[Handle[R]]]:
        """Start many runs in one commit: `app.start_many(enrich.bind(item) for item in items)`."""
        return start_all(self._runtime, [as_call(call) for call in check_several("what start_many takes", calls)])

    @dual
    def run_after(self, /, delay: Duration, call: Call[R]) -> Coroutine[Any, Any, Handle[R]]:
        """Schedule a function to run after a delay; 0 is as soon as this commits. Inside a transaction it is part of it."""
        length = delay_of(delay)
        return run_later(self._runtime, as_call(call), lambda now: now + length)

    @dual
    def run_at(self, /, when: Moment, call: Call[R]) -> Coroutine[Any, Any, Handle[R]]:
        """Schedule a function to run at a time: an aware datetime, or seconds since 1970. The past means at once."""
        time = time_of(when, self._runtime.clock.now())
        return run_later(self._runtime, as_call(call), lambda _: time)

    def joined(self, connection: Any) -> JoinedBlock:
        """Make every verb inside the block part of the transaction that is open on `connection`.

        A sqlite3 or psycopg connection (also an asynchronous one), or a SQLAlchemy Connection or Session (also asynchronous
        ones). Committing stays yours.
        """
        return JoinedBlock(self._runtime, connection)

    # -- waiting -------------------------------------------------------------------------------------------------------
    @dual
    def gather(self, /, *handles: Handle[R]) -> Coroutine[Any, Any, list[R]]:
        """The results of runs, in the order of the handles. The first exception is raised; the other runs go on."""
        _check_handles("gather", handles)
        runs = [(handle.id, handle._codec) for handle in handles]  # noqa: SLF001  (its other half)
        return current_caller(self._runtime).results(runs)

    @dual
    def first(self, /, *handles: Handle[R]) -> Coroutine[Any, Any, Handle[R]]:
        """The handle of the run that ends first, however it ends. The others go on."""
        if not handles:
            raise InvalidInput("first takes the handles of at least one run")
        _check_handles("first", handles)
        work = current_caller(self._runtime).first([handle.id for handle in handles])
        return Mapped(work, lambda number: handles[number])

    # -- messages ------------------------------------------------------------------------------------------------------
    @dual
    def send(
        self, /, run_id: str, topic: Topic[T] | str, message: T, *, key: str | None = None
    ) -> Coroutine[Any, Any, None]:
        """Send a message to a run; it is stored, and received once. With a `key`, a second one with that key is not sent."""
        label, _ = named(topic, "topic")
        return verbs.send(self._runtime, [Message(run_id, topic, message, key=key)], label)

    @dual
    def send_many(self, /, messages: Iterable[Message]) -> Coroutine[Any, Any, None]:
        """Send messages, all of them or none: `app.send_many([Message(run_id, topic, value), …])`."""
        return verbs.send(self._runtime, check_several("what send_many takes", messages), "send_many")

    @property
    def get_event(self) -> GetEvent:
        """The value of an event of a run: `await app.get_event(run_id, key, timeout=…)`."""
        return GetEvent(self)

    @dual
    def get_events(self, /, run_id: str) -> Coroutine[Any, Any, dict[str, Any]]:
        """All events of a run, by key."""
        return verbs.get_events(self._runtime, run_id)

    @property
    def read_stream(self) -> ReadStream:
        """The values of a stream of a run: `async for value in app.read_stream(run_id, key):`."""
        return ReadStream(self)

    @property
    def ask(self) -> Ask:
        """Ask a run something and wait for its answer: `await app.ask(run_id, question, value, timeout=…)`."""
        return Ask(self)


def _check_handles(verb: str, handles: Sequence[object]) -> None:
    for each in handles:
        if not isinstance(each, Handle):
            raise InvalidInput(f"{verb} takes handles of runs, one by one: {verb}(*handles), not {each!r}")


def runtime_of(app: ClientApi) -> Runtime:
    """What stands behind an app or client, for the other parts of the library."""
    return app._runtime  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
