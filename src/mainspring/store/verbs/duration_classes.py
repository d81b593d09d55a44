"""The classes in which durations are counted."""

from __future__ import annotations

CLASSES = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    1_800.0,
    3_600.0,
    21_600.0,
    86_400.0,
)
"""The classes of durations, each by its upper bound in seconds. Longer durations are in one more class."""
