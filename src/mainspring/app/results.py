"""Waiting for runs to end, inside runs and outside."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from mainspring.app.awaited import Awaited
from mainspring.app.ending_lookups import EndingLookups
from mainspring.app.options import micros
from mainspring.app.transacting import refuse_waiting
from mainspring.engine import flows
from mainspring.engine.branches import ours
from mainspring.engine.context import Line, current
from mainspring.engine.drivers import drive
from mainspring.engine.recording import failure_of
from mainspring.errors import NotFound
from mainspring.model.states import State

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from mainspring.app.connection import Connection
    from mainspring.app.functions import Call
    from mainspring.app.options import Duration
    from mainspring.app.runtime import Runtime
    from mainspring.codec import ValueCodec
    from mainspring.model.records import Ending


class Results:
    """Waits for runs on behalf of one app."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lookups = EndingLookups(self._ended, lambda: runtime.clock)

    @ours
    async def call(self, call: Call[Any]) -> Any:
        """Start a run and wait for its result, from outside runs. Giving up waiting does not cancel the run."""
        refuse_waiting(f"{call.name}(…)")
        handle = await self._runtime.starting.one(call)
        engine = self._runtime.engine
        fresh = (
            handle.created
            and engine is not None
            and engine.loop is asyncio.get_running_loop()
            and handle.id in engine.executions
        )
        ending = await self._ending(await self._runtime.connected(), handle.id, None, fresh=fresh)
        return _value(handle.id, call.function.codec.result, ending)

    def of(self, run_id: str, codec: ValueCodec, timeout: Duration | None) -> Coroutine[Any, Any, Any]:
        """Wait for a run to end, as an operation of the run we are in, if any."""
        where = current.get()
        if isinstance(where, Line):
            position = where.take_position()
            until = None if timeout is None else where.execution.engine.clock.now() + micros(timeout)
            return drive(where.execution, flows.result(where.execution, position, run_id, codec, until))
        refuse_waiting("result()")
        return self._result_outside(run_id, codec, timeout)

    @ours
    async def _result_outside(self, run_id: str, codec: ValueCodec, timeout: Duration | None) -> Any:
        ending = await self._ending(await self._runtime.connected(), run_id, timeout, fresh=False)
        return _value(run_id, codec, ending)

    @ours
    async def ended(self, run_id: str) -> None:
        """Wait, outside runs, for a run to end, however it ends."""
        if await self._ending(await self._runtime.connected(), run_id, None, fresh=False) is None:
            raise NotFound(f"there is no run {run_id!r}, or no longer")

    async def _ended(self, ids: set[str]) -> dict[str, Ending | None]:
        return await self._runtime.in_thread(self._runtime.connection().store.endings, ids)

    async def _ending(
        self, connection: Connection, run_id: str, timeout: Duration | None, *, fresh: bool
    ) -> Ending | None:
        """`fresh`: the run was set off on this very loop a moment ago, so there is no need to look whether it has ended."""
        with Awaited(connection, run_id, timeout) as told:
            if not fresh:
                found = await self._lookups.at(run_id)
                if run_id not in found or found[run_id] is not None:
                    return found.get(run_id)
            return await told


def _value(run_id: str, codec: ValueCodec, ending: Ending | None) -> Any:
    """What a run that has ended gives to who waited for it."""
    if ending is None:
        raise NotFound(f"there is no run {run_id!r}, or no longer")
    if ending.output is not None and ending.state is State.SUCCEEDED:
        return codec.decode(ending.output)
    raise failure_of(ending)
