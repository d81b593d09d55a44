"""Questions to a run and their answers.

A question is a message with a key. The run that is asked accepts it in one operation and answers it in another, so that the
operations of the handler between the two are part of the run. A refused question leaves nothing in the record of the run.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from mainspring.codec import contain_exit, encode_exception
from mainspring.codec.json_schema import schema_text
from mainspring.engine.effects import Commit, Consult, conclude, frontier, rebuilt, replayed
from mainspring.engine.operations import messages
from mainspring.engine.replay.signals import Lost
from mainspring.errors import NotAnswered, NotFound, Refused, StillRunning
from mainspring.model.runs import Step
from mainspring.store.messages import Reply
from mainspring.store.writes import Send, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.codec import ValueCodec
    from mainspring.engine.effects import Flow
    from mainspring.engine.replay.execution import Execution
    from mainspring.model.states import State
    from mainspring.store.messages import Message, Outgoing, Post


class Asked(Struct, frozen=True):
    """A question that a run has accepted."""

    number: int
    value: Any


# -- the run that is asked ---------------------------------------------------------------------------------------------
def accept(
    ex: Execution, position: str, name: str, codec: ValueCodec, validate: Callable[[Any], object] | None
) -> Flow:
    """Accept the next question that the validator accepts. Questions that it rejects are refused, and leave no record."""
    recorded = ex.recall(position, "question", name)
    if recorded is not None and recorded.completed is not None:
        yield from replayed(ex, recorded, None)
        return _asked(recorded, codec)
    yield from frontier(ex, position)
    record = recorded or Step(ex.id, position, "question", name, started=ex.begins(), child=ex.id)
    record.output = schema_text(codec.annotation)  # until a question is accepted: what an operator may ask
    message: Message | None = None

    def look() -> Flow:
        nonlocal message
        while True:
            message = yield from messages.unread(ex, name, question=True)
            if message is None:
                return None
            refusal = _refusal(message, codec, validate)
            if refusal is None:
                return message
            number, message = message.number, None
            try:
                yield from _refuse(ex, name, number, refusal)
            finally:
                messages.unreserve(ex, number)

    try:
        found: Message = yield from messages.await_(ex, record, look, pending=recorded is not None)
        text = json.dumps({"number": found.number, "value": json.loads(found.body)}, ensure_ascii=False)
        takes = found.number
        yield from conclude(ex, record, None, output=text, with_messages=lambda write: messages.taking(write, takes))
        return _asked(record, codec)
    finally:
        if message is not None:
            messages.unreserve(ex, message.number)
            ex.engine.waits.arrived([(ex.id, "question", name)])


def _asked(record: Step, codec: ValueCodec) -> Asked:
    found = json.loads(record.output or "{}")
    return Asked(found["number"], codec.decode(json.dumps(found["value"], ensure_ascii=False)))


def _refusal(message: Message, codec: ValueCodec, validate: Callable[[Any], object] | None) -> Exception | None:
    """Why a question is refused: its value has another type, or the workflow's validator raises."""
    try:
        value = codec.decode(message.body)
        if validate is not None:
            contain_exit(validate, value)
    except Exception as error:  # noqa: BLE001  (any exception of the validator is the reason)
        return error
    return None


def _refuse(ex: Execution, name: str, number: int, error: Exception) -> Flow:
    now = ex.engine.clock.now()
    reply = Reply(ex.id, number, name, None, encode_exception(error), now, refused=True)
    answer = yield Commit(Send(ex.id, [reply], ex.engine.worker_id, ex.epoch))
    if answer.verdict is Verdict.FENCED:
        ex.engine.halting.halt(ex, Lost())
        raise ex.signal or Lost()


def answer(ex: Execution, position: str, name: str, number: int, *, text: str | None, error: str | None) -> Flow:
    """Answer a question, in one commit with the record of the operation."""
    return messages.send(
        ex,
        position,
        "answer",
        name,
        lambda: [Reply(ex.id, number, name, text, error, ex.engine.clock.now())],
    )


# -- a run that asks ---------------------------------------------------------------------------------------------------
def ask(ex: Execution, position: str, post: Post, until: int | None, codec: ValueCodec) -> Flow:
    """Ask another run and wait for the answer. The question is sent once, also after a crash."""
    run, name = post.run, post.topic
    post.key = key = f"{ex.run.uid}-{position}"
    recorded = ex.recall(position, "answer", name)
    if recorded is not None and recorded.completed is not None:
        return (yield from replayed(ex, recorded, codec))
    yield from frontier(ex, position)
    record = recorded or Step(ex.id, position, "answer", name, started=ex.begins(), child=run, due=until)

    def look() -> Flow:
        found: tuple[Message | None, State | None] = yield Consult(lambda: ex.engine.store.messages.asked(run, key))
        return found if answered(found) else None

    outgoing: list[Outgoing] | None = [post] if recorded is None else None
    found: tuple[Message | None, State | None] | None = None
    try:
        found = yield from messages.await_(ex, record, look, pending=True, outgoing=outgoing)
        failure = failure_of(run, name, found)
    except NotFound:
        failure = NotFound(f"run {run!r} not found")
    if failure is not None:
        return (yield from conclude(ex, record, None, error=failure))
    assert found is not None  # noqa: S101
    assert found[0] is not None  # noqa: S101
    return (yield from conclude(ex, record, codec, output=found[0].answer or "null"))


def answered(found: tuple[Message | None, State | None]) -> bool:
    """Whether there is an answer, or none can come because the run has ended."""
    message, state = found
    return (message is not None and message.answered is not None) or state is None or state.ended


def failure_of(run: str, name: str, found: tuple[Message | None, State | None] | None) -> Exception | None:
    """The exception that asking raises. None: there is an answer."""
    if found is None:
        return StillRunning(
            f"run {run!r} did not answer {name!r} within the timeout; the run continues, and the question stays open"
        )
    message, state = found
    if message is not None and message.answered is not None:
        if message.error is None:
            return None
        error = rebuilt(message.error)
        if message.position is None:
            refused = Refused(f"run {run!r} does not accept {name!r}: {error}")
            refused.__cause__ = error
            return refused
        return error
    if state is None:
        return NotFound(f"run {run!r} not found")
    return NotAnswered(f"run {run!r} ended without answering {name!r}")
