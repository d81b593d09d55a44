"""Logs during a case. What goes wrong is meant to; only errors that the library logs are kept, for the auditor."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from tests.injection.threads import Abandoned

if TYPE_CHECKING:
    from collections.abc import Generator

_LOUD = ("asyncio", "concurrent.futures")
"""Loggers that have something to say about every thread and task that a killed process leaves."""


class _Kept(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, Abandoned):
            self._lines.append(f"{record.getMessage()}{f': {error!r}' if error is not None else ''}")


@contextlib.contextmanager
def quiet(lines: list[str]) -> Generator[None]:
    """Keep errors of the library's in `lines`, and the rest from everybody."""
    logger, others = logging.getLogger("mainspring"), [logging.getLogger(name) for name in _LOUD]
    handler = _Kept(lines)
    before = logger.propagate, [other.disabled for other in others]
    logger.addHandler(handler)
    logger.propagate = False
    for other in others:
        other.disabled = True
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = before[0]
        for other, disabled in zip(others, before[1], strict=True):
            other.disabled = disabled
