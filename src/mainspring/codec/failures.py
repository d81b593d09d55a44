"""Exceptions to JSON text and back.

An exception is stored as a record: type, message, arguments, attributes, notes, traceback, and the same of its cause. It is
rebuilt without `__init__`, which often takes other arguments than those the exception keeps: the class makes an empty instance,
and that gets the arguments and attributes of the original. The rule for what cannot be stored:

* an attribute that cannot is left out (its `repr` stays in the record, for people);
* an argument that cannot is replaced by its `repr`, as a `Shown`;
* if the class is not found, does not let itself be made, or the instance would read differently (`str()`), then a `RemoteError`
  with the type's name, the message, the attributes and the traceback takes its place.

Arguments and attributes may be JSON, what the standard library has beyond it (see `values`), other exceptions, and instances of
classes that only hold values: enums, dataclasses, Structs, NamedTuples, pydantic models.

The traceback of the original is text, in the attribute `remote_traceback`. It is no note, since notes are the user's and stay
equal, and no `__cause__`, since code that looks there must find what the original had.
"""

from __future__ import annotations

from types import BuiltinFunctionType, GetSetDescriptorType, MemberDescriptorType
from typing import TYPE_CHECKING, Any

import msgspec

from mainspring.codec.annotations import shape_of
from mainspring.codec.classes import find_exception, find_value_class, holds_values, path_of
from mainspring.codec.tracebacks import passed, shown
from mainspring.codec.type_codec import TAG, VALUE, Misfit, class_name, class_of, is_array, is_object, short
from mainspring.codec.unions import Anything
from mainspring.errors import RemoteError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Find = Callable[[str], type[BaseException] | None]

TEXT_LIMIT = 16_000
"""Longer texts (message, traceback, an argument) lose their middle."""

VALUE_LIMIT = 64_000
"""Larger arguments and attributes count as those that cannot be stored."""

RECORD_LIMIT = 16
"""So many exceptions are stored of one chain, group or tree."""

_ARGS: Any = BaseException.__dict__["args"]
_EXCEPTION = "exception"
_REPR = "repr"
_write = msgspec.json.Encoder().encode
_parse = msgspec.json.Decoder().decode


class Shown(str):
    """The `repr()` of an argument that could not be stored. Its own `repr` is the same, so that messages made of the
    arguments read as they did.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def encode_exception(exc: BaseException) -> str:
    """The JSON text of an exception. Never fails."""
    return _write(_Carrier().record(exc)).decode()


def in_a_line(exc: BaseException) -> str:
    """The class and message of an exception, as text that every database stores, of bounded length."""
    return f"{type(exc).__name__}: {_message(exc)}".replace("\0", "\N{REPLACEMENT CHARACTER}")[:500]


def decode_exception(text: str, find: Find | None = None) -> BaseException:
    """The exception again, or a RemoteError that stands for it. `find` is asked first for the class of a path such as
    `shop.errors:Declined`.
    """
    return _Carrier(find).rebuild(_parse(text))


class _Carrier(Anything):
    """Carries one exception with all that hangs on it, in one direction."""

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
            lowered = self.lower(value)
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
        made = self._same(record) or self._stand_in(record)
        made.__dict__["remote_traceback"] = record.get("traceback", "")
        if notes := record.get("notes"):
            made.__dict__["__notes__"] = notes
        for link in ("cause", "context"):
            if link in record:
                BaseException.__setattr__(made, f"__{link}__", self.rebuild(record[link]))
        BaseException.__setattr__(made, "__suppress_context__", "cause" in record or "from_none" in record)
        return made

    def _same(self, record: dict[str, Any]) -> BaseException | None:
        """An exception of the original's class, if it reads like the original."""
        path = record["type"]
        cls = (self.find and self.find(path)) or find_exception(path)
        if cls is None:
            return None
        try:
            args = tuple(self.lift(arg) for arg in record.get("args", ()))
            made = _empty(cls, args)
            _ARGS.__set__(made, args)
            slots = dict(_slots(cls))
            for name, stored in record.get("attributes", {}).items():
                if name in slots:
                    slots[name].__set__(made, self.lift(stored))
                else:
                    made.__dict__[name] = self.lift(stored)
        except Exception:  # noqa: BLE001 - whatever the class raises, it does not let itself be made
            return None
        return made if type(made) is cls and _message(made) == record["message"] else None

    def _stand_in(self, record: dict[str, Any]) -> RemoteError:
        attributes = {name: self._lifted(stored) for name, stored in record.get("attributes", {}).items()}
        type_name = record["type"].removeprefix("builtins:").replace(":", ".")
        return RemoteError(type_name, record["message"], traceback=record.get("traceback", ""), attributes=attributes)

    def _lifted(self, stored: Any) -> Any:
        """An attribute for people to look at: as it was, or as it is stored."""
        try:
            return self.lift(stored)
        except Misfit:
            return stored


def _shown(arg: object) -> dict[str, str]:
    return {TAG: _REPR, VALUE: _bounded(short(arg, TEXT_LIMIT))}


def _empty(cls: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    """An instance as Python itself makes it: neither `__init__` nor a `__new__` written in Python is called."""
    for base in cls.__mro__:
        new = base.__dict__.get("__new__")
        if isinstance(new, BuiltinFunctionType):
            made: BaseException = new(cls, *args)
            return made
    raise Misfit(f"{class_name(cls)} does not let itself be made")


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
    """What instances keep outside of `__dict__`: `__slots__`, and what built-in classes have beside `args`."""
    for base in cls.__mro__:
        if base in {BaseException, BaseExceptionGroup}:  # a group is made of its arguments
            return
        for name, slot in vars(base).items():
            if isinstance(slot, (MemberDescriptorType, GetSetDescriptorType)) and not name.startswith("__"):
                yield name, slot


def _notes(exc: BaseException) -> list[str]:
    notes = exc.__dict__.get("__notes__")
    return [_bounded(note) for note in notes if isinstance(note, str)] if is_array(notes) else []


def _message(exc: BaseException) -> str:
    try:
        return _bounded(str(exc))
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide the failure
        return f"<{class_of(exc)} whose message cannot be read>"


def _traceback(exc: BaseException) -> str:
    """Where it was raised: of a rebuilt exception where the original was, and then where it passed here."""
    earlier = exc.__dict__.get("remote_traceback")
    if earlier is None:
        return _bounded(shown(exc))
    here = passed(exc.__traceback__)
    return _bounded(f"{earlier}\nand then, in another run or process:\n{here}" if here else earlier)


def _bounded(text: str) -> str:
    """Text that can be stored: without lone surrogates, and without its middle if it is long."""
    text = text.encode(errors="backslashreplace").decode()
    if len(text) <= TEXT_LIMIT:
        return text
    half = TEXT_LIMIT // 2 - 50
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
