"""Pipelined commits: an outcome is delivered to the code while it is being committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from mainspring.store.writes import Verdict

if TYPE_CHECKING:
    import asyncio

    from mainspring.engine.replay.execution import Execution
    from mainspring.model.runs import Step
    from mainspring.store.writes import Op, Recorded, RecordStep


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

    def commit_with(self, op: Op) -> asyncio.Future[Any]:
        """Commit the kept write together with `op`. Return the answer to `op`. On the loop, once."""
        assert self._ex is not None  # noqa: S101
        self.kept = False
        return self._ex.engine.committer.commit_both(self._write, self, op)

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
