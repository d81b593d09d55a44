# pyright: reportPrivateUsage=false
"""Asking a run something, and answering inside it: `app.ask(run_id, question, value)` and `run.answer(question, handler)`."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, TypeVar, overload

from mainspring.app.ears import Ear
from mainspring.app.names import answer_codec, named
from mainspring.app.options import micros
from mainspring.app.verb import Future, Verb
from mainspring.codec import encode_exception
from mainspring.engine import asking
from mainspring.engine.branches import ours
from mainspring.engine.context import Line, StepScope, TransactionScope, current, here
from mainspring.engine.drivers import drive
from mainspring.errors import InTransaction, InvalidInput, NotFound, NotInRun
from mainspring.store.messages import Post
from mainspring.store.ops import Tell, Verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mainspring.app.names import Question
    from mainspring.app.options import Duration
    from mainspring.app.talk import Talk
    from mainspring.codec import ValueCodec
    from mainspring.model.states import State
    from mainspring.store.messages import Message

T = TypeVar("T")
A = TypeVar("A")


class Ask(Verb):
    """Ask a run something and wait for its answer. `Refused` if the run does not accept the question, the handler's own
    exception if that raises one, `NotAnswered` if the run ends first, `StillRunning` after `timeout`.
    """

    name = "ask"

    @overload
    def __call__(
        self, run_id: str, question: Question[T, A], value: T, timeout: Duration | None = None
    ) -> Future[A]: ...
    @overload
    def __call__(
        self, run_id: str, question: str, value: Any = None, timeout: Duration | None = None
    ) -> Future[Any]: ...
    def __call__(
        self, run_id: str, question: Question[Any, Any] | str, value: Any = None, timeout: Duration | None = None
    ) -> Future[Any]:
        self._ready()
        return _ask(self._talk, run_id, question, value, timeout)

    @overload
    def sync(self, run_id: str, question: Question[T, A], value: T, timeout: Duration | None = None) -> A: ...
    @overload
    def sync(self, run_id: str, question: str, value: Any = None, timeout: Duration | None = None) -> Any: ...
    def sync(
        self, run_id: str, question: Question[Any, Any] | str, value: Any = None, timeout: Duration | None = None
    ) -> Any:
        self._may_block()
        return self._wait(_ask(self._talk, run_id, question, value, timeout))


def _ask(
    talk: Talk, run_id: str, question: Question[Any, Any] | str, value: Any, timeout: Duration | None
) -> Future[Any]:
    name, codec = named(question, "question")
    answers = answer_codec(question)
    if not isinstance(run_id, str) or not run_id:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"ask takes the id of a run first, not {run_id!r}")
    body = talk.text(codec, value, f"the question {name!r}")
    post = Post(run_id, name, body, talk.runtime.clock.now(), question=True)
    where = current.get()
    if isinstance(where, TransactionScope):
        raise InTransaction("inside a transaction nothing can be waited for; ask before or after")
    if isinstance(where, Line):
        ex = where.execution
        if run_id == ex.id:
            raise InvalidInput("a run that asks itself would wait for ever")
        post.sender = ex.id
        until = None if timeout is None else ex.engine.clock.now() + micros(timeout)
        ex.outstanding += 1
        return drive(ex, asking.ask(ex, where.next_position(), post, until, answers))
    if isinstance(where, StepScope):
        post.sender = where.execution.id
        post.key = where.next_key()
    return _ask_outside(talk, post, answers, timeout)


@ours
async def _ask_outside(talk: Talk, post: Post, codec: ValueCodec, timeout: Duration | None) -> Any:
    runtime = talk.runtime
    connection = await runtime.connected()
    post.key = key = post.key or runtime.ids.new()
    with Ear(connection.ears, connection.clock, post.run, timeout) as ear:
        told = await connection.committer.commit(Tell(post.run, [post]), patient=False)
        if told.verdict is Verdict.UNKNOWN:
            raise NotFound(f"there is no run {post.run!r} to ask, or no longer")
        found: tuple[Message | None, State | None] | None
        while True:
            found = await runtime.in_thread(connection.store.messages.asked, post.run, key)
            if asking.answered(found):
                break
            if not await ear.wait():
                found = None
                break
    failure = asking.failure_of(post.run, post.topic, found)
    if failure is not None:
        raise failure
    assert found is not None  # noqa: S101
    assert found[0] is not None  # noqa: S101
    return codec.decode(found[0].answer or "null")


class Answer:
    """`run.answer(question, handler, validate=…)`: answer a question from now on, for as long as the run lasts.

    The handler is given the value and returns the answer; it may do whatever a workflow does. Questions of one name are answered
    one after the other, beside the rest of the workflow. `validate` is given the value first: what it raises goes back to whoever
    asks, and leaves nothing in the run's record. It must not do anything but look.
    """

    @overload
    def __call__(
        self,
        question: Question[T, A],
        handler: Callable[[T], Awaitable[A]] | Callable[[T], A],
        *,
        validate: Callable[[T], object] | None = None,
    ) -> None: ...
    @overload
    def __call__(
        self, question: str, handler: Callable[[Any], Any], *, validate: Callable[[Any], object] | None = None
    ) -> None: ...
    def __call__(
        self,
        question: Question[Any, Any] | str,
        handler: Callable[[Any], Any],
        *,
        validate: Callable[[Any], object] | None = None,
    ) -> None:
        where = here()
        if isinstance(where, StepScope):
            raise NotInRun("run.answer belongs in a workflow; a step cannot be asked")
        if not where.execution.function.is_async:
            raise InvalidInput(
                f"{where.execution.function.name!r} is a `def` workflow, which does one thing at a time; make it `async def` to "
                "answer questions, or use run.receive.sync(…) and app.send.sync(…)"
            )
        name, codec = named(question, "question")
        task = asyncio.get_running_loop().create_task(
            _serve(name, codec, answer_codec(question), handler, validate), name=f"mainspring answers {name}"
        )
        where.execution.serves(task, "")
        task.add_done_callback(_note_failure)


def _note_failure(task: asyncio.Future[None]) -> None:
    if not task.cancelled():
        task.exception()  # a halt, or a disagreement: the run knows


async def _serve(
    name: str,
    codec: ValueCodec,
    answers: ValueCodec,
    handler: Callable[[Any], Any],
    validate: Callable[[Any], object] | None,
) -> None:
    line = here()
    assert isinstance(line, Line)  # noqa: S101
    ex = line.execution
    this = asyncio.current_task()
    assert this is not None  # noqa: S101
    ex.serves(this, line.prefix)
    while True:
        ex.outstanding += 1
        asked: asking.Asked = await drive(ex, asking.accept(ex, line.next_position(), name, codec, validate))
        text = error = None
        try:
            value = handler(asked.value)
            if inspect.isawaitable(value):
                value = await value
            text = ex.engine.check_size(answers.encode(value), value, f"the answer to {name!r}")
        except Exception as caught:  # noqa: BLE001  (whatever it raises is the answer)
            error = encode_exception(caught)
        ex.outstanding += 1
        await drive(ex, asking.answer(ex, line.next_position(), name, asked.number, text=text, error=error))
