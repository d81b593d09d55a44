"""Typed names of topics, events, streams and questions: `decided = Topic("decided", Decision)`. A plain string is untyped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from mainspring.codec import check_size, value_codec
from mainspring.errors import InvalidInput
from mainspring.model.given import check_text

if TYPE_CHECKING:
    from mainspring.app.settings import Settings
    from mainspring.codec import ValueCodec

T = TypeVar("T")
A = TypeVar("A")


class _Name(Generic[T]):
    """A name and the type of its values."""

    _what: ClassVar[str] = "name"

    def __init__(self, name: str, type_: type[T]) -> None:
        self.name = _checked(name, self._what)
        self.codec: ValueCodec = value_codec(type_, f"a value of the {self._what} {name!r}")

    def __repr__(self) -> str:
        return f"<{self._what} {self.name}>"


class Topic(_Name[T]):
    """The topic of messages: `app.send(run_id, decided, decision)` and `await run.receive(decided)`."""

    _what = "topic"


class Event(_Name[T]):
    """A named value of a run: `await run.set_event(progress, 40)` and `await app.get_event(run_id, progress)`."""

    _what = "event"


class Stream(_Name[T]):
    """A named list of values of a run: `await run.write_stream(tokens, "…")` and `app.read_stream(run_id, tokens)`."""

    _what = "stream"


class Question(_Name[T], Generic[T, A]):
    """A question to a run, with the type of its answer: `await app.ask(run_id, approve, decision)`."""

    _what = "question"

    def __init__(self, name: str, type_: type[T], answer: type[A]) -> None:
        super().__init__(name, type_)
        self.answer: ValueCodec = value_codec(answer, f"the answer to {name!r}")


def answer_codec(given: Question[Any, Any] | str) -> ValueCodec:
    """Return the codec of a question's answers."""
    return given.answer if isinstance(given, Question) else value_codec(Any, f"the answer to {given!r}")


def named(given: _Name[Any] | str, what: str) -> tuple[str, ValueCodec]:
    """Return the plain name and the codec of its values."""
    if isinstance(given, _Name):
        return given.name, given.codec
    return _checked(given, what), value_codec(Any, f"a value of the {what} {given!r}")


def stored_text(settings: Settings, codec: ValueCodec, value: Any, what: str) -> str:
    """Return a value as stored."""
    return check_size(codec.encode(value), value, settings.value_bytes, what)


def _checked(name: object, what: str) -> str:
    found = check_text(f"the name of a {what}", name)
    if not found.strip():
        raise InvalidInput(f"the name of a {what} must not be blank, as {name!r} is")
    return found
