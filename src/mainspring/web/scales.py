"""Round numbers for axes: what a person would have written on them."""

from __future__ import annotations

_SECOND_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400)
_DAY = 86_400


def count_step(most: float, marks: int = 2) -> int:
    """The smallest of 1, 2, 5, 10, 20 … of which so many reach a number."""
    return max(1, round(_decimal(most / marks)))


def time_step(seconds: float, marks: int) -> float:
    """The smallest round length of time of which so many reach a length: milliseconds by tens, then as clocks are divided."""
    wanted = seconds / marks
    if wanted <= 1:
        return _decimal(wanted)
    return next((step for step in _SECOND_STEPS if step >= wanted), 0) or _decimal(wanted / _DAY) * _DAY


def _decimal(wanted: float) -> float:
    """1, 2 or 5 times a power of ten, at least as large."""
    power = 1e-6
    while True:
        for digit in (1, 2, 5):
            if digit * power >= wanted * (1 - 1e-9):
                return digit * power
        power *= 10
