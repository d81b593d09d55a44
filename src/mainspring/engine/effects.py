"""The effects of operations, and the parts that all operations share: recording an outcome, and delivering it to the code.

An operation is a generator of effects, which a driver performs: one driver awaits, for `async def` runs, the other blocks, for
`def` runs. The operation decides what is recorded; the driver decides how to wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, cast

from msgspec import Struct

from mainspring.codec import decode_exception, encode_exception
from mainspring.engine.replay.asyncio_sleep_warning import not_durable_until
from mainspring.engine.replay.signals import HandedBack, Lost, Stopped
from mainspring.engine.residency.phases import Phase
from mainspring.errors import Conflict, MainspringError, NotSerializable, RemoteError, RunCancelled, RunTimedOut
from mainspring.model.retry_scope import UNDO
from mainspring.model.states import State
from mainspring.store.writes import RecordStep, Verdict

if TYPE_CHECKING:
    import asyncio

    from mainspring.codec import ValueCodec
    from mainspring.engine.replay.execution import Execution, Wait
    from mainspring.model.runs import Ending, Step
    from mainspring.store.committer import Reply
    from mainspring.store.writes import Op, Recorded


class Effect(Struct):
    """What an operation requests from its driver. An effect of one kind of operation stands beside that operation."""


class Commit(Effect):
    """Commit a write and return its answer. `final` is the outcome that the write records, if it records one."""

    op: Op
    final: Step | None = None
    begins: Step | None = None
    """The wait whose beginning the write records. If the code cancels it before the answer, it is abandoned."""


class Pause(Effect):
    """Wait until a registered wait is resolved. `record` is the step that records its beginning."""

    wait: Wait
    record: Step


class Hold(Effect):
    """Await a future of the engine: a turn, or the end of the record. `final` is the outcome that waits for its turn."""

    future: asyncio.Future[Any]
    final: Step | None = None


class Forever(Effect):
    """Wait until the workflow's own code cancels the operation, as it did when this was recorded."""


class Consult(Effect):
    """Query the database on a thread. Retried while the database is unavailable."""

    question: Callable[[], Any]


class Nap(Effect):
    """Sleep in real time before a retry."""

    seconds: float


Flow = Generator[Effect, Any, Any]


class HasStopping(Protocol):
    """The answer to a write, or a transaction: whether the run had been asked to stop when it was committed."""

    @property
    def stopping(self) -> bool: ...


class Ahead:
    """The commit of an outcome that was delivered already. It cannot be cancelled.

    In a workflow the write is with the committer. In a run that is one step it is kept for the end of the run, so that both are
    one commit.
    """

    __slots__ = ("_ex", "_loop", "_waiting", "_write", "answer", "error", "kept")

    def __init__(self, ex: Execution, write: RecordStep) -> None:
        self._ex: Execution | None = ex
        self._loop = ex.engine.loop
        self._write = write
        self.kept = ex.function.kind == "step"
        """Whether the write is kept for the end of the run, and not with the committer yet."""
        self._waiting: tuple[asyncio.Future[Recorded], ...] = ()
        self.answer: Recorded | None = None
        self.error: Exception | None = None

    def done(self) -> bool:
        """Whether the commit was answered."""
        return self.answer is not None or self.error is not None

    @property
    def refused(self) -> bool:
        """Whether the store refused the write because another worker owns the run."""
        return self.answer is not None and self.answer.verdict is Verdict.FENCED

    def set_result(self, answer: Recorded, /) -> None:
        """Take the answer: the write was committed, or refused because another worker owns the run."""
        self.answer = answer
        ex, self._ex = self._ex, None  # a run that keeps this would keep itself
        if answer.verdict is Verdict.DONE and ex is not None and ex.engine.operations:
            self._loop.call_soon(notify_listeners, ex, self._write.step)
        for each in self._waiting:
            if not each.done():
                each.set_result(answer)

    def set_exception(self, error: Exception, /) -> None:
        """Take the error of a write that the database refused."""
        self.error = error
        self._ex = None
        for each in self._waiting:
            if not each.done():
                each.set_exception(error)

    def commit_with(self, op: Op, reply: Reply) -> None:
        """Commit the kept write together with `op`, whose answer `reply` receives. On the loop, once."""
        assert self._ex is not None  # noqa: S101
        self.kept = False
        self._ex.engine.committer.hand_over_both((self._write, self), (op, reply), self._loop)

    def commit_alone(self) -> asyncio.Future[Recorded]:
        """Commit the kept write by itself. On the loop, once."""
        assert self._ex is not None  # noqa: S101
        self.kept = False
        self._ex.engine.committer.hand_over(self._write, self._loop, self)
        return self.arrival()

    def commit_sync(self, *ops: Op) -> Any:
        """Commit the kept write, and `ops` with it, on the thread of a `def` run. Return the answer to the first of `ops`."""
        ex, self._ex, self.kept = self._ex, None, False
        assert ex is not None  # noqa: S101
        first, *others = ex.engine.committer.commit_all_sync([self._write, *ops])
        if isinstance(first, Exception):
            self.error = first
        else:
            self.answer = cast("Recorded", first)
            if self.answer.verdict is Verdict.DONE:
                notify_listeners(ex, self._write.step)
        for answer in others:
            if isinstance(answer, Exception):
                raise answer
        return others[0] if others else None

    def arrival(self) -> asyncio.Future[Recorded]:
        """Return a future with the answer. Each caller gets its own, so cancelling one does not affect the others."""
        future = self._loop.create_future()
        if self.error is not None:
            future.set_exception(self.error)
        elif self.answer is not None:
            future.set_result(self.answer)
        else:
            self._waiting += (future,)
        return future


def notify_listeners(ex: Execution, record: Step) -> None:
    """Call the listeners of operations with a recorded operation."""
    for listener in ex.engine.operations:
        listener(ex.run, record)


def frontier(ex: Execution, position: str, *, together: bool = False) -> Flow:
    """Hold an operation without a recorded outcome back until all recorded outcomes are delivered.

    A `def` run makes one operation after the other, except those that are made `together`. No operation begins while a suspend of
    the run is being committed, nor when the worker stops.
    """
    if ex.ahead is not None:
        # The last outcome was delivered before its commit. Inlined, because every step passes here.
        try:
            answer = yield Hold(ex.ahead.arrival())
        except MainspringError:
            raise
        except Exception as error:
            raise _refused(ex, "the outcome of a step", error) from error
        ex.ahead = None
        raise_if_refused(ex, answer)
        raise_if_stopping(ex, answer)
    while ex.held_wakes is not None:
        yield Hold(ex.request_answered())
    if not ex.history.delivery.is_over:
        yield from end_of_record(ex, position, together=together)
    if ex.engine.draining and not ex.function.at_most_once and ex.signal is None:
        yield from _hold_back(ex)
    if ex.signal is not None:
        raise ex.signal
    if ex.undoing is not None and not position.startswith(UNDO):
        ex.unwound = True
        raise ex.undoing


def end_of_record(ex: Execution, position: str, *, together: bool = False) -> Flow:
    """Wait until all recorded outcomes are delivered. In a `def` run they are, unless the code disagrees with the record."""
    hold = ex.history.delivery.frontier() if ex.function.on_loop or together else None
    if hold is not None:
        yield Hold(hold)
    elif ex.history.delivery.replaying:
        raise ex.disagree(f"position {position} is new, but the record continues")


def _hold_back(ex: Execution) -> Flow:
    """Keep an operation of a stopping worker from beginning. The run is released when no other operation of it acts."""
    if (
        ex.phase is Phase.ENDING
    ):  # its last tasks are cancelled, and clear something away: the next worker comes to this point again
        ex.signal = ex.signal or HandedBack()
        raise ex.signal
    if ex.function.on_loop:
        held = ex.hold_back()
        ex.engine.halting.hand_back_if_idle(ex)
        yield Hold(held)
    ex.engine.halting.halt(ex, HandedBack())
    raise ex.signal or HandedBack()


def await_turn(ex: Execution, record: Step, final: Step | None = None) -> Flow:
    """Wait until an outcome may be delivered. The compensations of a stop come after all other outcomes, in no order among themselves."""
    if ex.signal is not None:
        raise ex.signal
    assert record.seq is not None  # noqa: S101
    if record.position.startswith(UNDO) and record.seq >= ex.history.beside:
        ex.history.delivery.skip(record.seq)
        hold = ex.history.delivery.frontier() if ex.function.on_loop else None
    else:
        hold = ex.history.delivery.turn(record.seq, alone=ex.alone, is_busy=ex.tasks.is_busy)
    if hold is not None:
        yield Hold(hold, final)


def replayed(ex: Execution, recorded: Step, codec: ValueCodec | None) -> Flow:
    """Deliver a recorded outcome in its turn. If the code cancels the operation first, that is recorded as it is live."""
    if recorded.interrupted or recorded.seq is None:
        yield Forever()
    else:
        yield from await_turn(ex, recorded, recorded)
    return outcome(ex, recorded, codec)


def outcome(ex: Execution, record: Step, codec: ValueCodec | None) -> Any:
    """Return the value, or raise the exception, of a completed operation. Decoded from the record, so live and replay agree."""
    if record.completed is not None:
        ex.history.last_time = record.completed
    if record.error is not None:
        ex.history.failed_at = ex.history.landmark = max(ex.history.landmark, record.completed or 0)
        raise rebuilt(record.error, record.child)
    if codec is None or record.output is None:
        return None
    return codec.decode(record.output)


def conclude(
    ex: Execution,
    record: Step,
    codec: ValueCodec | None,
    *,
    output: str | None = None,
    error: BaseException | None = None,
    error_text: str | None = None,
    with_messages: Callable[[RecordStep], RecordStep] | None = None,
) -> Flow:
    """Record an outcome, wait for its turn, and deliver it. `with_messages` adds the messages sent or received with it."""
    record.output = output
    record.error = encode_exception(error) if error is not None else error_text
    record.completed = ex.engine.clock.now()
    record.seq = ex.history.take_seq()
    ex.history.note_closed(record.position)
    try:
        write = active_write(ex, record)
        if record.kind == "step" and _may_go_ahead(ex, write):
            _go_ahead(ex, write)
            return outcome(
                ex, record, None if ex.output is not None else codec
            )  # the end of the run is recorded as `output`
        yield from commit_or_stop(ex, write if with_messages is None else with_messages(write), final=record)
    except NotSerializable as refused:
        ex.history.delivery.skip(record.seq)
        if isinstance(error, NotSerializable):  # this error itself cannot be stored
            raise
        return (yield from conclude(ex, record, codec, error=refused))
    notify_listeners(ex, record)
    yield from await_turn(ex, record, record)
    return outcome(ex, record, codec)


def _may_go_ahead(ex: Execution, write: RecordStep) -> bool:
    """Whether an outcome may be delivered before it is committed: the run has no other operation or branch.

    In a `def` run, and for an exception, only if nothing but the end of the run can follow.
    """
    record = write.step
    if not ex.alone or write.run_state is not None or record.position.startswith(UNDO):
        return False
    is_last = ex.function.kind == "step" and (record.error is None or ex.run.retry is None)
    if not is_last and (record.error is not None or not ex.function.on_loop):
        return False
    return ex.history.delivery.is_next(record.seq)


def _go_ahead(ex: Execution, write: RecordStep) -> None:
    """Deliver an outcome before it is committed.

    No operation begins before the commit (`frontier`), so a crash cannot undo anything that had an effect. If the run ends next,
    its end and the outcome are one commit. In a run that is one step the outcome is kept for that commit.
    """
    ex.history.delivery.turn(write.step.seq or 0, alone=True)
    ex.ahead = ahead = Ahead(ex, write)
    if ex.function.kind != "step":
        ex.engine.committer.hand_over(write, ex.engine.loop, ahead)


def active_write(ex: Execution, record: Step) -> RecordStep:
    """The write that records the beginning of an attempt, or an outcome. It sets a waiting run back to running."""
    write = RecordStep(ex.engine.worker_id, record)
    if ex.stored_as_waiting or ex.phase is Phase.SUSPENDING:
        write.run_state, write.due = State.RUNNING, ex.engine.clock.now()
        ex.move(Phase.RUNNING)
    return write


def waiting_write(ex: Execution, record: Step) -> RecordStep:
    """The write that records the beginning of a wait. If the run has no other operation or branch, it sets the run to waiting."""
    write = RecordStep(ex.engine.worker_id, record)
    if ex.alone:
        write.run_state = State.WAITING
        limit = not_durable_until(ex) if ex.tasks.timers else None
        if limit is not None:
            write.due = limit.time
    return write


def commit_or_stop(ex: Execution, write: RecordStep, final: Step | None = None) -> Flow:
    """Commit a record. Raises the signal if another worker owns the run or the run was asked to stop."""
    answer = yield from commit(ex, write, final)
    raise_if_stopping(ex, answer)
    return answer


def commit(ex: Execution, write: RecordStep, final: Step | None = None) -> Flow:
    """Commit a record. Raises the signal if the write was refused. `raise_if_stopping` then raises it if the run was asked to stop."""
    try:
        answer = yield Commit(write, final, write.step if write.step.completed is None else None)
    except MainspringError:
        raise
    except Exception as error:
        raise _refused(ex, f"{write.step.kind} {write.step.name!r}", error) from error
    raise_if_refused(ex, answer)
    if write.step.completed is None and answer.verdict is Verdict.DONE:
        ex.history.note_open(write.step)
    if (
        write.run_state is State.WAITING
        and answer.ending is None
        and ex.phase is Phase.RUNNING
        and ex.move(Phase.WAITING)
    ):
        ex.engine.changed(ex, "run.waiting")
    return answer


def _refused(ex: Execution, what: str, error: Exception) -> NotSerializable:
    return NotSerializable(f"the database refused {what} of run {ex.id}: {error}")


def raise_if_refused(ex: Execution, answer: Recorded) -> None:
    """Raise the signal if a write was refused: another worker owns the run, or the run was asked to stop."""
    if answer.verdict is Verdict.FENCED:
        ex.engine.halting.halt(ex, Lost())
        raise ex.signal or Lost()
    if answer.verdict is Verdict.STOPPING:
        _stop(ex)


def raise_if_stopping(ex: Execution, answer: HasStopping) -> None:
    """Raise the signal if the run was asked to stop. The last outcome is recorded, and no operation begins any more."""
    if answer.stopping and ex.undoing is None:
        _stop(ex)


def _stop(ex: Execution) -> NoReturn:
    ex.engine.halting.halt(ex, Stopped())
    raise ex.signal or Stopped()


def error_text(ending: Ending) -> str:
    """The stored exception of a run that did not succeed. A run that was cancelled between two attempts still has that of the last attempt."""
    if ending.error is not None and ending.state is not State.CANCELLED:
        return ending.error
    return encode_exception(failure_of(ending))


def failure_of(ending: Ending) -> BaseException:
    """The exception that a caller gets who waits for a run that did not succeed."""
    if ending.state is State.CANCELLED:
        if ending.reason == "timeout":
            return RunTimedOut(
                f"run {ending.id!r} was cancelled: its timeout passed", run_id=ending.id, reason="timeout"
            )
        why = f": {ending.reason}" if ending.reason else ""
        return RunCancelled(f"run {ending.id!r} was cancelled{why}", run_id=ending.id, reason=ending.reason)
    if ending.error is not None:
        return rebuilt(ending.error, ending.id)
    return MainspringError(f"run {ending.id!r} failed: {ending.reason or 'no reason is recorded'}")


def rebuilt(text: str, run_id: str | None = None) -> Exception:
    """Rebuild the exception of another run or step. A `RemoteError` of a run names the run that was awaited.

    A `BaseException` (a cancellation, an exit) is only described by a `RemoteError`: it must not cancel or end the caller.
    """
    error = decode_exception(text)
    if not isinstance(error, Exception):
        trace: str = getattr(error, "remote_traceback", "")
        described = RemoteError(type(error).__qualname__, str(error), traceback=trace)
        error = described.with_traceback(error.__traceback__)
    if isinstance(error, RemoteError) and run_id is not None:
        error.run_id = run_id
    return error


def key_error(key: str | None, holder: str) -> Conflict:
    return Conflict(f"the key {key!r} is taken by run {holder!r}, which has not ended; nothing was started")


def taken_error(run_id: str, wanted: str, found: str) -> Conflict:
    return Conflict(
        f"run id {run_id!r} belongs to a run of {found!r}, so a run of {wanted!r} cannot have it; choose another id"
    )
