"""Warnings at the line of the user's code."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

_PACKAGE = str(Path(__file__).parents[1]) + "/"


def warn_at_user_line(message: str, category: type[Warning]) -> None:
    """Warn at the nearest line outside this package, however many of its functions are in between."""
    level = 1
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - the only access to callers
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)
