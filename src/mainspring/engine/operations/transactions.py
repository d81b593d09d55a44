"""A transaction as an operation of a run: one commit records its outcome and its effects.

If the database rolls the transaction back because of a conflict, it is retried after a short pause. If the answer to the commit
is lost, the record tells whether the transaction was committed. A second commit would conflict with that record, so the
transaction is committed exactly once.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct, field

from mainspring.codec import encode_exception
from mainspring.engine.effects import (
    Commit,
    Consult,
    Effect,
    Nap,
    active_write,
    await_turn,
    conclude,
    frontier,
    notify_listeners,
    outcome,
    raise_if_refused,
    raise_if_stopping,
    replayed,
)
from mainspring.engine.registry import Bound
from mainspring.engine.replay.context import StepScope, TransactionScope, current
from mainspring.engine.replay.signals import Lost, Stopped
from mainspring.engine.residency.phases import Phase
from mainspring.engine.retry import Retry
from mainspring.engine.users_code import EXITS, await_here, call_here, error_of, exits_of, was_closed
from mainspring.errors import InTransaction, StoreError
from mainspring.model.clock import SECOND
from mainspring.model.runs import Step
from mainspring.model.states import State
from mainspring.store.external.colours import finished
from mainspring.store.external.deferred import Deferred
from mainspring.store.external.other_database import Way
from mainspring.store.external.outcomes import Key, Outcome, generation_of
from mainspring.store.external.tx import Again, Wants
from mainspring.store.writes import Complete, RecordStep, StoppedFirst, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.codec import ValueCodec
    from mainspring.engine.effects import Flow
    from mainspring.engine.registry import Function
    from mainspring.engine.replay.execution import Execution
    from mainspring.model.runs import Run, StepKind
    from mainspring.store.external.join import Inside
    from mainspring.store.external.other_database import OtherDatabase
    from mainspring.store.external.transactions import Session, Within
    from mainspring.store.sql.dialect import Sql
    from mainspring.store.transaction import Values

R = TypeVar("R")
log = logging.getLogger("mainspring.engine")
_OWN_RUN = (
    "{name} ends, deletes or takes away the run {run} that it is part of, so there would be nothing left to record it in; "
    "nothing of it was done. Return or raise instead, or do that from outside"
)
_SHORTEST_IDLE = 1.0
"""Seconds. A process on a busy machine may need this long between two statements of a transaction."""
_BACK_OFF = Retry(2**62, first=0.005, factor=2, cap=1, jitter=1)


class Unrecorded(Exception):
    """The record was refused: another worker owns the run, or this outcome is already recorded."""


class TransactionCall(Struct):
    """A transaction to execute: the function, its arguments, and the position of its connection parameter."""

    name: str
    fn: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    is_async: bool
    result: ValueCodec
    wants: Wants
    place: int
    isolation: str | None
    database: OtherDatabase | None = None
    """The database of the transaction, if not the app's own."""
    within: Within | None = None
    """Opens the transaction, if it is executed on a connection of the user's."""
    kind: StepKind = "transaction"
    """The kind under which the transaction is recorded."""
    of_library: bool = False
    """Whether the function is the library's own, which works with the store inside the transaction."""

    @classmethod
    def of(cls, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TransactionCall:
        assert function.wants is not None  # noqa: S101
        return cls(
            function.name,
            function.fn,
            args,
            kwargs,
            function.is_async,
            function.codec.result,
            function.wants,
            0 if function.bound is Bound.NOT else 1,
            function.isolation,
            function.database,
            function.within,
        )

    @classmethod
    def of_own(cls, name: str, work: Callable[[Inside], Any], result: ValueCodec) -> TransactionCall:
        """Return a change that the library makes in the store, recorded as a step."""
        return cls(
            name=name,
            fn=work,
            args=(),
            kwargs={},
            is_async=False,
            result=result,
            wants=Wants.TX,
            place=0,
            isolation=None,
            kind="step",
            of_library=True,
        )

    def made(self, session: Session) -> Any:
        """Call the function with its connection or session and its arguments."""
        if self.of_library:
            return session.joined.within(self.fn)
        given = session.give(self.wants)
        args = self.args if self.wants is Wants.NOTHING else (*self.args[: self.place], given, *self.args[self.place :])
        return await_here(self.fn(*args, **self.kwargs)) if self.is_async else call_here(self.fn, *args, **self.kwargs)


class Transact(Effect):
    """Execute the user's function of a transaction, and commit its outcome together with its rows."""

    call: TransactionCall
    record: Step
    forgotten: int = 0
    """The epoch in which a retry of the run last forgot this transaction. Part of its key from then on."""
    whole: bool = False
    """Whether the transaction is the whole run, so that the run ends in its commit."""
    doubt: bool = False
    """Whether the answer to the commit of an attempt was lost, so that the attempt may have committed."""
    stopping: bool = False
    """Whether the transaction committed after the run was asked to stop."""
    locks: list[tuple[Sql, Values]] = field(default_factory=list["tuple[Sql, Values]"])
    """The statements that earlier attempts were refused; see `Again`."""


def transaction(ex: Execution, position: str, call: TransactionCall) -> Flow:
    """Execute a transaction once, and return its outcome."""
    recorded = ex.recall(position, call.kind, call.name)
    if recorded is not None and recorded.completed is not None:
        return (yield from replayed(ex, recorded, call.result))
    yield from frontier(ex, position)
    record = recorded or Step(ex.id, position, call.kind, call.name, started=ex.begins())
    record.epoch = ex.epoch
    failed = 0
    effect = Transact(call, record, whole=ex.function.kind == "transaction")
    if call.database is not None:
        effect.forgotten = ex.history.edition(position).succeeded
    while (made := (yield from _attempt(ex, effect))) is False:
        failed += 1
        yield Nap(pause(failed, f"{ex.engine.worker_id}/{ex.id}/{record.position}"))
        if ex.signal is not None:
            raise ex.signal
    if made is not True:
        if not effect.doubt:
            _give_back_seq(ex, record)
            return (yield from conclude(ex, record, call.result, error=made))
        yield from _conclude_in_doubt(ex, effect, made)
    if ex.stored_as_waiting:
        ex.move(Phase.RUNNING)
    assert record.seq is not None  # noqa: S101
    notify_listeners(ex, record)
    raise_if_stopping(ex, effect)
    yield from await_turn(ex, record, record)
    return outcome(ex, record, call.result)


def _attempt(ex: Execution, effect: Transact) -> Flow:
    """Attempt the transaction. Return True if it was committed, False if it must be retried, or the exception it raised."""
    record = effect.record
    record.attempts += 1
    try:
        yield effect
    except Again as again:
        again.add_to(effect.locks)
        if not effect.doubt:
            _give_back_seq(ex, record)
        return False
    except (StoreError, Unrecorded) as refused:
        return (yield from _looked_up(ex, effect, refused))
    except StoppedFirst:
        _give_back_seq(ex, record)
        ex.engine.halting.halt(ex, Stopped("timeout") if _is_late(ex, ex.engine.clock.now()) else Stopped())
        raise ex.signal or Stopped() from None
    except Exception as error:  # noqa: BLE001  (whatever the user's function raises is the outcome)
        if effect.doubt or record.seq is not None:
            return (yield from _explained(ex, effect, error))
        return error
    return True


def _explained(ex: Execution, effect: Transact, error: Exception) -> Flow:
    """Return an attempt's result like `_attempt`, for an exception that its own or an earlier commit may have caused."""
    database = effect.call.database
    if (yield from _is_recorded(ex, effect)):
        return True
    if database is not None:
        transactions = ex.engine.store.transactions
        made = yield Consult(lambda: database.find(_way(ex, effect, transactions.store_id())))
        return False if made is not None else error
    return error


def _is_recorded(ex: Execution, effect: Transact) -> Flow:
    """Whether the transaction's outcome is recorded. If so, copy it to the effect's record."""
    record, store = effect.record, ex.engine.store
    found: Step | None = yield Consult(lambda: store.step(record.run, record.position))
    if found is None or found.completed is None or found.epoch != record.epoch:
        return False
    record.seq, record.output, record.error, record.completed = found.seq, found.output, found.error, found.completed
    if effect.whole:
        run: Run | None = yield Consult(lambda: store.run(record.run))
        if run is not None and run.epoch == record.epoch and run.state is State.SUCCEEDED:
            ex.ended_with = run.output
    return True


def _conclude_in_doubt(ex: Execution, effect: Transact, error: Exception) -> Flow:
    """Record an exception while an earlier attempt may still be committing: the outcome that is recorded first counts."""
    record = effect.record
    reserved, record.seq = record.seq, ex.history.take_seq()
    written = record.seq
    record.output, record.error, record.completed = None, encode_exception(error), ex.engine.clock.now()
    answer = yield Commit(active_write(ex, record), record)
    if answer.verdict is Verdict.FENCED and (yield from _is_recorded(ex, effect)):
        ex.history.delivery.skip(written)
        return
    raise_if_refused(ex, answer)
    raise_if_stopping(ex, answer)
    if reserved is not None:
        ex.history.delivery.skip(reserved)


def _looked_up(ex: Execution, effect: Transact, refused: Exception) -> Flow:
    """Return an attempt's result like `_attempt`, after a lost answer or a refused record: what is recorded decides."""
    record, store = effect.record, ex.engine.store
    if (yield from _is_recorded(ex, effect)):
        return True
    if isinstance(refused, Unrecorded):
        run: Run | None = yield Consult(lambda: store.run(record.run))
        if run is not None and (run.owner, run.epoch) == (ex.engine.worker_id, ex.epoch):
            return InTransaction(_OWN_RUN.format(name=record.name, run=record.run))
        ex.engine.halting.halt(ex, Lost())
        raise ex.signal or Lost()
    effect.doubt = True
    log.warning("run %s: transaction %s is retried: %s", ex.id, record.name, refused)
    return False  # the seq of the outcome stays reserved


def _is_late(ex: Execution, now: int) -> bool:
    return ex.run.deadline is not None and now >= ex.run.deadline


def _give_back_seq(ex: Execution, record: Step) -> None:
    """Release the seq of an outcome that was certainly not recorded."""
    if record.seq is not None:
        ex.history.delivery.skip(record.seq)
        record.seq = None


def pause(failed: int, seed: str) -> float:
    """Return the seconds before the next attempt: growing and random, so that colliding transactions do not collide again."""
    return (_BACK_OFF.pause(failed, Again(), seed) or 0) / SECOND


# -- inside the database transaction -----------------------------------------------------------------------------------
def make(ex: Execution, effect: Transact) -> None:
    """Execute a `def` transaction on this thread."""
    call, transactions = effect.call, ex.engine.store.transactions
    if call.database is not None:
        finished(_make_in_other_database(ex, effect, call.database))
    elif call.within is not None:
        transactions.transact_within(call.within, lambda session: finished(_work(ex, effect, session)))
    else:
        transactions.transact(lambda session: finished(_work(ex, effect, session)), call.wants, call.isolation)


async def make_async(ex: Execution, effect: Transact) -> None:
    """Execute an `async def` transaction on the loop, in a task of its own, so that its driver's waits are not the workflow's."""
    call, record = effect.call, effect.record
    current.set(StepScope(ex, record.position, record.attempts, record.name))
    if call.database is not None:
        await _make_in_other_database(ex, effect, call.database)
    else:
        await ex.engine.store.transactions.atransact(partial(_work, ex, effect), call.wants, call.isolation)


# The rest is written once: a coroutine that does not suspend where the function is `def` (`store/external/colours.py`).
async def _work(ex: Execution, effect: Transact, session: Session) -> None:
    if effect.locks:
        await session.joined.lock(effect.locks)
    text = await _called(ex, effect, _scope(ex, effect, session), session)
    write, now = _record(ex, effect, text)
    _note(ex, effect, await session.record(write, now))


class _Inside:
    """The context of the user's function: verbs join the transaction, and spans belong to the transaction's span."""

    __slots__ = ("_leave", "_scope")

    def __init__(self, ex: Execution, effect: Transact, scope: TransactionScope) -> None:
        around = ex.engine.around
        self._leave = None if around is None else around(ex.run, effect.record.position)
        self._scope = scope

    def __enter__(self) -> None:
        self._scope.__enter__()

    def __exit__(self, *exc: object) -> None:
        self._scope.__exit__(*exc)
        if self._leave is not None:
            self._leave()


async def _called(ex: Execution, effect: Transact, scope: TransactionScope, session: Session) -> str:
    """Call the function inside the open transaction. Return its result as stored."""
    call = effect.call
    exits = EXITS if call.is_async else exits_of(ex)
    with _Inside(ex, effect, scope):
        try:
            made = call.made(session)
            value = await made if call.is_async else made
        except exits as error:
            if was_closed(error):
                raise
            raise error_of(error, f"transaction {call.name!r}") from error
    await session.flush()
    return _encoded(ex, effect, value)


async def _make_in_other_database(ex: Execution, effect: Transact, database: OtherDatabase) -> None:
    """Execute a transaction in another database, then record it in the app's own, with the writes it deferred.

    Only the first attempt can skip the lookup whether the transaction was committed before.
    """

    async def there(session: Session) -> Outcome:
        scope = _scope_elsewhere(ex, effect, session)
        return _sealed_outcome(ex, await _called(ex, effect, scope, session), scope.wishes.encode())

    async def blocking(work: Callable[..., R], *args: Any) -> R:
        return await ex.engine.in_thread(work, *args) if effect.call.is_async else work(*args)

    way = _way(ex, effect, await blocking(ex.engine.store.transactions.store_id))
    found = await database.once(way, there, effect.call.wants, lambda: blocking(_check_owner, ex, effect))
    await blocking(_record_elsewhere, ex, effect, found)
    database.recorded(way.key)


def _way(ex: Execution, effect: Transact, store: str) -> Way:
    record = effect.record
    key = Key(ex.run.uid, generation_of(ex.run.generation, effect.forgotten), record.position)
    first = record.attempts == 1 and ex.epoch <= 1
    return Way(
        key, store, effect.call.isolation, look=not first, idle=max(ex.engine.settings.lease / 2, _SHORTEST_IDLE)
    )


def _check_owner(ex: Execution, effect: Transact) -> None:
    """Refuse the commit in another database if another worker owns the run, or if the run is only this and was stopped."""
    state = ex.engine.store.owned_state(ex.engine.worker_id, ex.id, ex.epoch)
    if state is None:
        raise Unrecorded
    if effect.whole and (state is State.CANCELLING or _is_late(ex, ex.engine.clock.now())):
        raise StoppedFirst


def _scope_elsewhere(ex: Execution, effect: Transact, session: Session) -> TransactionScope:
    record = effect.record
    step = StepScope(ex, record.position, record.attempts, record.name)
    return TransactionScope(
        ex.engine.home, None, elsewhere=session, database=effect.call.database, step=step, recorded=True
    )


def _record_elsewhere(ex: Execution, effect: Transact, found: Outcome) -> None:
    """Record in the app's own database the outcome committed in another one, with the writes it deferred."""
    payloads = ex.engine.store.transactions.payloads
    output, deferred = found.output, found.deferred
    if payloads is not None:
        what = f"the outcome of {effect.record.name!r} of run {ex.id}"
        output, deferred = payloads.open(output, what), payloads.open(deferred, what)

    def here(session: Session) -> None:
        write, now = _record(ex, effect, output)
        wishes = Deferred.decode(deferred)
        session.joined.run((wishes if payloads is None else wishes.sealed(payloads)).carry_out, now)
        _note(ex, effect, finished(session.record(write, now)))

    ex.engine.store.transactions.transact(here)


def _sealed_outcome(ex: Execution, output: str, deferred: str) -> Outcome:
    """Return the outcome that is stored in the other database, sealed if the app has a payload codec."""
    payloads = ex.engine.store.transactions.payloads
    if payloads is None:
        return Outcome(output, deferred)
    what = f"the outcome of a transaction of run {ex.id}"
    return Outcome(payloads.seal(output, what), payloads.seal(deferred, what))


def _note(ex: Execution, effect: Transact, state: State | None) -> None:
    if state is None:
        raise Unrecorded
    effect.stopping = state is State.CANCELLING
    if state is State.SUCCEEDED:
        ex.ended_with = effect.record.output


def _scope(ex: Execution, effect: Transact, session: Session) -> TransactionScope:
    step = StepScope(ex, effect.record.position, effect.record.attempts, effect.record.name)
    return TransactionScope(ex.engine.home, None, session=session, step=step, recorded=True)


def _encoded(ex: Execution, effect: Transact, value: Any) -> str:
    text = effect.call.result.encode(value)
    return ex.engine.check_size(text, value, f"the result of transaction {effect.call.name!r}")


def _record(ex: Execution, effect: Transact, text: str) -> tuple[RecordStep, int]:
    write, now = _written(ex, effect, text)
    payloads = ex.engine.store.transactions.payloads
    if payloads is None:
        return write, now
    from mainspring.store.sealing.records import sealed  # noqa: PLC0415  (only where values are sealed)

    return sealed(payloads, write), now


def _written(ex: Execution, effect: Transact, text: str) -> tuple[RecordStep, int]:
    record = effect.record
    record.output = text
    record.completed = now = ex.engine.clock.now()
    if record.seq is None:
        record.seq = ex.history.take_seq()
    if effect.whole:
        kept = effect.call.database is not None
        if not _is_late(ex, now):
            return Complete(ex.engine.worker_id, record, kept=kept), now
        if not kept:
            raise StoppedFirst
    write = RecordStep(ex.engine.worker_id, record)
    if ex.stored_as_waiting:
        write.run_state, write.due = State.RUNNING, now
    return write, now
