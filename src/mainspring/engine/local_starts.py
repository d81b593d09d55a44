"""Runs that begin in the worker that stores them: one transaction less before their first line.

Starting one is a protocol with an owner for each moment. *Reserve*: whoever makes the row asks for a slot; from then on the run's id
is reserved here. *Store*: the row is committed with this worker as its owner. *Begin or hand back*: the answer of the store
decides, on the engine's loop, whether or not the caller that asked for the start still waits: a run that was stored begins; one
that was not frees its slot; one of which that is not known, or that comes when the worker stops, is handed back to the fleet.
So a run is either not stored, or executed, and its slot is free in the end.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from mainspring.model.states import State
from mainspring.store.ops import Finish, Release, Started, Verdict, Written

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mainspring.engine.engine import Engine
    from mainspring.model.records import NewRun

    Answer = Started | Written | BaseException


class LocalStarts:
    """The runs of one engine that are being started here, and those that are being handed back unbegun."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reserved: dict[str, NewRun] = {}
        """By uid: two starts may ask for one id."""
        self._returning: dict[str, None] = {}
        self._empty = asyncio.Event()

    @property
    def ids(self) -> set[str]:
        """Runs that the store may have as this worker's and that are not in its memory, rightly."""
        return {*(run.id for run in list(self._reserved.values())), *self._returning}

    # -- reserve -------------------------------------------------------------------------------------------------------
    def reserve(self, run: NewRun, *, in_run: bool = False) -> bool:
        """Make this worker the owner of a run that is about to be stored, if it has a slot for it. From any thread.

        To be answered by `begin_if_stored`, whatever becomes of the start.
        """
        engine = self._engine
        function = engine.registry.find(run.workflow)
        if function is None or not engine.slots.reserve(function, in_run=in_run):
            return False
        self._reserved[run.uid] = run
        run.state, run.owner, run.kind = State.RUNNING, engine.worker_id, function.kind
        run.version, run.fingerprint = engine.version, function.fingerprint
        return True

    @property
    def can_follow(self) -> bool:
        """Whether what is started by the caller at hand is answered on the engine's loop, where it is to begin."""
        return self._engine.on_loop

    # -- store ---------------------------------------------------------------------------------------------------------
    def follow(self, runs: Sequence[NewRun], answers: asyncio.Future[list[Any]]) -> asyncio.Future[list[Any]]:
        """Begin the runs when the answers to their starts are there. Cancelling what comes back does not touch that."""
        answers.add_done_callback(
            lambda done: self.begin_if_stored(runs, _result(done) or [_failure(done)] * len(runs))
        )
        return asyncio.shield(answers)

    def follow_write(self, runs: Sequence[NewRun], answer: asyncio.Future[Any]) -> asyncio.Future[Any]:
        """The same for runs that one write starts."""
        answer.add_done_callback(lambda done: self.begin_if_stored(runs, [_result(done) or _failure(done)] * len(runs)))
        return asyncio.shield(answer)

    # -- begin or hand back --------------------------------------------------------------------------------------------
    def begin_if_stored(self, runs: Iterable[NewRun], answers: Iterable[Answer]) -> None:
        """Begin those that were stored, free the slots of the others. From any thread."""
        for run, answer in zip(runs, answers, strict=True):
            if isinstance(answer, BaseException):
                self.hand_back(run)
            elif _is_stored(run, answer):
                self.begin(run)
            else:
                self.discard(run)

    def begin(self, run: NewRun, *, schedule: str | None = None, tick: str | None = None) -> None:
        """The run is stored as this worker's. From any thread."""
        if run.uid in self._reserved:
            self._engine.here(self._begin, run, schedule, tick)

    def _begin(self, run: NewRun, schedule: str | None, tick: str | None) -> None:
        if self._engine.draining:
            self.hand_back(run)
            return
        self._engine.begin(run, schedule, tick)
        self._unreserve(run)

    def discard(self, run: NewRun) -> None:
        """The run is not stored, or not as this worker's. From any thread."""
        if run.uid in self._reserved:
            self._engine.here(self._unreserve, run)

    def hand_back(self, run: NewRun) -> None:
        """The run does not begin here, and may be stored: if it is there, any worker may take it. From any thread."""
        if run.uid in self._reserved:
            self._engine.here(self._hand_back, run)

    def _hand_back(self, run: NewRun) -> None:
        self.release(run.id, run.uid, 1)
        self._unreserve(run)

    def release(self, run_id: str, uid: str, epoch: int) -> None:
        """Give back a run of which nothing was executed under this claim. On the loop."""
        self._returning[run_id] = None
        op = Release(self._engine.worker_id, run_id, epoch, unbegun=uid)
        self._engine.committer.commit(op).add_done_callback(partial(self._released, op))

    def _released(self, op: Release | Finish, done: asyncio.Future[Any]) -> None:
        engine = self._engine
        if not done.cancelled() and done.exception() is None and done.result() is Verdict.STOPPING:
            end = Finish(engine.worker_id, op.run, op.epoch, State.CANCELLED, engine.clock.now())
            engine.committer.commit(end).add_done_callback(partial(self._released, end))
            return
        # With an exception the connection is closed: the runs of this worker are freed when it leaves or is missed.
        self._returning.pop(op.run, None)
        self._perhaps_empty()

    def _unreserve(self, run: NewRun) -> None:
        if self._reserved.pop(run.uid, None) is not None:
            self._engine.slots.unreserve(self._engine.registry.get(run.workflow))
            self._engine.on_room()
        self._perhaps_empty()

    def _perhaps_empty(self) -> None:
        if not self._reserved and not self._returning:
            self._empty.set()

    async def settled(self) -> None:
        """Wait until every start has been answered and every run that is handed back is."""
        while self._reserved or self._returning:
            self._empty.clear()
            await self._empty.wait()


def _result(done: asyncio.Future[Any]) -> Any:
    return None if done.cancelled() or done.exception() is not None else done.result()


def _failure(done: asyncio.Future[Any]) -> BaseException:
    return (None if done.cancelled() else done.exception()) or asyncio.CancelledError()


def _is_stored(run: NewRun, answer: Started | Written) -> bool:
    """Whether this very start stored the run, and it is to be executed."""
    if isinstance(answer, Started):
        return answer.created and answer.state is not State.CANCELLED
    return answer.verdict is Verdict.DONE and run.id not in answer.taken and run.id not in answer.became
