"""Questions to a run and their answers: `app.ask(run_id, question, value)` and `run.answer(question, handler)`."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, TypeVar, overload

from mainspring.app.caller.current import current_caller
from mainspring.app.dual import OverloadedVerb
from mainspring.app.messages.names import answer_codec, named, stored_text
from mainspring.codec import encode_exception
from mainspring.engine.drivers import drive
from mainspring.engine.operations import questions
from mainspring.engine.replay.context import branch, here
from mainspring.errors import InvalidInput, NotInRun
from mainspring.model.given import check_name
from mainspring.store.messages import Post

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from mainspring.app.functions.options import Duration
    from mainspring.app.messages.names import Question
    from mainspring.codec import ValueCodec

T = TypeVar("T")
A = TypeVar("A")


class Ask(OverloadedVerb):
    """The verb `ask` of apps and clients."""

    __slots__ = ()
    _name = "ask"

    @overload
    def __call__(
        self, run_id: str, question: Question[T, A], value: T, timeout: Duration | None = None
    ) -> Coroutine[Any, Any, A]: ...
    @overload
    def __call__(
        self, run_id: str, question: str, value: Any = None, timeout: Duration | None = None
    ) -> Coroutine[Any, Any, Any]: ...
    def __call__(
        self, run_id: str, question: Question[Any, Any] | str, value: Any = None, timeout: Duration | None = None
    ) -> Coroutine[Any, Any, Any]:
        self._awaited()
        return self._ask(run_id, question, value, timeout)

    @overload
    def sync(self, run_id: str, question: Question[T, A], value: T, timeout: Duration | None = None) -> A: ...
    @overload
    def sync(self, run_id: str, question: str, value: Any = None, timeout: Duration | None = None) -> Any: ...
    def sync(
        self, run_id: str, question: Question[Any, Any] | str, value: Any = None, timeout: Duration | None = None
    ) -> Any:
        """Ask, and block until the answer is there."""
        return self._blocked(lambda: self._ask(run_id, question, value, timeout))

    def _ask(
        self, run_id: str, question: Question[Any, Any] | str, value: Any, timeout: Duration | None
    ) -> Coroutine[Any, Any, Any]:
        name, codec = named(question, "question")
        answers = answer_codec(question)
        if not check_name("the id of a run, which ask takes first,", run_id):
            raise InvalidInput("ask takes the id of a run first, not an empty text")
        runtime = self._owner._runtime  # noqa: SLF001
        body = stored_text(runtime.settings, codec, value, f"the question {name!r}")
        post = Post(run_id, name, body, runtime.clock.now(), question=True)
        return current_caller(runtime).ask(post, answers, timeout)


class Answer(OverloadedVerb):
    """The verb `run.answer`."""

    __slots__ = ()
    _name = "answer"

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
        here()
        where = branch()
        if where is None:
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
        where.execution.tasks.add_responder(task, "")
        task.add_done_callback(_note_failure)


def _note_failure(task: asyncio.Future[None]) -> None:
    if not task.cancelled():
        task.exception()  # a halt or a disagreement, which ends the run by itself


async def _serve(
    name: str,
    codec: ValueCodec,
    answers: ValueCodec,
    handler: Callable[[Any], Any],
    validate: Callable[[Any], object] | None,
) -> None:
    own = branch()
    assert own is not None  # noqa: S101
    ex = own.execution
    this = asyncio.current_task()
    assert this is not None  # noqa: S101
    ex.tasks.add_responder(this, own.prefix)
    while True:
        asked: questions.Asked = await drive(ex, questions.accept(ex, own.take_position(), name, codec, validate))
        text = error = None
        try:
            value = handler(asked.value)
            if inspect.isawaitable(value):
                value = await value
            text = ex.engine.check_size(answers.encode(value), value, f"the answer to {name!r}")
        except (Exception, SystemExit) as caught:  # noqa: BLE001  (whatever it raises is the answer)
            error = encode_exception(caught)
        await drive(ex, questions.answer(ex, own.take_position(), name, asked.number, text=text, error=error))
