"""Encode exceptions as JSON text, and rebuild them.

An exception is stored as a record: type, message, arguments, attributes, notes, traceback, and the record of its cause. It is
rebuilt without `__init__`, which often takes other arguments than the exception keeps: the class makes an empty instance, which
gets the arguments and attributes of the original. Values that cannot be stored:

* an attribute is left out (the record keeps its `repr`, for display), or None if the class delegates to it: without it every look at
  the exception would raise, also that of a logger;
* an argument is replaced by its `repr`, as a `Shown`;
* if the class is not found or cannot be instantiated, or the instance would have another `str()`, the exception becomes a
  `RemoteError` with the type's name, the message, the attributes and the traceback.

Arguments and attributes may be JSON, the types of the standard library that `values` supports, other exceptions, and instances of
classes that only hold values: enums, dataclasses, Structs, NamedTuples, pydantic models.

The traceback of the original is text, in the attribute `remote_traceback`, and its frames are those of `__traceback__`. It is not a
note, since notes belong to the user and must stay equal. It is not a `__cause__`, since code that reads `__cause__` must find the cause
of the original.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import importlib
import re
import sys
import traceback
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, GetSetDescriptorType, MemberDescriptorType, TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from mainspring.codec.annotations import shape_of
from mainspring.codec.records import holds_values
from mainspring.codec.type_codec import (
    TAG,
    VALUE,
    Misfit,
    class_name,
    class_of,
    contain_exit,
    is_array,
    is_object,
    short,
)
from mainspring.codec.unions import Anything
from mainspring.errors import RemoteError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import CodeType, FrameType


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Find = Callable[[str], type[BaseException] | None]

TEXT_LIMIT = 16_000
"""The maximum length of a message, traceback or text argument. Longer texts lose their middle."""

VALUE_LIMIT = 64_000
"""The maximum size of an argument or attribute. Larger ones are handled like those that cannot be stored."""

RECORD_LIMIT = 16
"""The maximum number of exceptions that are stored of one chain, group or tree."""

_ARGS: Any = BaseException.__dict__["args"]
_EXCEPTION = "exception"
_REPR = "repr"
_write = msgspec.json.Encoder().encode
_parse = msgspec.json.Decoder().decode


class Shown(str):
    """The `repr()` of an argument that could not be stored.

    Its own `repr` is the same text, so that messages made of the arguments stay equal.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def encode_exception(exc: BaseException) -> str:
    """Return the JSON text of an exception. Never fails."""
    return _write(_ExceptionCodec().record(exc)).decode()


def summarize_exception(exc: BaseException) -> str:
    """Return the class and message of an exception as one text of bounded length that every database can store."""
    return f"{type(exc).__name__}: {_message(exc)}".replace("\0", "\N{REPLACEMENT CHARACTER}")[:500]


def add_note(exc: BaseException, text: str) -> None:
    """Add a note to an exception, unless its class does not let itself be looked at."""
    with contextlib.suppress(Exception):
        contain_exit(exc.add_note, text)


def decode_exception(text: str, find: Find | None = None) -> BaseException:
    """Rebuild an exception, or return a `RemoteError` in its place.

    `find` is called first for the class of a path such as `shop.errors:Declined`.
    """
    return _ExceptionCodec(find).rebuild(_parse(text))


class _ExceptionCodec(Anything):
    """Encodes or decodes one exception with its linked exceptions, arguments and attributes."""

    def __init__(self, find: Find | None = None) -> None:
        super().__init__()
        self.find = find
        self.left = RECORD_LIMIT
        self.ancestors: list[BaseException] = []

    def record(self, exc: BaseException) -> dict[str, Any]:
        self.left -= 1
        self.ancestors.append(exc)
        try:
            return {key: part for key, part in self._parts(exc) if part or key in {"type", "message"}}
        finally:
            self.ancestors.pop()

    def _parts(self, exc: BaseException) -> Iterator[tuple[str, Any]]:
        yield "type", path_of(type(exc))
        yield "message", _message(exc)
        yield "args", [self._storable(arg, otherwise=_shown(arg)) for arg in _ARGS.__get__(exc)]
        attributes = {name: self._storable(value, otherwise=Misfit) for name, value in _attributes(exc)}
        left_out = [name for name, stored in attributes.items() if stored is Misfit]
        yield "attributes", {name: stored for name, stored in attributes.items() if stored is not Misfit}
        yield "left_out", {name: _bounded(short(value, 200)) for name, value in _attributes(exc) if name in left_out}
        yield "notes", _notes(exc)
        yield "traceback", _traceback(exc)
        if exc.__cause__ is not None:
            yield "cause", self._linked(exc.__cause__)
        elif exc.__suppress_context__:
            yield "from_none", True
        elif exc.__context__ is not None:
            yield "context", self._linked(exc.__context__)

    def _linked(self, exc: BaseException) -> dict[str, Any] | None:
        if self.left <= 0 or any(exc is ancestor for ancestor in self.ancestors):
            return None
        return self.record(exc)

    def _storable(self, value: Any, otherwise: Any) -> Any:
        try:
            lowered = contain_exit(self.lower, value)
            return lowered if len(_write(lowered)) <= VALUE_LIMIT else otherwise
        except Exception:  # noqa: BLE001 - a value may do anything when it is looked at
            return otherwise

    def lower(self, value: Any) -> Any:
        if isinstance(value, BaseException):
            linked = self._linked(value)
            if linked is None:
                raise Misfit("an exception that contains itself, or too many others")
            return {TAG: _EXCEPTION, VALUE: linked}
        if isinstance(value, Shown):
            return _shown(value)
        if type(value) is str:
            return _bounded(value)
        cls: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
        if holds_values(cls) and find_value_class(path_of(cls)) is cls:
            return {TAG: path_of(cls), VALUE: shape_of(cls).lower(value)}
        return super().lower(value)

    def lift(self, raw: Any) -> Any:
        if is_object(raw) and TAG in raw:
            if raw[TAG] == _EXCEPTION:
                return self.rebuild(raw[VALUE])
            if raw[TAG] == _REPR:
                return Shown(raw[VALUE])
            if ":" in raw[TAG]:
                cls = find_value_class(raw[TAG])
                if cls is None:
                    raise Misfit(f"{raw[TAG]} is not known here")
                return shape_of(cls).lift(raw[VALUE])
        return super().lift(raw)

    def rebuild(self, record: dict[str, Any]) -> BaseException:
        made = self._original_class(record) or self._remote_error(record)
        made.__dict__["remote_traceback"] = record.get("traceback", "")
        BaseException.__setattr__(made, "__traceback__", traceback_of(record.get("traceback", "")))
        if notes := record.get("notes"):
            made.__dict__["__notes__"] = notes
        for link in ("cause", "context"):
            if link in record:
                BaseException.__setattr__(made, f"__{link}__", self.rebuild(record[link]))
        BaseException.__setattr__(made, "__suppress_context__", "cause" in record or "from_none" in record)
        return made

    def _original_class(self, record: dict[str, Any]) -> BaseException | None:
        """Return an exception of the original's class, if it has the original's message. None otherwise."""
        path = record["type"]
        cls = (self.find and self.find(path)) or find_exception(path)
        if cls is None:
            return None
        try:
            made = contain_exit(self._made, cls, record)
        except Exception:  # noqa: BLE001 - a user's class may raise anything
            return None
        same = type(made) is cls and _message(made) == record["message"]
        return made if same and _is_readable(made) else None

    def _made(self, cls: type[BaseException], record: dict[str, Any]) -> BaseException:
        args = tuple(self.lift(arg) for arg in record.get("args", ()))
        made = _empty(cls, args)
        _ARGS.__set__(made, args)
        slots = dict(_slots(cls))
        for name, stored in record.get("attributes", {}).items():
            if name in slots:
                slots[name].__set__(made, self.lift(stored))
            else:
                made.__dict__[name] = self.lift(stored)
        if not _is_readable(made):
            made.__dict__.update(dict.fromkeys(record.get("left_out", ())))
        return made

    def _remote_error(self, record: dict[str, Any]) -> RemoteError:
        attributes = {name: self._lifted(stored) for name, stored in record.get("attributes", {}).items()}
        type_name = record["type"].removeprefix("builtins:").replace(":", ".")
        return RemoteError(type_name, record["message"], traceback=record.get("traceback", ""), attributes=attributes)

    def _lifted(self, stored: Any) -> Any:
        """Return an attribute for display: decoded if possible, otherwise as stored."""
        try:
            return contain_exit(self.lift, stored)
        except Exception:  # noqa: BLE001 - a user's class may raise anything
            return stored


def _shown(arg: object) -> dict[str, str]:
    return {TAG: _REPR, VALUE: _bounded(short(arg, TEXT_LIMIT))}


def _empty(cls: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    """Return an instance made by a built-in `__new__`: neither `__init__` nor a `__new__` written in Python is called."""
    for base in cls.__mro__:
        new = base.__dict__.get("__new__")
        if isinstance(new, BuiltinFunctionType):
            made: BaseException = new(cls, *args)
            return made
    raise Misfit(f"{class_name(cls)} does not let itself be made")


def _is_readable(exc: BaseException) -> bool:
    """Whether a look at an attribute that does not exist ends as Python expects. Loggers and debuggers look for `__notes__`."""
    try:
        contain_exit(getattr, exc, "__notes__", None)
    except Exception:  # noqa: BLE001 - a user's class may raise anything
        return False
    return True


def _attributes(exc: BaseException) -> Iterator[tuple[str, Any]]:
    for name, slot in _slots(type(exc)):
        try:
            value = slot.__get__(exc)
        except AttributeError:  # not set
            continue
        if value is not None or slot.__objclass__.__module__ != "builtins":
            yield name, value
    for name, value in exc.__dict__.items():
        if not name.startswith("__") and name != "remote_traceback":
            yield name, value


def _slots(cls: type[BaseException]) -> Iterator[tuple[str, Any]]:
    """Yield the attributes outside of `__dict__`: `__slots__`, and those of built-in classes beside `args`."""
    for base in cls.__mro__:
        if base in {BaseException, BaseExceptionGroup}:  # a group is built from its arguments
            return
        for name, slot in vars(base).items():
            if isinstance(slot, (MemberDescriptorType, GetSetDescriptorType)) and not name.startswith("__"):
                yield name, slot


def _notes(exc: BaseException) -> list[str]:
    notes = exc.__dict__.get("__notes__")
    return [_bounded(note) for note in notes if isinstance(note, str)] if is_array(notes) else []


def _message(exc: BaseException) -> str:
    try:
        return _bounded(contain_exit(str, exc))
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide the failure
        return f"<{class_of(exc)} whose message cannot be read>"


def _traceback(exc: BaseException) -> str:
    """Return the traceback. For a rebuilt exception, the traceback of the original and then the frames in this process."""
    earlier = exc.__dict__.get("remote_traceback")
    if earlier is not None:
        return _bounded(continued(earlier, exc))
    try:
        return _bounded(contain_exit(format_exception, exc))
    except Exception:  # noqa: BLE001 - it, or an exception linked to it, may raise anything when it is looked at
        return _bounded(f"{format_frames(exc)}{class_of(exc)}: {_message(exc)}\n")


def _bounded(text: str) -> str:
    """Return text that can be stored: without lone surrogates, and without its middle if it is long."""
    text = text.encode(errors="backslashreplace").decode()
    if len(text) <= TEXT_LIMIT:
        return text
    half = TEXT_LIMIT // 2 - 50
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"


def path_of(cls: type[Any]) -> str:
    """Return the path of a class, as `module:QualName`."""
    return f"{cls.__module__}:{cls.__qualname__}"


def find_exception(path: str) -> type[BaseException] | None:
    """Return the exception class of a path, or None.

    A class that can be imported comes first. Otherwise it is one that is defined in this process, for example inside a function: it is
    found as long as it exists, and the last definition wins.
    """
    found = _imported(path)
    if isinstance(found, type) and issubclass(found, BaseException):
        return found
    return _find_defined(path)


def find_value_class(path: str) -> type[Any] | None:
    """Return the class of a path if it only holds values, or None."""
    found = _imported(path)
    return found if isinstance(found, type) and holds_values(found) else None


def _imported(path: str) -> object:
    """Return the object at a path, importing its module if necessary.

    An exception of a library that was only imported inside a step must be the same class in the process that replays the step.
    """
    module, _, qualname = path.partition(":")
    try:
        found: object = sys.modules.get(module) or contain_exit(importlib.import_module, module)
        for part in qualname.split("."):
            found = getattr(found, part)
    except Exception:  # noqa: BLE001 - a module may raise anything when it is imported
        return None
    return found


def _find_defined(path: str) -> type[BaseException] | None:
    module, _, qualname = path.partition(":")
    found: type[BaseException] | None = None
    waiting: list[type[BaseException]] = [BaseException]
    seen: set[type[BaseException]] = set()
    while waiting:
        cls = waiting.pop(0)
        if cls in seen:
            continue
        seen.add(cls)
        if cls.__qualname__ == qualname and cls.__module__ == module:
            found = cls
        waiting.extend(cls.__subclasses__())
    return found


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
