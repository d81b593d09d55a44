"""The outcomes of a batch function: a list with a value or an exception for each input."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mainspring.codec import contain_exit
from mainspring.errors import BatchMismatch

if TYPE_CHECKING:
    from collections.abc import Callable


def checked(name: str, count: int, outcomes: Any) -> Sequence[Any]:
    """Return the outcomes of a batch, after a check that there is one for each input."""
    if not isinstance(outcomes, Sequence) or isinstance(outcomes, str | bytes):
        raise BatchMismatch(
            f"batch function {name!r} returned a {type(outcomes).__name__}; it returns a list with an outcome for each input"
        )
    found: Sequence[Any] = outcomes  # pyright: ignore[reportUnknownVariableType]
    if len(found) != count:
        raise BatchMismatch(
            f"batch function {name!r} got {count} inputs and returned {len(found)} outcomes; it returns one for each, in the same order"
        )
    return found


def own_error(error: BaseException, name: str) -> BaseException:
    """Return a copy of an exception for one input, so that notes added by its step do not appear on other inputs."""
    if not isinstance(error, Exception):
        return RuntimeError(f"batch function {name!r} raised {type(error).__name__}")
    if isinstance(error, StopIteration):
        return RuntimeError(f"batch function {name!r} raised StopIteration")
    try:
        made = contain_exit(copy.copy, error)
    except Exception:  # noqa: BLE001  (a class that cannot be copied)
        return error
    if type(made) is not type(error):
        return error
    made.__cause__, made.__suppress_context__ = error.__cause__, error.__suppress_context__
    return made.with_traceback(error.__traceback__)


def alone(name: str, fn: Callable[..., Any], value: Any) -> Any:
    """Call a batch function with one input, outside of runs."""
    return _outcome(checked(name, 1, fn([value])))


async def alone_async(name: str, fn: Callable[..., Any], value: Any) -> Any:
    """Call an `async def` batch function with one input, outside of runs."""
    return _outcome(checked(name, 1, await fn([value])))


def _outcome(outcomes: Sequence[Any]) -> Any:
    if isinstance(outcomes[0], BaseException):
        raise outcomes[0]
    return outcomes[0]
