"""Every test here runs with the library patched and silent: outages are logged, thousands of times."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from tests.interleavings.patching import patched

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOUD = ("mainspring", "concurrent.futures")


@pytest.fixture(autouse=True)
def explored() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in _LOUD]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    with patched():
        yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
