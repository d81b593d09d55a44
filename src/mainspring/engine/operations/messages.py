"""Operations of runs with messages, events and streams: receiving, sending, publishing, and reading from other runs.

All waits have one shape: register the wait in memory, record it, then read. A message that is committed after the read wakes the
wait, and a woken operation reads again. So no message is missed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from mainspring.codec.json_schema import schema_text
from mainspring.engine.effects import (
    Consult,
    Pause,
    active_write,
    await_turn,
    commit_or_stop,
    conclude,
    frontier,
    replayed,
    waiting_write,
)
from mainspring.engine.replay.empty import own
from mainspring.errors import InvalidInput, NotFound, StillRunning
from mainspring.model.runs import Step
from mainspring.store.writes import RecordAndSend, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.codec import ValueCodec
    from mainspring.engine.effects import Flow
    from mainspring.engine.replay.execution import Execution
    from mainspring.model.runs import StepKind
    from mainspring.store.messages import Awaited, Message, Outgoing, Reading
    from mainspring.store.writes import RecordStep


def receive(ex: Execution, position: str, topic: str, until: int | None, codec: ValueCodec) -> Flow:
    """The next message of a topic, or None when the time is over."""
    recorded = ex.recall(position, "receive", topic)
    if recorded is not None and recorded.completed is not None:
        return (yield from replayed(ex, recorded, codec))
    yield from frontier(ex, position)
    record = recorded or Step(ex.id, position, "receive", topic, started=ex.begins(), child=ex.id, due=until)
    record.output = schema_text(codec.annotation)  # until a message is received: what an operator may send
    message: Message | None = None
    try:
        message = yield from await_(ex, record, lambda: unread(ex, topic, question=False), pending=recorded is not None)
        if message is None:
            return (yield from conclude(ex, record, None, output="null"))
        takes = message.number
        return (
            yield from conclude(
                ex, record, codec, output=message.body, with_messages=lambda write: taking(write, takes)
            )
        )
    finally:
        if message is not None:
            unreserve(ex, message.number)
            ex.engine.waits.arrived([(ex.id, "receive", topic)])  # another branch may receive it, if this one did not


def unread(ex: Execution, topic: str, *, question: bool) -> Flow:
    """The first message that was not received yet, reserved for the branch that asks.

    Another branch may have received it before the query was answered. Then the query is repeated.
    """
    while True:
        inbox = ex.engine.store.messages
        before = ex.unreserved
        look = partial(inbox.next, ex.id, topic, question=question, skip=set(ex.reserved))
        found: Message | None = yield Consult(look)
        if found is None:
            return None
        if found.number not in ex.reserved and ex.unreserved == before:
            ex.reserved = own(ex.reserved)
            ex.reserved[found.number] = None
            return found


def unreserve(ex: Execution, number: int) -> None:
    """End the reservation of a message: it was received, or another branch may receive it."""
    ex.reserved.pop(number, None)
    ex.unreserved += 1


def send(ex: Execution, position: str, kind: StepKind, name: str, make: Callable[[], list[Outgoing]]) -> Flow:
    """Send or publish, in one commit with the record of the operation."""
    recorded = ex.recall(position, kind, name)
    if recorded is not None and recorded.completed is not None:
        yield from replayed(ex, recorded, None)
        _note_closed(ex, kind, name)
        return None
    yield from frontier(ex, position)
    now = ex.engine.clock.now()
    record = Step(ex.id, position, kind, name, started=ex.begins(), epoch=ex.epoch, output="null")
    if kind == "write_stream" and name in ex.closed_streams:
        return (yield from conclude(ex, record, None, error=closed_error(ex.id, name)))
    record.completed, record.seq = now, ex.history.take_seq()
    write = with_messages(active_write(ex, record), make())
    answer = yield from commit_or_stop(ex, write, final=record)
    if answer.verdict is Verdict.UNKNOWN:
        ex.history.delivery.skip(record.seq)
        return (yield from conclude(ex, record, None, error=unknown_error(answer.unknown)))
    yield from await_turn(ex, record, record)
    ex.history.last_time = record.completed
    _note_closed(ex, kind, name)
    return None


def _note_closed(ex: Execution, kind: StepKind, name: str) -> None:
    if kind == "close_stream":
        ex.closed_streams = own(ex.closed_streams)
        ex.closed_streams[name] = None


def closed_error(run: str, name: str) -> InvalidInput:
    return InvalidInput(
        f"stream {name!r} of run {run!r} is closed, and its readers have ended; write to it before run.close_stream, or to another stream"
    )


def event(ex: Execution, position: str, run: str, key: str, *, until: int | None, codec: ValueCodec) -> Flow:
    """Wait for the value of an event of another run. None when the time is over or the run has ended without it."""
    recorded = ex.recall(position, "event", key)
    if recorded is not None and recorded.completed is not None:
        return (yield from replayed(ex, recorded, codec))
    yield from frontier(ex, position)
    record = recorded or Step(ex.id, position, "event", key, started=ex.begins(), child=run, due=until)

    def look() -> Flow:
        found: Reading = yield Consult(lambda: ex.engine.store.messages.event(run, key))
        return found if found.entries or found.state is None or found.state.ended else None

    found: Reading | None = yield from await_(ex, record, look, pending=recorded is not None)
    return (yield from _conclude_reading(ex, record, found, run, codec))


def stream(
    ex: Execution, position: str, run: str, key: str, *, offset: int, until: int | None, codec: ValueCodec
) -> Flow:
    """Wait for the value at an offset of another run's stream: a list of one value, or an empty list when the stream is closed."""
    recorded = ex.recall(position, "stream", key)
    if recorded is not None and recorded.completed is not None:
        return (yield from replayed(ex, recorded, codec))
    yield from frontier(ex, position)
    record = recorded or Step(ex.id, position, "stream", key, started=ex.begins(), child=run, due=until)
    record.output = str(offset)  # until the value is there: a suspend of the run compares the stream's length with it

    def look() -> Flow:
        found: Reading = yield Consult(lambda: ex.engine.store.messages.stream(run, key, offset, 1))
        return found if found.entries or found.state is None or found.state.ended else None

    found: Reading | None = yield from await_(ex, record, look, pending=recorded is not None)
    if found is None:
        return (yield from conclude(ex, record, None, error=no_value_error(run, key, offset)))
    if found.state is None:
        return (yield from conclude(ex, record, None, error=NotFound(f"run {run!r} not found")))
    values = [entry.value for entry in found.entries if entry.value is not None]
    return (yield from conclude(ex, record, codec, output=f"[{values[0]}]" if values else "[]"))


def _conclude_reading(ex: Execution, record: Step, found: Reading | None, run: str, codec: ValueCodec) -> Flow:
    if found is not None and found.state is None:
        return (yield from conclude(ex, record, None, error=NotFound(f"run {run!r} not found")))
    value = found.entries[0].value if found is not None and found.entries else None
    return (yield from conclude(ex, record, codec if value is not None else None, output=value or "null"))


def await_(
    ex: Execution, record: Step, look: Callable[[], Flow], *, pending: bool, outgoing: list[Outgoing] | None = None
) -> Flow:
    """Wait until `look` finds something, and return it; None when the time is over. A look before the wait is recorded saves a write.

    `outgoing` is sent with the record of the wait. Raises `NotFound` if there is no receiver; then nothing is recorded.
    """
    record.epoch = ex.epoch
    found: Any = None if pending else (yield from look())
    if found is not None:
        return found
    awaits: Awaited = (record.child or ex.id, record.kind, record.name)
    registered = False
    while True:
        with ex.wait(until=record.due, child=record.child if record.child != ex.id else None, awaits=awaits) as wait:
            if not registered:
                write = waiting_write(ex, record)
                write.watch = record.child if record.child != ex.id else None
                answer = yield from commit_or_stop(ex, write if outgoing is None else with_messages(write, outgoing))
                if answer.verdict is Verdict.UNKNOWN:
                    raise unknown_error(answer.unknown)
                registered = True
            found = yield from look()
            over = record.due is not None and record.due <= ex.engine.clock.now()
            if found is not None or over:
                return found
            yield Pause(wait, record)


def with_messages(write: RecordStep, outgoing: list[Outgoing], takes: int | None = None) -> RecordAndSend:
    """The same write together with the messages that it sends."""
    return RecordAndSend(**structs.asdict(write), outgoing=outgoing, takes=takes)


def taking(write: RecordStep, number: int) -> RecordStep:
    return with_messages(write, [], number)


def no_value_error(run: str, key: str, offset: int) -> StillRunning:
    return StillRunning(
        f"run {run!r} wrote no value {offset} of the stream {key!r} in time; the run continues, read on with offset={offset}"
    )


def unknown_error(runs: list[str]) -> NotFound:
    return NotFound(f"run {', '.join(map(repr, runs))} not found; nothing was sent")
