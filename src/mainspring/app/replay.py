"""Compares today's code with recorded runs. Each is replayed to the end of its record. Nothing is executed or written."""

from __future__ import annotations

import asyncio
import contextvars
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from mainspring.app.client_api import runtime_of
from mainspring.engine.engine import Engine
from mainspring.engine.replay import branches
from mainspring.engine.replay.execution import Execution
from mainspring.engine.runner import run_async, run_blocking
from mainspring.errors import MainspringError, UnknownFunction
from mainspring.model.states import State
from mainspring.store.sealing.payloads import Payloads
from mainspring.store.sealing.records import opened
from mainspring.store.verbs.export import run_of_record, step_of_record
from mainspring.store.writes import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainspring.app.app import App
    from mainspring.model.runs import Run, Step
    from mainspring.store.committer import Reply
    from mainspring.store.protocol import Store

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Agreement:
    """Whether the code agrees with one run. `finding` is the difference, if any."""

    run: str
    workflow: str
    operations: int
    """The number of recorded operations."""
    finding: str | None

    @property
    def agrees(self) -> bool:
        return self.finding is None


async def replay(app: App, records: Iterable[dict[str, Any]]) -> list[Agreement]:
    """Compare the app's code with the runs of an export."""
    runs: dict[str, Run] = {}
    steps: dict[str, list[Step]] = {}
    codec = runtime_of(app).payloads
    payloads = None if codec is None else Payloads(codec)
    for record in records:
        if record.get("table") == "runs":
            run = _opened(payloads, run_of_record(record))
            runs[run.id] = run
        elif record.get("table") == "steps":
            step = _opened(payloads, step_of_record(record))
            steps.setdefault(step.run, []).append(step)
    branches.install(asyncio.get_running_loop())
    found: list[Agreement] = []
    for run in runs.values():
        if run.kind == "workflow" and run.started is not None:
            recorded = steps.get(run.id, [])
            finding = await _compare(app, run, recorded)
            found.append(Agreement(run.id, run.workflow, sum(step.seq is not None for step in recorded), finding))
    return found


def _opened(payloads: Payloads | None, record: R) -> R:
    """Return a record that was exported as stored, with its values decoded if the app has a payload codec."""
    return record if payloads is None else opened(payloads, record)


async def _compare(app: App, run: Run, steps: list[Step]) -> str | None:
    try:
        function = runtime_of(app).registry.get(run.workflow)
    except UnknownFunction:
        return f"there is no workflow {run.workflow!r} any more"
    engine = _engine(app)
    try:
        run.undo_reason = ""  # the replay stops at the end of the record
        ex = Execution(engine, run, function, steps)
        ex.dry = True
        engine.executions[run.id] = ex
        task = asyncio.get_running_loop().create_task(_execute(ex, engine), context=contextvars.Context())
        ex.tasks.root = task
        engine.halting.press_on_later(ex)
        await asyncio.wait([task])
    finally:
        engine.close()
    if ex.disagreement is not None:
        return str(ex.disagreement)
    return _judged(ex, run)


async def _execute(ex: Execution, engine: Engine) -> None:
    if ex.function.is_async:
        await run_async(ex)
        engine.ends.begin(ex)
    else:
        context = contextvars.Context()
        await engine.loop.run_in_executor(None, lambda: context.run(run_blocking, ex))


def _judged(ex: Execution, run: Run) -> str | None:
    """Return how the end of a replay differs from a recorded success, or None."""
    if run.state is not State.SUCCEEDED:
        return None
    if ex.unwound:
        return "it came to its end, but the code now requests more operations than are recorded"
    value, error = ex.outcome
    if error is not None:
        return f"it succeeded, but the code now raises {type(error).__name__}: {error}"
    try:
        text = ex.function.codec.result.encode(value)
    except MainspringError as refused:
        return f"its result cannot be stored any more: {refused}"
    return None if text == run.output else f"its result was {run.output}, and would be {text} now"


def _engine(app: App) -> Engine:
    runtime = runtime_of(app)
    return Engine(
        store=cast("Store", None),
        committer=cast("Any", _Nowhere()),
        clock=runtime.clock,
        registry=runtime.registry,
        settings=runtime.settings,
        worker_id="replay",
        version=app.version,
        receiver=runtime.instances.receiver,
        methods=runtime.instances.methods,
        home=runtime,
    )


class _Nowhere:
    """Takes the committer's place and writes nothing: it answers that the write is fenced."""

    def commit(self, op: object, **_: object) -> asyncio.Future[Verdict]:
        del op
        answer: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        answer.set_result(Verdict.FENCED)
        return answer

    def hand_over(self, op: object, _: asyncio.AbstractEventLoop, reply: Reply) -> None:
        del op
        reply.set_result(Verdict.FENCED)

    def commit_sync(self, op: object) -> Verdict:
        del op
        return Verdict.FENCED
