"""The protocol of callers: how a verb is carried out in plain code, in a run, in a step, or in an open transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

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

if TYPE_CHECKING:
    Args: TypeAlias = tuple[Any, ...]
    Kwargs: TypeAlias = dict[str, Any]
    Work: TypeAlias = Callable[[Store | Inside, str | None], R]
    """Works on a store, or on its part inside a transaction. The second argument names the operation, the same in each attempt."""
    Parts: TypeAlias = Sequence[Callable[[S], dict[str, str]]]
    Find: TypeAlias = Callable[[Store, str | None], Found]
    """Finds the next batch of runs, from the place on that the batch before it returned."""
    ActOn: TypeAlias = Callable[[Store | Inside, list[str]], dict[str, bool]]
    """Changes runs. Returns which were changed."""


class StartedRun(Struct, frozen=True):
    """A run that a verb started, or found under the same id or key."""

    id: str
    created: bool


class Caller(Protocol):
    """The context from which a verb is called. A wrong call raises at once; the verb is carried out when it is awaited.

    In a run each verb is an operation: its outcome is recorded once, and a replay returns it. In a transaction the verb is part of the
    transaction. In a step, ids and keys are the same in every attempt. In plain code the verb has no record.
    """

    runtime: Runtime

    @property
    def quota(self) -> Quota | None:
        """The functions that this execution has scheduled so far. None in plain code, which has no limit."""
        ...

    @property
    def held_clock(self) -> Clock | None:
        """The clock, if the caller is a `def` run, which holds a virtual clock while it executes."""
        ...

    # -- colours -------------------------------------------------------------------------------------------------------
    def refuse_coroutine(self, instead: str) -> None:
        """Raise `WrongColour` where nothing could await a coroutine."""
        ...

    def block(self, work: Coroutine[Any, Any, R]) -> R:
        """Execute a verb that was called here, and wait for it on this thread."""
        ...

    # -- functions -----------------------------------------------------------------------------------------------------
    def call(self, function: Function, args: Args, kwargs: Kwargs, options: Options) -> Coroutine[Any, Any, Any]:
        """Call a workflow, step or transaction and wait for its outcome."""
        ...

    def call_blocking(self, function: Function, args: Args, kwargs: Kwargs, options: Options) -> Any:
        """Call a workflow, step or transaction on this thread."""
        ...

    def start(self, calls: Sequence[Invocation]) -> Coroutine[Any, Any, list[StartedRun]]:
        """Start runs in one commit."""
        ...

    def start_later(self, call: Invocation, text: str, time: Callable[[int], int]) -> Coroutine[Any, Any, StartedRun]:
        """Schedule a function with encoded arguments. `time` computes its due time from the time of scheduling."""
        ...

    # -- waiting -------------------------------------------------------------------------------------------------------
    def result(self, run_id: str, codec: ValueCodec | None, timeout: Duration | None) -> Coroutine[Any, Any, Any]:
        """Wait for the end of a run: return its result or raise its exception. Without a codec its own function decodes it."""
        ...

    def results(self, runs: Sequence[tuple[str, ValueCodec | None]]) -> Coroutine[Any, Any, list[Any]]:
        """Wait for several runs, and return their results. Raises the first exception."""
        ...

    def first(self, ids: Sequence[str]) -> Coroutine[Any, Any, int]:
        """Wait until one of several runs has ended in any way. Return its id."""
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
        """Iterate over the values of a stream. Each must come within `timeout`."""
        ...

    def ask(self, post: Post, codec: ValueCodec, timeout: Duration | None) -> Coroutine[Any, Any, Any]:
        """Ask a run something and wait for its answer."""
        ...

    # -- the store -----------------------------------------------------------------------------------------------------
    def read(self, label: str, kind: Any, question: Callable[[Store], R]) -> Coroutine[Any, Any, R]:
        """Query the store. `kind` is the type of the answer, for the record."""
        ...

    def read_inside(self, label: str, kind: Any, question: Work[R]) -> Coroutine[Any, Any, R]:
        """Query the store, inside a transaction with the changes of that transaction.

        `question` also gets a name of the operation that asks, the same in each attempt; None in plain code.
        """
        ...

    def change(self, label: str, kind: Any, work: Work[R]) -> Coroutine[Any, Any, R]:
        """Change something in the store. In a run the change and the record of the answer are one commit, so it happens once."""
        ...

    def change_in_parts(self, label: str, enter: Work[S], parts: Parts[S]) -> Coroutine[Any, Any, dict[str, str]]:
        """Make several changes in order, on what `enter` makes of a store. In a run each is a commit of its own, so that none is large."""
        ...

    def change_found(
        self, label: str, find: Find, act: ActOn, *, fences: bool = False
    ) -> Coroutine[Any, Any, dict[str, bool]]:
        """Change all runs that `find` finds, in batches. Return the runs that were changed. `find` gets the place to continue from.

        In a run, the run itself and its ancestors come last, because the change may end it. `fences`: the change certainly ends it, and
        nothing more is recorded.
        """
        ...

    def cancel(self, label: str, ids: Sequence[str], reason: str | None) -> Coroutine[Any, Any, dict[str, bool]]:
        """Cancel runs. A step or transaction that is a run of its own does not cancel itself."""
        ...

    def terminate(self, ids: Sequence[str], reason: str | None) -> Coroutine[Any, Any, dict[str, bool]]:
        """End runs at once."""
        ...
