"""The ends of runs, recorded without a task.

When the code of a run has returned, only its end is left to commit. Thousands of runs may wait for that at once, so none of them keeps a task and its
frames for it: the answers of the committer drive the rest, on the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from mainspring.codec import encode_exception, summarize_exception
from mainspring.engine.replay.signals import Stopped
from mainspring.engine.residency.phases import Phase
from mainspring.engine.runner import conclude, plain_success, record_end
from mainspring.errors import StoreError
from mainspring.model.runs import Ending
from mainspring.model.states import State
from mainspring.store.writes import Finish, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.engine.effects import Flow
    from mainspring.engine.host import Host
    from mainspring.engine.replay.execution import Execution
    from mainspring.store.committer import Answered

log = logging.getLogger("mainspring.engine")


class End:
    """The end of one run on its way to the database. Receives the answers to its writes, as a `Reply`."""

    __slots__ = ("_ends", "_ex", "_flow")

    def __init__(self, ends: Ends, ex: Execution, flow: Flow) -> None:
        self._ends = ends
        self._ex = ex
        self._flow = flow

    def done(self) -> bool:
        """Whether the run has left memory without waiting for the answer."""
        return self._ex.phase is Phase.LEFT

    def set_result(self, answer: Any, /) -> None:
        self._advance(self._flow.send, answer)

    def set_exception(self, error: Exception, /) -> None:
        self._advance(self._flow.throw, error)

    def _advance(self, resume: Callable[[Any], Any], given: Any) -> None:
        """Continue with the answer to the last write."""
        ex = self._ex
        try:
            effect = resume(given)
            if ex.ahead is not None and ex.ahead.kept:
                ex.ahead.commit_with(effect.op, self)
            else:
                ex.engine.committer.hand_over(effect.op, ex.engine.loop, self)
        except StopIteration as done:
            self._ends.conclude_with(ex, done.value)
        except Exception as error:  # noqa: BLE001  (what it means is for `fail` to say)
            self._ends.fail(ex, error)


class Ends:
    """The runs of one engine whose code has returned, and whose end or release is not committed yet. Used on the loop only."""

    def __init__(self, engine: Host) -> None:
        self._engine = engine
        self._open: dict[Execution, None] = {}
        self._empty = asyncio.Event()

    @property
    def is_empty(self) -> bool:
        return not self._open

    def begin(self, ex: Execution) -> None:
        """Record the end of a run whose code has returned."""
        self._open[ex] = None
        try:
            finish = plain_success(ex)
            if finish is None:
                End(self, ex, conclude(ex)).set_result(None)
            else:
                self._engine.committer.hand_over_for(self, finish, ex, self._engine.loop)
        except Exception as error:  # noqa: BLE001  (what it means is for `fail` to say)
            self.fail(ex, error)

    def receive(self, answered: Sequence[Answered], /) -> None:
        """Take the runs out of memory whose success is committed, all of them together. The others go on as after any end."""
        ended: list[tuple[Execution, Ending]] = []
        for each in answered:
            ex, finish, verdict = each.reply, each.op, each.answer
            if ex not in self._open:
                continue  # this worker has stopped waiting for it
            if verdict is Verdict.DONE:
                ex.end_processed = finish.end_processed
                ended.append((ex, Ending(ex.id, State.SUCCEEDED, None, finish.output, None)))
            else:
                self._resume(ex, finish, verdict)
        self._leave_together(ended)

    def _resume(self, ex: Execution, finish: Finish, answer: Any) -> None:
        """Continue with the answer to a plain success that was not recorded as one."""
        flow = record_end(ex, finish)
        next(flow)  # the write that was answered
        end = End(self, ex, flow)
        if isinstance(answer, Exception):
            end.set_exception(answer)
        else:
            end.set_result(answer)

    def conclude_with(self, ex: Execution, ending: Ending | None) -> None:
        """Take a run out of memory whose end is recorded, or whose ending is None because it has not ended here."""
        self._open[ex] = None
        if (
            ex.ahead is not None and ex.ahead.kept
        ):  # the run was halted; the outcome of its step is recorded all the same
            ex.ahead.commit_alone().add_done_callback(partial(self._outcome_recorded, ex, ending))
        elif isinstance(ex.signal, Stopped) and ex.undoable and ex.move(Phase.UNDOING):
            self._engine.spawn(self._undo(ex))
        else:
            self._leave(ex, ending)

    def _outcome_recorded(self, ex: Execution, ending: Ending | None, recorded: asyncio.Future[Any]) -> None:
        if not recorded.cancelled():
            recorded.exception()  # retrieved: another worker continues the run
        if ex in self._open:
            self.conclude_with(ex, ending)

    async def _undo(self, ex: Execution) -> None:
        try:
            await self._engine.halting.undo(ex)
        finally:
            self._leave(ex, None)

    def _leave(self, ex: Execution, ending: Ending | None) -> None:
        if ex not in self._open:
            return  # this worker has stopped waiting for it
        engine = self._engine
        engine.forget([ex])
        if ending is None:
            engine.on_left(ex.id)
        else:
            engine.on_concluded([(ex.run, ending)])
            if ending.state is State.CANCELLED and ending.reason is None:
                engine.spawn(self._report_with_reason(ex, ending))
            else:
                self._report([(ex, ending)])
        self._close(ex)

    def _leave_together(self, ended: list[tuple[Execution, Ending]]) -> None:
        if not ended:
            return
        engine = self._engine
        engine.forget([ex for ex, _ in ended])
        engine.on_concluded([(ex.run, ending) for ex, ending in ended])
        try:
            self._report(ended)
        finally:
            for ex, _ in ended:
                self._close(ex)

    def _close(self, ex: Execution) -> None:
        del self._open[ex]
        if not self._open:
            self._empty.set()

    def _report(self, ended: Sequence[tuple[Execution, Ending]]) -> None:
        """Wake the waiters of runs that have ended here, and call the listeners."""
        engine = self._engine
        engine.resolve([ending for _, ending in ended])
        if engine.has_listeners():  # later: they are users' code, and the committer may be in the middle of its answers
            for ex, ending in ended:
                engine.loop.call_soon(engine.changed, ex, f"run.{ending.state}", ending.reason)
        if any(ex.run.schedule is not None and not ex.end_processed for ex, _ in ended):
            engine.on_scheduled_end()

    async def _report_with_reason(self, ex: Execution, ending: Ending) -> None:
        """Look up the reason of a run that was cancelled while its end was being committed."""
        with contextlib.suppress(StoreError):
            ending = (await self._engine.in_thread(self._engine.store.endings, [ending.id])).get(ending.id) or ending
        self._report([(ex, ending)])

    # -- failures ------------------------------------------------------------------------------------------------------
    def fail(self, ex: Execution, error: Exception) -> None:
        """Give up a run whose end could not be recorded: to other workers, if the database cannot be reached."""
        self._open[ex] = None
        if isinstance(error, StoreError):
            log.warning(
                "run %s of %s: its end could not be recorded; another worker will recover the run: %s",
                ex.id,
                ex.function.name,
                error,
            )
            if ex.function.at_most_once:
                self._engine.given_up.add(ex.id)
            self._leave(ex, None)
        else:
            log.error(
                "run %s of %s: its end could not be recorded; the run fails", ex.id, ex.function.name, exc_info=error
            )
            self._engine.spawn(self._give_up(ex, error))

    async def _give_up(self, ex: Execution, defect: Exception) -> None:
        """Fail a run after a defect of the library, so that the run is not left without an executor."""
        engine = self._engine
        finish = Finish(engine.worker_id, ex.id, ex.epoch, State.FAILED, engine.clock.now())
        finish.reason, finish.error = summarize_exception(defect), encode_exception(defect)
        ending = None
        with contextlib.suppress(Exception):
            if await engine.committer.commit(finish) is Verdict.DONE:
                ending = Ending(ex.id, finish.state, finish.reason, None, finish.error)
        self._leave(ex, ending)

    # -- a worker that stops -------------------------------------------------------------------------------------------
    async def drained(self) -> None:
        """Wait until every end is committed or given up."""
        while self._open:
            self._empty.clear()
            await self._empty.wait()

    def abandon(self) -> None:
        """Wait for no answer any more. The writes stay with the committer."""
        for ex in list(self._open):
            self._leave(ex, None)
