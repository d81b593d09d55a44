"""The one retry policy, for steps, runs and queues."""

from __future__ import annotations

import functools
import inspect
import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct

from mainspring.errors import InvalidInput, NotSerializable, TooLarge
from mainspring.model.given import explained
from mainspring.recurrence.durations import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

Errors = tuple[type[BaseException], ...]


@explained()
@dataclass(frozen=True, slots=True)
class Retry:
    """Try up to `attempts` times in all. The n-th pause is `first * factor ** (n - 1)`, at most `cap`.

    `on` names the exceptions worth another attempt (default: all), `unless` those that are not; each is a tuple of types, or
    for `on` a plain function that is given the exception. `jitter` adds up to that fraction of each pause, by a hash of the run
    and position, so that many runs that failed together do not come back together.
    """

    attempts: int = 3
    first: timedelta | float | str = 1.0
    factor: float = 2.0
    cap: timedelta | float | str = "1h"
    jitter: float = 0.0
    on: Errors | type[BaseException] | Callable[[BaseException], bool] = (Exception,)
    unless: Errors | type[BaseException] = ()

    def __post_init__(self) -> None:
        if isinstance(self.attempts, bool) or not isinstance(self.attempts, int) or self.attempts < 1:
            raise InvalidInput(f"Retry: attempts is a whole number from 1, not {self.attempts!r}")
        if not _is_number(self.factor) or self.factor < 1:
            raise InvalidInput(f"Retry: factor is a number from 1, not {self.factor!r}")
        if not _is_number(self.jitter) or not 0 <= self.jitter <= 1:
            raise InvalidInput(f"Retry: jitter is a fraction from 0 to 1, not {self.jitter!r}")
        parse_duration(self.first)
        parse_duration(self.cap)
        if not _are_exceptions(self.on) and (isinstance(self.on, type) or not callable(self.on)):
            raise InvalidInput(f"Retry: on is a tuple of exceptions, or a function of one, not {self.on!r}")
        if not _are_exceptions(self.on) and _answers_later(self.on):
            raise InvalidInput(
                f"Retry: on is a function that answers True or False at once, so it cannot be `async` or a generator; "
                f"write {self.on!r} as a plain `def`"
            )
        if not _are_exceptions(self.unless):
            raise InvalidInput(f"Retry: unless is a tuple of exceptions, not {self.unless!r}")

    @classmethod
    def of(cls, value: Retry | int | None) -> Retry:
        """The policy that `retry=` means: a number is short for that many attempts, nothing is a single one."""
        if value is None:
            return _ONCE
        return value if isinstance(value, Retry) else cls(value)

    def pause(self, failed: int, error: BaseException, seed: str) -> int | None:
        """Microseconds to wait after `failed` attempts, the last of which raised `error`; None to give up."""
        if failed >= self.attempts or not self._worth_it(error):
            return None
        first, cap = parse_duration(self.first).total_seconds(), parse_duration(self.cap).total_seconds()
        try:
            seconds = min(first * self.factor ** (failed - 1), cap)
        except OverflowError:
            seconds = cap
        if self.jitter:
            seconds += seconds * self.jitter * random.Random(f"{seed}:{failed}").random()
        return int(seconds * 1_000_000)

    def _worth_it(self, error: BaseException) -> bool:
        if isinstance(error, (NotSerializable, TooLarge)) or (self.unless and isinstance(error, self.unless)):
            return False
        wanted: Any = self.on
        if isinstance(wanted, (tuple, type)):
            return isinstance(error, wanted)
        try:
            answer = wanted(error)
        except (Exception, KeyboardInterrupt):
            raise
        except BaseException as exit_:  # it would end or cancel what asks, and not just give up the attempts
            raise RuntimeError(f"Retry: on={wanted!r} raised {type(exit_).__name__}") from exit_
        if inspect.isawaitable(
            answer
        ):  # of a plain function that calls a coroutine function, which nothing shows before
            if inspect.iscoroutine(answer):
                answer.close()
            raise InvalidInput(f"Retry: on={wanted!r} answers with something to await; it has to answer True or False")
        return bool(answer)


def _answers_later(test: Any) -> bool:
    """Whether what a function returns is no answer yet: a coroutine or a generator, which counts as true whatever comes of it."""
    while isinstance(test, functools.partial):
        test = cast("Any", test.func)  # pyright: ignore[reportUnknownMemberType]
    called = getattr(test, "__call__", None)  # noqa: B004  (a method of its class, which may be `async`)
    kinds = (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction)
    return any(kind(each) for kind in kinds for each in (test, called))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _are_exceptions(value: object) -> bool:
    types = cast("tuple[object, ...]", value if isinstance(value, tuple) else (value,))
    return all(isinstance(each, type) and issubclass(each, BaseException) for each in types)


_ONCE = Retry(1)


class _Stored(Struct, omit_defaults=True):
    """A policy as a run or queue keeps it: lengths in seconds, exceptions by name."""

    attempts: int
    first: float = 1.0
    factor: float = 2.0
    cap: float = 3600.0
    jitter: float = 0.0
    on: list[str] | None = None
    unless: list[str] | None = None
    by_code: bool = False
    """The function's own policy decides which exceptions are worth it."""


def stored(retry: Retry, *, of_function: bool = False) -> str:
    """The policy as JSON. A test of exceptions that is a function can only be had where the function is."""
    wanted: Any = retry.on
    by_types = isinstance(retry.on, (tuple, type))
    by_code = of_function and not by_types
    if not by_code and not by_types:
        raise InvalidInput(
            "retry: `on` can be a function only in @app.workflow(retry=…); name types of exceptions here"
        )
    record = _Stored(
        retry.attempts,
        parse_duration(retry.first).total_seconds(),
        retry.factor,
        parse_duration(retry.cap).total_seconds(),
        retry.jitter,
        None if by_code or wanted == (Exception,) else _names(wanted),
        _names(retry.unless) or None,
        by_code,
    )
    return msgspec.json.encode(record).decode()


def pause_of(text: str | None, own: Retry, failed: int, error: BaseException, seed: str) -> int | None:
    """Microseconds until a run that has failed so often is tried again by its stored policy, or by its function's own; None:
    it is not.
    """
    if text is None:
        return own.pause(failed, error, seed)
    record = msgspec.json.decode(text, type=_Stored)
    names = _names(type(error).__mro__)
    if record.unless and set(record.unless) & set(names):
        return None
    if record.on is not None and not set(record.on) & set(names):
        return None
    on = own.on if record.by_code else (Exception,)
    policy = Retry(record.attempts, record.first, record.factor, record.cap, record.jitter, on)
    return policy.pause(failed, error, seed)


def _names(types: Any) -> list[str]:
    each: list[type] = [types] if isinstance(types, type) else list(types)
    return [f"{one.__module__}:{one.__qualname__}" for one in each]
