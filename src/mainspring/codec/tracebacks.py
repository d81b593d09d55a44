"""The traceback of an exception as text, and the traceback object of a text.

The text has the frames of the user's code and leaves out those of the library, of event loops and of thread pools. A rebuilt exception has
the frames of its text as `__traceback__`, so that its printed or logged form names the line of the workflow or step that raised it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import re
import traceback
from pathlib import Path
from types import FunctionType, TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import CodeType, FrameType

_OURS = f"{Path(__file__).parents[1]}/"
_EVENT_LOOPS = tuple(f"{Path(module.__file__ or '').parent}/" for module in (asyncio, concurrent.futures))
"""Event loops and thread pools, on which the library calls the user's code."""

_AGAIN = "\nand then, in another run or process:\n"
_FRAME = re.compile(r'(?:  \| )?  File "(?P<file>.+)", line (?P<line>\d{1,9}), in (?P<name>.+)')
_INSIDE = ("  ", "Traceback ", "…")
"""The beginnings of lines that stand before the message: frames, the heading, and the mark in a text that was cut."""

_RECORDED: dict[str, Any] = {}
"""The globals of all frames that are made from text, by which they are recognised."""


def format_exception(exc: BaseException) -> str:
    """Return the traceback and the exception, without its linked exceptions."""
    made = traceback.TracebackException.from_exception(exc)
    _strip(made, exc)
    return "".join(made.format(chain=False))


def format_frames(exc: BaseException) -> str:
    """Return the traceback without the exception itself."""
    frames = _kept(traceback.extract_tb(exc.__traceback__))
    return "".join(["Traceback (most recent call last):\n", *traceback.format_list(frames)])


def continued(earlier: str, exc: BaseException) -> str:
    """Return the recorded traceback of a rebuilt exception, and then the frames through which it passed in this process."""
    here = traceback.extract_tb(exc.__traceback__, limit=sum(1 for _ in _executed(exc.__traceback__)))
    frames = "".join(traceback.format_list(_kept(here)))
    return f"{earlier}{_AGAIN}{frames}" if frames else earlier


def traceback_of(text: str) -> TracebackType | None:
    """Return a traceback with the frames of a recorded one. The frames have a file, a line and a name, and nothing else."""
    made: TracebackType | None = None
    for part in text.split(_AGAIN):  # the first part has the innermost frames
        for file, line, name in reversed([*_frames(part)]):
            made = TracebackType(made, _frame(file, line, name), 0, line)
    return made


def _frames(text: str) -> Iterator[tuple[str, int, str]]:
    for line in text.splitlines():
        if found := _FRAME.fullmatch(line):
            yield found["file"], int(found["line"]), found["name"]
        elif not line.startswith(_INSIDE):
            return


def _frame(file: str, line: int, name: str) -> FrameType:
    """Return a frame of a generator that never began: no code is executed, which a debugger or a coverage tool would see."""
    code = _TEMPLATE.replace(co_filename=file, co_firstlineno=line, co_name=name, co_qualname=name)
    frame: FrameType = FunctionType(code, _RECORDED)().gi_frame
    return frame


def _without_columns(code: CodeType) -> CodeType:
    """Return the code with all instructions on its first line and no columns, so that no column of the source is marked."""
    units = (
        len(code.co_code) // 2
    )  # an entry of the table: its kind (13: a line without columns), its length, and 0 further lines
    table = b"".join(bytes((0x80 | 13 << 3 | min(8, units - at) - 1, 0)) for at in range(0, units, 8))
    return code.replace(co_linetable=table)


def _template() -> Iterator[None]:
    yield


_TEMPLATE = _without_columns(_template.__code__)


def _executed(trace: TracebackType | None) -> Iterator[TracebackType]:
    """Yield the part of a traceback that comes from execution in this process, before the frames that are made from text."""
    while trace is not None and trace.tb_frame.f_globals is not _RECORDED:
        yield trace
        trace = trace.tb_next


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
