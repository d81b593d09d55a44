"""Schedules in code: `@app.scheduled` above a workflow, `app.schedule(…)` for any call, and the arguments of `app.schedules`.

Every argument is checked here, before the database is asked.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from mainspring.app.functions.functions import as_call
from mainspring.app.functions.invocation import own_retry
from mainspring.app.functions.options import Options, moment
from mainspring.engine.registry import Bound
from mainspring.errors import InvalidInput
from mainspring.model.clock import to_datetime
from mainspring.model.given import attributes_json
from mainspring.model.runs import USER
from mainspring.model.user_line import warn_at_user_line
from mainspring.recurrence import AmbiguousCron, Cron, Spec, ambiguity
from mainspring.schedules.actions import Action
from mainspring.schedules.definition import Definition, check_note, check_schedule_id, spec_columns
from mainspring.schedules.policy import Policy, check_count

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from mainspring.app.functions.functions import Call
    from mainspring.app.functions.options import Moment
    from mainspring.app.runtime import Runtime
    from mainspring.engine.registry import Function
    from mainspring.recurrence import Fold, Gap

Mode = Literal["exactly_once_per_interval", "exactly_once_per_interval_when_active"]
ALWAYS: Mode = "exactly_once_per_interval"
WHEN_ACTIVE: Mode = "exactly_once_per_interval_when_active"


@dataclass(frozen=True, slots=True)
class Declaration:
    """A schedule as declared in code: the call, the spec, and the policy."""

    id: str
    call: Call[Any]
    spec: Spec
    policy: Policy | None = None
    note: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def definition(self) -> Definition:
        return define(self.id, self.call, self.spec, self.policy, note=self.note, attributes=self.attributes)


def define(
    schedule: str,
    call: Call[Any],
    spec: Spec,
    policy: Policy | None,
    *,
    note: str | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> Definition:
    """Return the definition of a schedule that makes a call. Raise an error for anything wrong with it."""
    check_schedule_id(schedule)
    check_note(note)
    _check(spec, policy)
    action = action_of_call(call)
    return Definition(
        schedule,
        call.name,
        call.encode(),
        spec,
        policy or Policy(),
        action,
        json.loads(attributes_json(attributes or {}, "attributes")),
        note,
    )


def action_of_call(call: Call[Any]) -> Action:
    """Return how a schedule starts the function of a call. Raise an error for options that a schedule decides itself."""
    function, options = call.function, call.options
    if options.after is not None or options.at is not None or options.detached:
        raise InvalidInput(f"a schedule says when {function.name!r} starts; leave out after, at and detached")
    if options.debounce is not None:
        raise InvalidInput(f"a schedule says when {function.name!r} starts; leave out debounce")
    made = _action(function, options)
    if own_names := sorted({"schedule_id", "scheduled_at"} & set(made.attributes)):
        raise InvalidInput(f"a schedule gives its runs the attribute {' and '.join(own_names)} itself; leave it out")
    if options.id is not None:
        check_schedule_id(options.id, "id of runs")
    return made


def _action(function: Function, options: Options, *, times: bool = False) -> Action:
    own = function.timeout if function.kind == "workflow" else None
    user = {} if options.user is None else {USER: options.user}
    return Action(
        options.id or "",
        function.kind,
        None if options.no_timeout else options.timeout or own,
        json.loads(options.attributes or "{}") | user,
        options.version,
        options.queue or function.queue,
        options.priority,
        options.partition,
        options.key,
        options.key_mode,
        options.retry or own_retry(function),
        times=times,
    )


def scheduled(
    function: Function,
    when: str | Cron | Spec,
    *,
    timezone: str | None,
    gap: Gap,
    fold: Fold,
    mode: str | None,
    policy: Policy | None,
    args: tuple[Any, ...] | None,
    schedule: str | None,
    note: str | None,
) -> Definition:
    """Return the definition that a decorator above a workflow declares."""
    if function.bound is not Bound.NOT:
        raise InvalidInput(
            f"{function.name!r} is a method, so a schedule would not know on which object to call it; "
            "use app.schedule(id, obj.method.bind(…), spec)"
        )
    if isinstance(when, Spec):
        if timezone is not None:
            raise InvalidInput("a Spec says its own time zone; leave out timezone=")
        spec = when
    else:
        cron = _dbos_cron(when) if isinstance(when, str) else when
        if not isinstance(cron, Cron):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"@app.scheduled takes a cron expression, a Cron or a Spec, not {when!r}")
        spec = Spec(cron=[cron], timezone=timezone, gap=gap, fold=fold)
    _check(spec, policy)
    if args is not None and not isinstance(args, (tuple, list)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"@app.scheduled: args are the arguments in a tuple, such as (1, 2), not {args!r}")
    times = args is None and _takes_times(function)
    return Definition(
        check_schedule_id(function.name if schedule is None else schedule),
        function.name,
        "{}" if times else function.codec.bind_and_encode(tuple(args or ()), {}),
        spec,
        _policy(mode, policy),
        _action(function, Options(), times=times),
        note=check_note(note),
    )


def _dbos_cron(text: str) -> Cron:
    """Return the spec of a bare string above a function. Warn at the user's line if other dialects read it differently."""
    cron = Cron(text, dialect="dbos")
    if warning := ambiguity(text, "dbos"):
        warn_at_user_line(warning, AmbiguousCron)
    return cron


def _policy(mode: str | None, policy: Policy | None) -> Policy:
    if policy is not None:
        if mode is not None:
            raise InvalidInput("give @app.scheduled a mode or a policy, not both: a mode is a policy")
        return policy
    if mode is None or mode == ALWAYS:
        return Policy("allow_all", catchup=None)
    if mode == WHEN_ACTIVE:
        return Policy("allow_all", when_active=True)
    raise InvalidInput(f"there is no mode {mode!r}; there are {ALWAYS!r} and {WHEN_ACTIVE!r}")


def _takes_times(function: Function) -> bool:
    """Whether the function is called with (scheduled_at, started_at). A function without parameters is called without them."""
    parameters = list(function.codec.signature.parameters.values())
    if not parameters:
        return False
    try:
        function.codec.signature.bind(None, None)
    except TypeError:
        raise InvalidInput(
            f"{function.name!r} is called by a schedule with (scheduled_at, started_at) or without arguments, and takes "
            f"{function.codec.signature}; give the arguments with @app.scheduled(…, args=(…))"
        ) from None
    return True


def _check(spec: object, policy: object) -> None:
    _check_spec(spec)
    if policy is not None:
        _check_policy(policy)


def _check_spec(spec: object) -> None:
    if not isinstance(spec, Spec):
        raise InvalidInput(f"a schedule takes a Spec, such as Spec(cron=[…]), not {spec!r}")


def _check_policy(policy: object) -> None:
    if not isinstance(policy, Policy):
        raise InvalidInput(f"a schedule takes a Policy, such as Policy(overlap=…), not {policy!r}")


# -- what `app.schedules` is given ---------------------------------------------------------------------------------------
def known_call(runtime: Runtime, call: object) -> Call[Any]:
    """Return the call if its function belongs to this app. A client, which calls by name, skips this check."""
    made = as_call(call)
    if made.function.source and any(True for _ in runtime.registry):
        runtime.registry.get(made.name)
    return made


def definition_of(runtime: Runtime, declaration: object) -> Definition:
    """Return the definition of one `Declaration` given to `apply`."""
    if not isinstance(declaration, Declaration):
        raise InvalidInput(f"apply takes Declarations: Declaration(id, fn.bind(…), Spec(…)), not {declaration!r}")
    known_call(runtime, declaration.call)
    return declaration.definition()


def span_of(given: object) -> tuple[datetime, datetime]:
    """Return the start and end of a span of time to backfill."""
    if not isinstance(given, (tuple, list)) or len(cast("tuple[Any, ...]", given)) != 2:
        raise InvalidInput(f"backfill: a span of time is a pair of times, (start, end), not {given!r}")
    start, end = cast("tuple[Moment, Moment]", given)
    return to_datetime(moment(start)), to_datetime(moment(end))


def columns(schedule: str, named: dict[str, Any]) -> dict[str, Any]:
    """Return the columns that `app.schedules.update` changes, with their new values. Raise an error for any invalid value."""
    values: dict[str, Any] = {}
    if "call" in named:
        call = as_call(named["call"])
        action = action_of_call(call).named(schedule)
        values |= {"workflow": call.name, "input": call.encode(), "action": action.to_json()}
    if "spec" in named:
        _check_spec(named["spec"])
        values |= spec_columns(named["spec"])
    if "policy" in named:
        _check_policy(named["policy"])
        values["policy"] = json.dumps(named["policy"].to_dict())
    if "attributes" in named:
        values["attributes"] = attributes_json(named["attributes"], "attributes")
    if "note" in named:
        values["note"] = check_note(named["note"])
    if "remaining" in named:
        values["remaining"] = check_count("remaining", named["remaining"])
    return values
