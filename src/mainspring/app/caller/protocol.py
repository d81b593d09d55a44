"""What a verb can ask of the place it is called from: plain code, a run, a step, or an open transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from mainspring.app.functions.invocation import Invocation
    from mainspring.app.functions.options import Duration, Options
    from mainspring.app.runtime import Runtime
    from mainspring.codec import ValueCodec
    from mainspring.engine.registry import Function
    from mainspring.engine.replay.execution import Quota
    from mainspring.model.clock import Clock
    from mainspring.model.runs import StepKind
    from mainspring.operations.runs.bulk import Found
    from mainspring.store.external.join import Inside
    from mainspring.store.messages import Post, Table
    from mainspring.store.protocol import Store

R = TypeVar("R")
S = TypeVar("S")


class StartedRun(Struct, frozen=True):
    """A run that a verb started, or found under the same id or key."""

    id: str
    created: bool


class Caller(Protocol):
    """One place that verbs are called from. What is wrong with a call is an error now, the rest happens when it is awaited.

    In a run each verb is an operation: what it came to is recorded once, and a replay gets the same. In a transaction it is part
    of the transaction. In a step, ids and keys are the same in every attempt. In plain code it simply happens.
    """

    runtime: Runtime

    @property
    def quota(self) -> Quota | None:
        """What this execution has scheduled so far; None in plain code, which has no limit."""
        ...

    @property
    def held_clock(self) -> Clock | None:
        """The clock, if the caller is a blocking run, which keeps civil time from passing while it executes."""
        ...

    # -- colours -------------------------------------------------------------------------------------------------------
    def refuse_coroutine(self, instead: str) -> None:
        """Raise `WrongColour` where nothing could await a coroutine."""
        ...

    def block(self, work: Coroutine[Any, Any, R]) -> R:
        """Execute a verb that was called here, and wait for it on this thread."""
        ...

    # -- functions -----------------------------------------------------------------------------------------------------
    def call(
        self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options
    ) -> Coroutine[Any, Any, Any]:
        """Call a workflow, step or transaction and wait for what it comes to."""
        ...

    def call_blocking(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Any:
        """The same on this thread."""
        ...

    def start(self, calls: Sequence[Invocation]) -> Coroutine[Any, Any, list[StartedRun]]:
        """Start runs in one commit."""
        ...

    def start_later(self, call: Invocation, text: str, time: Callable[[int], int]) -> Coroutine[Any, Any, StartedRun]:
        """Schedule a function with arguments as stored. `time` says, given the time of scheduling it, when it is to run."""
        ...

    # -- waiting -------------------------------------------------------------------------------------------------------
    def result(self, run_id: str, codec: ValueCodec | None, timeout: Duration | None) -> Coroutine[Any, Any, Any]:
        """Wait for a run to end: its result, or its exception. Without a codec its own function says how to decode it."""
        ...

    def results(self, runs: Sequence[tuple[str, ValueCodec | None]]) -> Coroutine[Any, Any, list[Any]]:
        """The results of several runs. The first exception is raised."""
        ...

    def first(self, ids: Sequence[str]) -> Coroutine[Any, Any, int]:
        """Wait until one of several runs has ended, however it ends: which."""
        ...

    # -- messages ------------------------------------------------------------------------------------------------------
    def send(self, posts: list[Post], label: str) -> Coroutine[Any, Any, None]:
        """Send messages, all of them or none."""
        ...

    def publish(self, verb: StepKind, table: Table, key: str, value: str | None) -> Coroutine[Any, Any, None]:
        """Set an event, or append to a stream, of the run that this is part of."""
        ...

    def get_event(self, run_id: str, key: str, codec: ValueCodec, timeout: Duration | None) -> Coroutine[Any, Any, Any]:
        """Wait for an event of a run."""
        ...

    def read_stream(
        self, run_id: str, key: str, codec: ValueCodec, offset: int, timeout: Duration | None
    ) -> AsyncIterator[Any]:
        """The values of a stream as they come, each within `timeout`."""
        ...

    def ask(self, post: Post, codec: ValueCodec, timeout: Duration | None) -> Coroutine[Any, Any, Any]:
        """Ask a run something and wait for its answer."""
        ...

    # -- the store -----------------------------------------------------------------------------------------------------
    def read(self, label: str, kind: Any, question: Callable[[Store], R]) -> Coroutine[Any, Any, R]:
        """Ask the store something. `kind` is the type of the answer, for the record."""
        ...

    def read_inside(
        self, label: str, kind: Any, question: Callable[[Store | Inside, str | None], R]
    ) -> Coroutine[Any, Any, R]:
        """The same of what works inside a transaction too, where it sees what the transaction has done. `question` is also given a
        name for the operation that asks, the same when it is retried; None in plain code.
        """
        ...

    def change(self, label: str, kind: Any, work: Callable[[Store | Inside, str | None], R]) -> Coroutine[Any, Any, R]:
        """Change something in the store; in a run by the commit that records the answer, so it happens once."""
        ...

    def change_in_parts(
        self,
        label: str,
        kind: Any,
        enter: Callable[[Store | Inside, str | None], S],
        parts: Sequence[Callable[[S], dict[str, str]]],
    ) -> Coroutine[Any, Any, dict[str, str]]:
        """Make several changes of what `enter` makes of a store, in order. In a run each has a commit of its own, so none is large."""
        ...

    def change_found(
        self,
        label: str,
        find: Callable[[Store, str | None], Found],
        act: Callable[[Store | Inside, list[str]], dict[str, bool]],
        *,
        fences: bool = False,
    ) -> Coroutine[Any, Any, dict[str, bool]]:
        """Do something to all runs that `find` finds, given where to go on, a batch at a time: those it was done to.

        In a run the run itself, and those it descends from, come last, since it may be over then. `fences`: it certainly is, and
        records nothing more.
        """
        ...

    def cancel(self, label: str, ids: Sequence[str], reason: str | None) -> Coroutine[Any, Any, dict[str, bool]]:
        """Cancel runs. A step or transaction that is a run of its own does not cancel itself."""
        ...

    def terminate(self, ids: Sequence[str], reason: str | None) -> Coroutine[Any, Any, dict[str, bool]]:
        """End runs at once."""
        ...
