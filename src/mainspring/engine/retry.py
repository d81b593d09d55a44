"""The one retry policy, for steps, runs and queues."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mainspring.errors import InvalidInput, NotSerializable, TooLarge
from mainspring.recurrence.durations import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

Errors = tuple[type[BaseException], ...]


@dataclass(frozen=True, slots=True)
class Retry:
    """Try up to `attempts` times in all. The n-th pause is `first * factor ** (n - 1)`, at most `cap`.

    `on` names the exceptions worth another attempt (default: all), `unless` those that are not; each is a tuple of types, or
    for `on` a function that is given the exception. `jitter` adds up to that fraction of each pause, by a hash of the run
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
        if not math.isfinite(self.factor) or self.factor < 1:
            raise InvalidInput(f"Retry: factor is a number from 1, not {self.factor!r}")
        if not 0 <= self.jitter <= 1:
            raise InvalidInput(f"Retry: jitter is a fraction from 0 to 1, not {self.jitter!r}")
        parse_duration(self.first)
        parse_duration(self.cap)

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
        return isinstance(error, wanted) if isinstance(wanted, (tuple, type)) else bool(wanted(error))


_ONCE = Retry(1)
