"""Scheduled functions: `run_after` and `run_at`, and `app.scheduled_functions`."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.app.caller.current import current_caller
from mainspring.app.coroutines import Mapped
from mainspring.app.dual import dual
from mainspring.app.functions.options import moment
from mainspring.app.handle import handle_of
from mainspring.codec import size_of
from mainspring.errors import InvalidInput, TooLarge
from mainspring.model.clock import SECOND
from mainspring.operations.runs.actions import RunActions
from mainspring.operations.scheduled_functions import FunctionPage, FunctionViews, ScheduledFunction, ScheduledFunctions
from mainspring.recurrence.durations import micros

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from mainspring.app.functions.functions import Call
    from mainspring.app.functions.options import Duration, Moment
    from mainspring.app.handle import Handle
    from mainspring.app.runtime import Runtime
    from mainspring.operations.filters import Texts

R = TypeVar("R")
log = logging.getLogger("mainspring.app")

FIVE_YEARS = 5 * 366 * 86_400 * SECOND
_NEARLY = 0.95


def delay_of(value: Duration) -> int:
    """A delay in microseconds: not negative, finite, at most five years."""
    if isinstance(value, bool):
        raise InvalidInput(f"a delay is a timedelta, seconds or a phrase such as '10m', not {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(f"a delay must be finite, not {value!r}")
    found = micros(value)
    if found < 0:
        raise InvalidInput(f"a delay must not be negative, as {value!r} is; 0 is as soon as possible")
    if found > FIVE_YEARS:
        raise InvalidInput(f"the delay {value!r} is more than five years")
    return found


def time_of(value: Moment, now: int) -> int:
    """A point in time in microseconds, at most five years from now. One in the past means at once."""
    found = moment(value)
    if abs(found - now) > FIVE_YEARS:
        raise InvalidInput(f"the time {value!r} is more than five years in the {'future' if found > now else 'past'}")
    return found


def _check_call(call: Call[Any]) -> None:
    if call.options.after is not None or call.options.at is not None:
        raise InvalidInput(f"{call.name}: run_after and run_at say when; leave options(after=…) and options(at=…) out")


def _spend(runtime: Runtime, call: Call[Any], text: str) -> None:
    """Count a function against what one execution may schedule: one transaction, one step, or the body of one workflow."""
    quota = current_caller(runtime).quota
    if quota is None:
        return
    settings = runtime.settings
    if quota.functions >= settings.schedule_functions:
        raise TooLarge(
            f"too many functions are scheduled in one execution (limit: {settings.schedule_functions:,}, setting "
            f"schedule_functions); {call.name!r} was one too many"
        )
    size = size_of(text, (call.args, call.kwargs))
    if quota.size + size > settings.schedule_bytes:
        raise TooLarge(
            f"the arguments of the functions that are scheduled in one execution are too large (limit: "
            f"{settings.schedule_bytes:,} bytes, setting schedule_bytes); those of {call.name!r} were too much"
        )
    before = max(quota.functions / settings.schedule_functions, quota.size / settings.schedule_bytes)
    quota.functions += 1
    quota.size += size
    after = max(quota.functions / settings.schedule_functions, quota.size / settings.schedule_bytes)
    if before < _NEARLY <= after:
        log.warning(
            "one execution has scheduled %d functions with %d bytes of arguments; it fails beyond %d functions or %d bytes",
            quota.functions,
            quota.size,
            settings.schedule_functions,
            settings.schedule_bytes,
        )


def run_later(runtime: Runtime, call: Call[R], time: Callable[[int], int]) -> Coroutine[Any, Any, Handle[R]]:
    """Schedule a function. `time` computes its due time from the time of scheduling."""
    _check_call(call)
    call.check_app(runtime)
    text = call.encode()
    _spend(runtime, call, text)
    codec = call.function.codec.result
    return Mapped(
        current_caller(runtime).start_later(call, text, time), lambda started: handle_of(runtime, codec, started)
    )


class FunctionVerbs:
    """Verbs on functions that were scheduled with `run_after` and `run_at`."""

    _spelled = "app.scheduled_functions"

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @dual
    def get(self, /, function_id: str) -> Coroutine[Any, Any, ScheduledFunction]:
        """Look up a scheduled function. Raises `NotFound` for an unknown or deleted id. A transaction sees its own changes."""
        if not isinstance(function_id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"the id of a function is a string, not {function_id!r}")
        return self._look("get", ScheduledFunction, lambda functions: functions.get(function_id))

    def _look(self, verb: str, kind: Any, question: Callable[[FunctionViews], R]) -> Coroutine[Any, Any, R]:
        clock = self._runtime.clock
        return current_caller(self._runtime).read_inside(
            f"scheduled_functions.{verb}", kind, lambda store, _: question(FunctionViews(store, clock))
        )

    @dual
    def list(
        self,
        /,
        *,
        name: Texts = None,
        state: Texts = (),
        due_before: Moment | None = None,
        due_after: Moment | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Coroutine[Any, Any, FunctionPage]:
        """List a page of scheduled functions, first due first: by name, by state (pending, in_progress, success, failed, canceled),
        by a span of due times. Pass `next` of a page as `after` to get the following page.
        """
        return self._look(
            "list",
            FunctionPage,
            lambda functions: functions.list(
                name=name, state=state, due_before=due_before, due_after=due_after, after=after, limit=limit
            ),
        )

    @dual
    def cancel_all(
        self,
        /,
        name: Texts = None,
        before: Moment | None = None,
        after: Moment | None = None,
        reason: str | None = None,
    ) -> Coroutine[Any, Any, int]:
        """Cancel all pending functions, of a name or due in a span of time, in batches. Returns their number."""
        clock = self._runtime.clock
        done = current_caller(self._runtime).change_found(
            "scheduled_functions.cancel_all",
            lambda store, place: ScheduledFunctions(store, clock).pending(
                name=name, before=before, after=after, place=place
            ),
            lambda store, found: RunActions(store, clock).cancel(found, reason),
        )
        return Mapped(done, len)
