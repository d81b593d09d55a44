"""Format tracebacks for storing: the frames of the user's code, without those of the library."""

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
_EVENT_LOOPS = tuple(f"{Path(module.__file__ or '').parent}/" for module in (asyncio, concurrent.futures))
"""Event loops and thread pools, on which the library calls the user's code."""


def format_exception(exc: BaseException) -> str:
    """Return the traceback and the exception, without its linked exceptions."""
    made = traceback.TracebackException.from_exception(exc)
    _strip(made, exc)
    return "".join(made.format(chain=False))


def format_frames(trace: TracebackType | None) -> str:
    """Return the frames of a traceback in the user's code, without the message. Empty if all are in the library."""
    frames = traceback.extract_tb(trace)
    return "".join(traceback.format_list(_kept(frames)))


def _strip(made: traceback.TracebackException, exc: BaseException) -> None:
    """Remove the library's frames. An exception that never was in the user's code keeps all frames, unless it was rebuilt."""
    kept = _kept(made.stack)
    if kept or "remote_traceback" in exc.__dict__:
        made.stack[:] = kept
    members: tuple[BaseException, ...] = getattr(exc, "exceptions", ()) if made.exceptions else ()
    for part, member in zip(made.exceptions or (), members, strict=False):
        _strip(part, member)


def _kept(frames: Iterable[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    kept = [frame for frame in frames if not frame.filename.startswith(_OURS)]
    while kept and kept[0].filename.startswith(_EVENT_LOOPS):
        del kept[0]
    return kept
