"""What is given to the verbs of schedules, checked before anything is asked of the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from mainspring.app.functions import as_call
from mainspring.app.options import moment
from mainspring.errors import InvalidInput
from mainspring.model.clock import to_datetime

if TYPE_CHECKING:
    from datetime import datetime

    from mainspring.app.functions import Call
    from mainspring.app.options import Moment
    from mainspring.app.runtime import Runtime
    from mainspring.schedules.definition import Definition


def known_call(runtime: Runtime, call: object) -> Call[Any]:
    """The call, if its function is one of this app's. Whoever has no functions, or calls by name, cannot know."""
    made = as_call(call)
    if made.function.source and any(True for _ in runtime.registry):
        runtime.registry.get(made.name)
    return made


def definition_of(runtime: Runtime, declaration: object) -> Definition:
    """What one of the things given to `apply` defines."""
    from mainspring.app.declared import Declaration  # noqa: PLC0415  (not every app has schedules)

    if not isinstance(declaration, Declaration):
        raise InvalidInput(f"apply takes Declarations: Declaration(id, fn.bind(…), Spec(…)), not {declaration!r}")
    known_call(runtime, declaration.call)
    return declaration.definition()


def stretch_of(given: object) -> tuple[datetime, datetime]:
    """The two ends of a time to fill in."""
    if not isinstance(given, (tuple, list)) or len(cast("tuple[Any, ...]", given)) != 2:
        raise InvalidInput(f"backfill: a stretch of time is a pair of times, (start, end), not {given!r}")
    start, end = cast("tuple[Moment, Moment]", given)
    return to_datetime(moment(start)), to_datetime(moment(end))
