"""The rows of runs that are about to be started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.app.options import micros
from mainspring.engine.retry import stored
from mainspring.model.keys import KeyMode
from mainspring.model.records import NewRun
from mainspring.model.states import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mainspring.app.functions import Call
    from mainspring.app.options import Debounce
    from mainspring.app.runtime import Runtime
    from mainspring.engine.execution import Execution
    from mainspring.engine.registry import Function


def new_run(
    runtime: Runtime, call: Call[Any], text: str, run_id: str | None, ex: Execution | None, *, here: bool = True
) -> NewRun:
    """The row of a run to be started, by a run or from outside. If there is a slot, it begins `here`, in this worker.

    Then `LocalStarts` has to learn what becomes of the start.
    """
    function, options = call.function, call.options
    now = runtime.clock.now()
    due = now if options.after is None else now + options.after
    due = due if options.at is None else options.at
    timeout = (
        None if options.no_timeout else options.timeout or (function.timeout if function.kind == "workflow" else None)
    )
    uid = runtime.ids.new()
    is_child = ex is not None and not options.parentless
    new = NewRun(
        id=run_id or uid,
        uid=uid,
        workflow=function.name,
        kind=function.kind,
        input=text,
        state=State.SCHEDULED if due > now else State.QUEUED,
        due=due,
        created=now,
        timeout=timeout,
        deadline=ex.run.deadline if ex is not None and is_child and not options.no_timeout else None,
        version=options.version,
        parent=ex.id if ex is not None and is_child else None,
        scheduled_by=ex.id if ex is not None and not is_child else None,
        attributes=options.attributes or "{}",
        queue=options.queue or function.queue,
        priority=options.priority,
        partition=options.partition,
        key=options.key,
        key_mode=options.key_mode,
        retry=options.retry or _own_retry(function),
    )
    if options.debounce is not None:
        _put_off(new, options.debounce, now)
    engine = runtime.engine
    here = here and due <= now and new.queue is None and new.key is None and options.version in {None, runtime.version}
    if here and engine is not None and engine.local_starts.reserve(new, in_run=ex is not None) and timeout is not None:
        new.deadline = min(now + timeout, new.deadline or now + timeout)
    return new


def new_runs(runtime: Runtime, makers: Iterable[Callable[[], NewRun]]) -> list[NewRun]:
    """The rows of several runs. If one cannot be made, the slots that were reserved for others are free again."""
    made: list[NewRun] = []
    try:
        for make in makers:
            made.append(make())  # noqa: PERF401  (those that were made before one fails are needed)
    except BaseException:
        if runtime.engine is not None:
            for run in made:
                runtime.engine.local_starts.discard(run)
        raise
    return made


def later_run(
    runtime: Runtime,
    call: Call[Any],
    text: str,
    run_id: str | None,
    ex: Execution | None,
    *,
    time: Callable[[int], int],
) -> NewRun:
    """The row of a scheduled function. It is nobody's child: it runs whatever becomes of the run that scheduled it."""
    now = runtime.clock.now()
    when = time(now)
    new = new_run(runtime, call, text, run_id, None, here=False)
    new.scheduled_time = when
    new.due = max(when, now)
    new.state = State.SCHEDULED if new.due > now else State.QUEUED
    new.scheduled_by = ex.id if ex is not None else None
    return new


def _own_retry(function: Function) -> str | None:
    """How runs of a workflow are tried again, if it says so."""
    return (
        stored(function.retry, of_function=True)
        if function.kind == "workflow" and function.retry.attempts > 1
        else None
    )


def _put_off(new: NewRun, debounce: Debounce, now: int) -> None:
    new.key, new.key_mode = f"debounce {new.workflow} {debounce.key}", KeyMode.DEBOUNCE
    new.due, new.state = now + micros(debounce.wait), State.SCHEDULED
    new.latest = None if debounce.max_wait is None else now + micros(debounce.max_wait)
