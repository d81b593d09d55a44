"""Tracebacks as they are stored: where the user's code was, without the library's own frames around it and in between."""

from __future__ import annotations

import asyncio
import concurrent.futures
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

_OURS = f"{Path(__file__).parents[1]}/"
_CARRIERS = tuple(f"{Path(module.__file__ or '').parent}/" for module in (asyncio, concurrent.futures))
"""Loops and pools, on which the library calls the user's code."""


def shown(exc: BaseException) -> str:
    """The traceback and the exception, without those that it is linked to."""
    made = traceback.TracebackException.from_exception(exc)
    _strip(made, exc)
    return "".join(made.format(chain=False))


def passed(trace: TracebackType | None) -> str:
    """Where an exception passed, without its message; nothing if that was in the library alone."""
    frames = traceback.extract_tb(trace)
    return "".join(traceback.format_list(_kept(frames)))


def _strip(made: traceback.TracebackException, exc: BaseException) -> None:
    """An exception that never was in the user's code keeps all frames, unless it was rebuilt: then they are elsewhere."""
    kept = _kept(made.stack)
    if kept or "remote_traceback" in exc.__dict__:
        made.stack[:] = kept
    members: tuple[BaseException, ...] = getattr(exc, "exceptions", ()) if made.exceptions else ()
    for part, member in zip(made.exceptions or (), members, strict=False):
        _strip(part, member)


def _kept(frames: Iterable[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    kept = [frame for frame in frames if not frame.filename.startswith(_OURS)]
    while kept and kept[0].filename.startswith(_CARRIERS):
        del kept[0]
    return kept
