"""The verbs that apps and clients share: starting, sending, waiting and listing, also inside a user's transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from mainspring.app.caller.current import current_caller
from mainspring.app.caller.in_transaction import JoinedBlock
from mainspring.app.coroutines import Mapped
from mainspring.app.dual import dual
from mainspring.app.functions.functions import Call, as_call, start_all, start_one
from mainspring.app.functions.options import Options
from mainspring.app.handle import Handle
from mainspring.app.messages import verbs
from mainspring.app.messages.names import named
from mainspring.app.messages.questions import Ask
from mainspring.app.messages.verbs import GetEvent, Message, ReadStream
from mainspring.app.nouns.queues import QueueVerbs
from mainspring.app.nouns.runs import RunVerbs, VersionVerbs, WorkerVerbs
from mainspring.app.nouns.scheduled_functions import FunctionVerbs, delay_of, run_later, time_of
from mainspring.codec import encode_call
from mainspring.codec.values import PLAIN_JSON
from mainspring.engine.registry import Function
from mainspring.errors import InvalidInput, UnknownFunction
from mainspring.model.given import check_name, check_several

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Sequence
    from typing import Unpack

    from mainspring.app.functions.options import Duration, Moment, OptionArguments
    from mainspring.app.messages.names import Topic
    from mainspring.app.nouns.schedules import ScheduleVerbs
    from mainspring.app.runtime import Runtime
    from mainspring.codec import CallCodec


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
        """Verbs on runs: list, get, cancel, retry, fork and the rest."""
        return RunVerbs(self._runtime)

    @property
    def versions(self) -> VersionVerbs:
        """Verbs on versions of the app and on patches."""
        return VersionVerbs(self._runtime)

    @property
    def workers(self) -> WorkerVerbs:
        """The workers of the fleet."""
        return WorkerVerbs(self._runtime)

    @property
    def queues(self) -> QueueVerbs:
        """Verbs on queues: list, describe, set, pause, resume, delete."""
        return QueueVerbs(self._runtime)

    @property
    def schedules(self) -> ScheduleVerbs:
        """The schedules in the app's database: create, update, pause, trigger, backfill, list and the rest."""
        from mainspring.app.nouns.schedules import ScheduleVerbs  # noqa: PLC0415  (not every app has schedules, which are slow to import)

        return ScheduleVerbs(self)

    @property
    def scheduled_functions(self) -> FunctionVerbs:
        """The functions that were scheduled with `run_after` and `run_at`: get, list, cancel_all."""
        return FunctionVerbs(self._runtime)

    # -- starting ------------------------------------------------------------------------------------------------------
    @dual
    def start_many(self, /, calls: Iterable[Call[R]]) -> Coroutine[Any, Any, list[Handle[R]]]:
        """Start many runs in one commit: `app.start_many(enrich.bind(item) for item in items)`. Returns their handles.

        If one is refused (`Conflict`: its id or key is taken), the error is raised after the others have started; in a workflow none starts.
        """
        return start_all(self._runtime, [as_call(call) for call in check_several("what start_many takes", calls)])

    @dual
    def run_after(self, /, delay: Duration, call: Call[R]) -> Coroutine[Any, Any, Handle[R]]:
        """Schedule a call after a delay: `await app.run_after("30d", archive.bind(7))`. 0: as soon as this commits.

        Inside a transaction it is part of the transaction. Raises `InvalidInput` for a negative delay, or one of more than five years.
        """
        length = delay_of(delay)
        return run_later(self._runtime, as_call(call), lambda now: now + length)

    @dual
    def run_at(self, /, when: Moment, call: Call[R]) -> Coroutine[Any, Any, Handle[R]]:
        """Schedule a call at a time: an aware datetime, or seconds since 1970. A time in the past means at once."""
        time = time_of(when, self._runtime.clock.now())
        return run_later(self._runtime, as_call(call), lambda _: time)

    def joined(self, connection: Any) -> JoinedBlock:
        """Make every verb inside the block part of the transaction that is open on `connection`. You commit it or roll it back.

        `connection` is a sqlite3, aiosqlite or psycopg connection, or a SQLAlchemy Connection or Session, also the asynchronous ones:

            with app.joined(connection):
                connection.execute("INSERT INTO orders …")
                checkout.start.sync(order)      # exists if, and only if, your transaction commits

        Raises `InvalidInput` for a connection to another database.
        """
        return JoinedBlock(self._runtime, connection)

    # -- waiting -------------------------------------------------------------------------------------------------------
    @dual
    def gather(self, /, *handles: Handle[R]) -> Coroutine[Any, Any, list[R]]:
        """Wait for runs, and return their results in the order of the handles: `await app.gather(*handles)`.

        Raises the first exception of a run; the other runs continue.
        """
        _check_handles("gather", handles)
        runs = [(handle.id, handle._codec) for handle in handles]  # noqa: SLF001  (its other half)
        return current_caller(self._runtime).results(runs)

    @dual
    def first(self, /, *handles: Handle[R]) -> Coroutine[Any, Any, Handle[R]]:
        """Wait for the first run to end, in any way, and return its handle. The other runs continue."""
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
        """Send a message to a run, which receives it once. A second message with the same `key` is not stored.

        Raises `NotFound` for an unknown run.
        """
        label, _ = named(topic, "topic")
        return verbs.send(self._runtime, [Message(run_id, topic, message, key=key)], label)

    @dual
    def send_many(self, /, messages: Iterable[Message]) -> Coroutine[Any, Any, None]:
        """Send messages in one commit, all or none: `app.send_many([Message(run_id, topic, value), …])`.

        Raises `NotFound` if one of the runs is unknown.
        """
        return verbs.send(self._runtime, check_several("what send_many takes", messages), "send_many")

    @property
    def get_event(self) -> GetEvent:
        """Wait for the value of an event of a run: `await app.get_event(run_id, key, timeout=…)`.

        Returns None after `timeout`, or if the run ends without the value. Raises `NotFound` for an unknown run.
        """
        return GetEvent(self)

    @dual
    def get_events(self, /, run_id: str) -> Coroutine[Any, Any, dict[str, Any]]:
        """Return the present values of all events of a run, by key. Raises `NotFound` for an unknown run."""
        return verbs.get_events(self._runtime, run_id)

    @property
    def read_stream(self) -> ReadStream:
        """Read a stream of a run, until it is closed or the run ends: `async for value in app.read_stream(run_id, key):`.

        `offset` is the number of values to pass over. Raises `StillRunning`, a `TimeoutError`, if the next value does not come
        within `timeout`, and `NotFound` for an unknown run.
        """
        return ReadStream(self)

    @property
    def ask(self) -> Ask:
        """Ask a run a question and wait for the answer: `await app.ask(run_id, question, value, timeout=…)`.

        Raises `Refused` if the run does not accept the question, `NotAnswered` if it ends without an answer, `StillRunning` after
        `timeout`, and the exception of the handler.
        """
        return Ask(self)


def _check_handles(verb: str, handles: Sequence[object]) -> None:
    for each in handles:
        if not isinstance(each, Handle):
            raise InvalidInput(f"{verb} takes handles of runs, one by one: {verb}(*handles), not {each!r}")


def runtime_of(app: ClientApi) -> Runtime:
    """The runtime of an app or client, for other parts of the library."""
    return app._runtime  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


class _Unknown:
    """The signature of a function whose code this process does not have. The worker checks the arguments."""

    result = PLAIN_JSON

    def bind_and_encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        return encode_call(args, kwargs)


class Starter(Generic[R]):
    """Starts runs with some options: `client.options(queue="slow").start("checkout", order)`."""

    _spelled = "client.options(…)"

    def __init__(self, runtime: Runtime, options: Options) -> None:
        self._runtime = runtime
        self._options = options

    def bind(self, name: str, /, *args: Any, **kwargs: Any) -> Call[R]:
        """Return a call of a function by its name as a value, for a schedule for example."""
        if not check_name("the name of a function, which comes first,", name).strip():
            raise InvalidInput(f"the name of a workflow comes first, not {name!r}")
        return Call(self._runtime, _function(self._runtime, name), args, kwargs, self._options)

    @dual
    def start(self, name: str, /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Handle[R]]:
        """Start a function by its name. A client cannot check the name: if no worker knows the function, the run waits until one does."""
        return start_one(self._runtime, self.bind(name, *args, **kwargs))


def _function(runtime: Runtime, name: str) -> Function:
    if runtime.has_no_code:
        return Function(name, "workflow", encode_call, is_async=True, codec=cast("CallCodec", _Unknown()), source="")
    try:
        return runtime.registry.get(name)
    except UnknownFunction as error:
        raise UnknownFunction(f"{error}. A function of another app is started by a Client of its database") from None


class ByName(Generic[R]):
    """The verbs of apps and clients that take the name of a function."""

    _spelled = ""

    @property
    def _runtime(self) -> Runtime:
        raise NotImplementedError

    def options(self, **given: Unpack[OptionArguments]) -> Starter[R]:
        """Return a starter with options: `client.options(queue="slow").start("checkout", order)`."""
        return Starter(self._runtime, Options().with_(given))

    def bind(self, name: str, /, *args: Any, **kwargs: Any) -> Call[R]:
        """Return a call of a function by its name: `client.schedules.create("nightly", client.bind("report", "eu"), spec)`."""
        return self.options().bind(name, *args, **kwargs)

    @dual
    def start(self, name: str, /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Handle[R]]:
        """Start a function by its name: `await app.start("checkout", order)`. Inside a run the new run is a child, as with `fn.start`.

        An app raises `UnknownFunction` for a name that it does not know. A client cannot check names: such a run waits for a worker.
        """
        return start_one(self._runtime, self.bind(name, *args, **kwargs))
