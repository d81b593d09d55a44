"""A function with its arguments and options, and the row of the run that it is started as."""

from __future__ import annotations

import json
from copy import copy
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from mainspring.codec import check_size
from mainspring.engine.registry import Bound
from mainspring.engine.retry import stored
from mainspring.errors import InvalidInput
from mainspring.model.keys import KeyMode
from mainspring.model.runs import USER, NewRun, user_of
from mainspring.model.states import State
from mainspring.recurrence.durations import micros

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.app.functions.options import Debounce, Options
    from mainspring.app.runtime import Runtime
    from mainspring.engine.registry import Function
    from mainspring.engine.replay.execution import Execution


class Invocation(Struct, frozen=True):
    """A function with its arguments and options, not called yet."""

    runtime: Runtime
    function: Function
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: Options
    text: str = ""
    """The arguments as stored, if they have been encoded already."""

    @property
    def name(self) -> str:
        return self.function.name

    def encode(self) -> str:
        """Encode the arguments for the store. Raises an error for wrong arguments and options."""
        if self.text:
            return self.text
        function, options, args = self.function, self.options, self.args
        if options.partition and not (options.queue or function.queue):
            raise InvalidInput(f"{function.name!r}: a partition is a part of a queue; give queue= as well")
        if function.at_most_once and options.retry is not None:
            raise InvalidInput(
                f"{function.name!r} is never started a second time (at_most_once), so it cannot be retried"
            )
        if function.bound is not Bound.NOT:
            if not args:
                raise InvalidInput(f"{function.name!r} is a method: call it on an instance")
            args = (self.runtime.instances.name_of(function, args[0]), *args[1:])
        text = function.codec.bind_and_encode(args, self.kwargs)
        limit = self.runtime.settings.value_bytes
        return check_size(text, (args, self.kwargs), limit, f"the arguments of {function.name!r}")

    def check_app(self, runtime: Runtime) -> None:
        """Raise `UnknownFunction` if the function belongs to another app. A call by name cannot be checked."""
        if self.function.source:
            runtime.registry.get(self.name)


def new_runs(
    runtime: Runtime, calls: Sequence[Invocation], texts: Sequence[str], ids: Sequence[str | None], ex: Execution | None
) -> list[NewRun]:
    """Make the rows of runs that are started together, by a run or from outside: with one time of creation, in this order."""
    now = runtime.clock.now()
    runs: list[NewRun] = []
    last: Invocation | None = None
    for call, text in zip(calls, texts, strict=True):
        if last is not None and call.function is last.function and call.options is last.options:
            run = copy(
                runs[-1]
            )  # a tenth of the time: most calls that are started together differ in their arguments only
            run.input = text
        else:
            run, last = _new_run(runtime, call, text, now, ex), call
        runs.append(run)
    for run, run_id, uid in zip(runs, ids, runtime.ids.many(len(runs)), strict=True):
        run.id, run.uid = run_id or uid, uid
    return runs


def _new_run(runtime: Runtime, call: Invocation, text: str, now: int, ex: Execution | None) -> NewRun:
    """The row without its ids."""
    function, options = call.function, call.options
    due = now if options.after is None else now + options.after
    due = due if options.at is None else options.at
    timeout = (
        None if options.no_timeout else options.timeout or (function.timeout if function.kind == "workflow" else None)
    )
    is_child = ex is not None and not options.parentless
    queue = options.queue or function.queue
    pinned = None if options.version == runtime.version else options.version
    runtime.destinations.note(function.name, None if queue in runtime.queues else queue, pinned)
    new = NewRun(
        id="",
        uid="",
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
        attributes=_attributes(runtime, options, ex if is_child else None),
        queue=queue,
        priority=options.priority,
        partition=options.partition,
        key=options.key,
        key_mode=options.key_mode,
        retry=options.retry or own_retry(function),
    )
    if options.debounce is not None:
        _put_off(new, options.debounce, now)
    return new


def later_run(
    runtime: Runtime,
    call: Invocation,
    text: str,
    run_id: str | None,
    ex: Execution | None,
    *,
    time: Callable[[int], int],
) -> NewRun:
    """Make the row of a scheduled function. It has no parent, so it does not depend on the run that scheduled it."""
    now = runtime.clock.now()
    when = time(now)
    (new,) = new_runs(runtime, [call], [text], [run_id], None)
    new.scheduled_time = when
    new.due = max(when, now)
    new.state = State.SCHEDULED if new.due > now else State.QUEUED
    new.scheduled_by = ex.id if ex is not None else None
    return new


def _attributes(runtime: Runtime, options: Options, parent: Execution | None) -> str:
    """The attributes of a run, with those that it inherits from its caller. A child has the user of its parent."""
    own = options.attributes or "{}"
    carried: dict[str, Any] = {}
    if parent is None:
        carried = {key: value for carrier in runtime.carriers for key, value in carrier().items()}
    elif options.user is None and (user := user_of(parent.run.attributes)) is not None:
        carried = {USER: user}
    named = {} if options.user is None else {USER: options.user}
    if not carried and not named:
        return own
    return json.dumps({**carried, **json.loads(own), **named}, ensure_ascii=False)


def own_retry(function: Function) -> str | None:
    """Return the retry policy of a workflow for its runs as stored, if it has one."""
    return (
        stored(function.retry, of_function=True)
        if function.kind == "workflow" and function.retry.attempts > 1
        else None
    )


def _put_off(new: NewRun, debounce: Debounce, now: int) -> None:
    new.key, new.key_mode = f"debounce {new.workflow} {debounce.key}", KeyMode.DEBOUNCE
    new.due, new.state = now + micros(debounce.wait), State.SCHEDULED
    new.debounce_until = None if debounce.max_wait is None else now + micros(debounce.max_wait)
