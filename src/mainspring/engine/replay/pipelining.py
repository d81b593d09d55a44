"""Going ahead: the code of a run has an outcome while that is being committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from mainspring.store.writes import Verdict

if TYPE_CHECKING:
    import asyncio

    from mainspring.engine.replay.execution import Execution
    from mainspring.model.runs import Step
    from mainspring.store.writes import Op, Recorded, RecordStep


class Ahead:
    """The commit of an outcome that the code has had already. It cannot be cancelled, and there is one for every step.

    In a workflow the committer has it already. In a run that is one step it waits for what the run commits next: its end.
    """

    __slots__ = ("_ex", "_loop", "_waiting", "_write", "answer", "error", "kept")

    def __init__(self, ex: Execution, write: RecordStep) -> None:
        self._ex: Execution | None = ex
        self._loop = ex.engine.loop
        self._write = write
        self.kept = ex.function.kind == "step"
        """The committer does not have it yet."""
        self._waiting: tuple[asyncio.Future[Recorded], ...] = ()
        self.answer: Recorded | None = None
        self.error: Exception | None = None

    def done(self) -> bool:
        """Whether it is known what became of it."""
        return self.answer is not None or self.error is not None

    @property
    def refused(self) -> bool:
        """Whether the store did not take it, because the run was no longer this worker's."""
        return self.answer is not None and self.answer.verdict is Verdict.FENCED

    def set_result(self, answer: Recorded, /) -> None:
        """It was committed, or refused because the run is no longer this worker's."""
        self.answer = answer
        ex, self._ex = self._ex, None  # a run that keeps this would keep itself
        if answer.verdict is Verdict.DONE and ex is not None and ex.engine.operations:
            self._loop.call_soon(tell, ex, self._write.step)
        for each in self._waiting:
            if not each.done():
                each.set_result(answer)

    def set_exception(self, error: Exception, /) -> None:
        """The database would not have it."""
        self.error = error
        self._ex = None
        for each in self._waiting:
            if not each.done():
                each.set_exception(error)

    def commit_with(self, op: Op) -> asyncio.Future[Any]:
        """Commit it, and `op` behind it; the answer to that. On the loop, once."""
        assert self._ex is not None  # noqa: S101
        self.kept = False
        return self._ex.engine.committer.commit_both(self._write, self, op)

    def commit_alone(self) -> asyncio.Future[Recorded]:
        """Commit it, with nothing behind it. On the loop, once."""
        assert self._ex is not None  # noqa: S101
        self.kept = False
        self._ex.engine.committer.hand_over(self._write, self._loop, self)
        return self.arrival()

    def commit_sync(self, *ops: Op) -> Any:
        """The same on the thread of a `def` run, with or without something behind it."""
        ex, self._ex, self.kept = self._ex, None, False
        assert ex is not None  # noqa: S101
        first, *others = ex.engine.committer.commit_all_sync([self._write, *ops])
        if isinstance(first, Exception):
            self.error = first
        else:
            self.answer = cast("Recorded", first)
            if self.answer.verdict is Verdict.DONE:
                tell(ex, self._write.step)
        for answer in others:
            if isinstance(answer, Exception):
                raise answer
        return others[0] if others else None

    def arrival(self) -> asyncio.Future[Recorded]:
        """What to await for the answer: a future of the caller's own, whom it does not concern when others give up waiting."""
        future = self._loop.create_future()
        if self.error is not None:
            future.set_exception(self.error)
        elif self.answer is not None:
            future.set_result(self.answer)
        else:
            self._waiting += (future,)
        return future


def tell(ex: Execution, record: Step) -> None:
    """An operation is over: let those know who want to."""
    for listener in ex.engine.operations:
        listener(ex.run, record)
