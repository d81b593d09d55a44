"""An exception that was stored is the exception that was raised, or says honestly that it is not."""

from __future__ import annotations

import asyncio
import configparser
import enum
import json
import sqlite3
import subprocess
import traceback
import urllib.error
import zoneinfo
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from email.message import Message
from typing import Any, ClassVar

import msgspec
import pydantic
import pytest

from mainspring import errors
from mainspring.codec import decode_exception, encode_exception
from mainspring.codec.failures import RECORD_LIMIT, TEXT_LIMIT, traceback_of
from mainspring.errors import RemoteError
from tests.codec.shop import Card, Colour, Point, User

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


class Declined(Exception):
    """Takes other arguments than it keeps."""

    def __init__(self, *, code: int, card: Card, at: datetime) -> None:
        super().__init__(f"declined with code {code}")
        self.code = code
        self.card = card
        self.at = at
        self.colour = Colour.RED


class StatusError(Exception):
    """Carries what cannot be stored, as the errors of HTTP clients do."""

    def __init__(self, message: str, *, request: object, status: int) -> None:
        super().__init__(message)
        self.request = request
        self.status = status


class Slotted(Exception):
    __slots__ = ("code", "unset")

    def __init__(self, code: int | None) -> None:
        self.code = code


@dataclass
class Quota(Exception):
    limit: int
    used: Decimal
    names: ClassVar[list[str]] = []

    def __str__(self) -> str:
        return f"{self.used} of {self.limit} used"


@dataclass(frozen=True)
class Frozen(Exception):
    code: int


class FileTrouble(OSError):
    def __init__(self, path: str, hint: str) -> None:
        super().__init__(13, "no entry", path)
        self.hint = hint


class Counting(Exception):
    made = 0

    def __new__(cls, *args: object) -> Counting:  # noqa: PYI034 - as users write it
        cls.made += 1
        return super().__new__(cls, *args)

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        type(self).made += 1


class Wrapping(Exception):
    def __init__(self, original: BaseException) -> None:
        super().__init__(f"wrapped: {original}", original)
        self.original = original


class Reads(Exception):
    """Says what its attribute says, so that without it there is nothing to say."""

    def __init__(self, request: object) -> None:
        super().__init__()
        self.request = request

    def __str__(self) -> str:
        return f"failed: {self.request.method}"  # type: ignore[attr-defined]


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Request:
    method = "GET"


class Level(enum.IntEnum):
    HIGH = 3


def caught(fn: Any, *args: Any) -> BaseException:
    try:
        fn(*args)
    except BaseException as exc:  # noqa: BLE001
        return exc
    raise AssertionError("nothing was raised")


def there_and_back(exc: BaseException) -> BaseException:
    return decode_exception(encode_exception(exc))


def looks(exc: BaseException) -> tuple[Any, ...]:
    """All that code can see of an exception, but its traceback."""
    attributes = {name: part for name, part in vars(exc).items() if name != "remote_traceback"}
    slots = [
        getattr(exc, name, None)
        for name in ("errno", "strerror", "filename", "filename2", "code", "value", "name", "path")
    ]
    parts = [looks(part) for part in getattr(exc, "exceptions", ())]
    args = [looks(arg) if isinstance(arg, BaseException) else arg for arg in exc.args] if not parts else exc.args[0]
    attributes = {name: looks(part) if isinstance(part, BaseException) else part for name, part in attributes.items()}
    return type(exc), str(exc), args, attributes, slots, parts


EVERYDAY = [
    ValueError("no"),
    ValueError(),
    KeyError("a"),
    KeyError(("a", 1)),
    IndexError("list index out of range"),
    caught(lambda: 1 / 0),
    caught(lambda: int("x")),
    caught(getattr, 3, "missing"),
    caught(lambda: undefined),  # type: ignore[name-defined] # noqa: F821 # pyright: ignore[reportUndefinedVariable, reportUnknownLambdaType]
    caught(open, "/no/such/file"),
    PermissionError(13, "denied", "/a", None, "/b"),
    BlockingIOError(11, "later", 5),
    ConnectionResetError(104, "reset by peer"),
    TimeoutError("too slow"),
    caught(b"\xff".decode),
    caught(json.loads, "{"),
    caught(compile, "a b", "f.py", "eval"),
    caught(__import__, "no_such_module"),
    subprocess.CalledProcessError(1, ["ls", "-l"], b"out", b"err"),
    subprocess.TimeoutExpired("ls", 3.5),
    StopIteration(3),
    StopAsyncIteration(),
    SystemExit(2),
    KeyboardInterrupt(),
    asyncio.CancelledError("stop"),
    asyncio.IncompleteReadError(b"abc", 10),
    ExceptionGroup("several", [ValueError(1), ExceptionGroup("inner", [KeyError("a")])]),
    BaseExceptionGroup("base", [KeyboardInterrupt()]),
    zoneinfo.ZoneInfoNotFoundError("No time zone found with key Mars"),
    sqlite3.IntegrityError("UNIQUE constraint failed: a.b"),
    caught(configparser.ConfigParser().get, "a", "b"),
    msgspec.ValidationError("Expected `int`"),
    InvalidOperation(["<class 'decimal.ConversionSyntax'>"]),
    RecursionError("maximum recursion depth exceeded"),
    UserWarning("careful"),
    Declined(code=3, card=Card("1"), at=NOON),
    Slotted(7),
    Slotted(None),
    Quota(limit=3, used=Decimal("2.5")),
    Quota(3, Decimal(1)),
    Frozen(3),
    FileTrouble("/a", "ask"),
    Wrapping(KeyError("a")),
    ValueError(Point(1), Card("1"), Level.HIGH, Colour.RED),
    ValueError(NOON, timedelta(1), Decimal("1.50"), b"x", {1, 2}, (1, 2), {1: 2}),
]


@pytest.mark.parametrize("exc", EVERYDAY, ids=lambda exc: type(exc).__name__)
def test_an_everyday_exception_comes_back_as_itself(exc: BaseException) -> None:
    once = there_and_back(exc)
    assert looks(once) == looks(exc)
    twice = there_and_back(once)
    assert looks(twice) == looks(once)
    assert vars(twice)["remote_traceback"] == vars(once)["remote_traceback"]


@pytest.mark.parametrize(
    "exc",
    [
        errors.RunCancelled("run a was cancelled", run_id="a", reason="asked"),
        errors.RunTimedOut("run a timed out", run_id="a", reason="timeout"),
        errors.RemoteError("x.Y", "message", traceback="Traceback …", attributes={"a": 1}),
        errors.StepTimedOut("step 'charge' took longer than 3 s"),
        errors.NonDeterminism("position 3: recorded charge, found refund"),
        errors.InvalidSpec("spec", [errors.Fault("bad", field="hour", column=3, hint="0-23"), errors.Fault("worse")]),
        errors.InvalidCron("* * *", [errors.Fault("three fields")]),
        errors.NotSerializable("no"),
        errors.NotFound("no run"),
        errors.StillRunning("it runs"),
        errors.MissingExtra("pip install"),
        errors.Interrupted("cut off"),
    ],
    ids=lambda exc: type(exc).__name__,
)
def test_the_librarys_own_exceptions_come_back_as_themselves(exc: BaseException) -> None:
    assert looks(there_and_back(exc)) == looks(exc)
    assert looks(there_and_back(there_and_back(exc))) == looks(exc)


def test_no_constructor_of_the_user_is_called() -> None:
    text = encode_exception(Counting("a"))
    Counting.made = 0
    assert decode_exception(text).args == ("a",)
    assert Counting.made == 0


def test_the_record_is_readable() -> None:
    record = json.loads(encode_exception(caught(_decline)))
    assert record["type"] == f"{__name__}:Declined"
    assert record["message"] == "declined with code 3"
    assert record["args"] == ["declined with code 3"]
    assert record["attributes"]["code"] == 3
    assert record["attributes"]["card"] == {"$type": "tests.codec.shop:Card", "value": {"number": "1"}}
    assert "in _decline" in record["traceback"]


def _decline() -> None:
    raise Declined(code=3, card=Card("1"), at=NOON)


def test_the_traceback_of_the_original_is_kept_and_grows_where_it_passes_again() -> None:
    made = there_and_back(caught(_decline))
    assert "in _decline" in vars(made)["remote_traceback"]

    def reraise() -> None:
        raise made

    again = there_and_back(caught(reraise))
    assert "in _decline" in vars(again)["remote_traceback"]
    assert "in reraise" in vars(again)["remote_traceback"]


def test_frames_are_those_of_the_record_the_innermost_last() -> None:
    """Also after a second process, in a text whose middle was left out, and in a message that looks like a frame."""
    inner = 'Traceback (most recent call last):\n  File "a.py", line 3, in step\n    raise Fault\n'
    outer = '  File "b.py", line 70, in workflow\n    await step()\n'
    cut = '  File "c.py", line 9, in far\n    def …\n… 900 characters left out …\n    x()\n  File "d.py", line 1, in near\n'
    message = 'ValueError: \n  File "e.py", line 5, in message\n'
    again = "\nand then, in another run or process:\n"
    found = traceback_of(f"{inner}{message}{again}{cut}{again}{outer}")
    frames = [(frame.filename, frame.lineno, frame.name) for frame in traceback.extract_tb(found)]
    assert frames == [("b.py", 70, "workflow"), ("c.py", 9, "far"), ("d.py", 1, "near"), ("a.py", 3, "step")]
    assert traceback_of("") is None


def test_notes_stay_as_they_were() -> None:
    exc = ValueError("a")
    exc.add_note("first")
    exc.add_note("second")
    assert there_and_back(exc).__notes__ == ["first", "second"]
    assert there_and_back(there_and_back(exc)).__notes__ == ["first", "second"]
    assert not hasattr(there_and_back(ValueError("a")), "__notes__")


def test_cause_and_context_are_kept() -> None:
    def explicit() -> None:
        try:
            _decline()
        except Declined as exc:
            raise ValueError("outer") from exc

    def implicit() -> None:
        try:
            _decline()
        except Declined:
            raise ValueError("outer")  # noqa: B904

    def silent() -> None:
        try:
            _decline()
        except Declined:
            raise ValueError("outer") from None

    first = there_and_back(caught(explicit))
    assert isinstance(first.__cause__, Declined)
    assert first.__suppress_context__
    second = there_and_back(caught(implicit))
    assert isinstance(second.__context__, Declined)
    assert second.__cause__ is None
    assert not second.__suppress_context__
    third = there_and_back(caught(silent))
    assert third.__context__ is None
    assert third.__suppress_context__


def test_an_attribute_that_cannot_be_stored_is_left_out_and_the_type_stays() -> None:
    exc = StatusError("404", request=Request(), status=404)
    text = encode_exception(exc)
    made = decode_exception(text)
    assert isinstance(made, StatusError)
    assert (str(made), made.args, made.status) == ("404", ("404",), 404)
    assert not hasattr(made, "request")
    assert "Request object at" in json.loads(text)["left_out"]["request"]


def test_an_argument_that_cannot_be_stored_is_its_repr_as_long_as_the_message_stays() -> None:
    thing = Request()
    for exc in (ValueError("no", thing), ValueError(thing), KeyError(thing), caught(Decimal, "x")):
        made = there_and_back(exc)
        assert (type(made), str(made), repr(made)) == (type(exc), str(exc), repr(exc))
        assert looks(there_and_back(made)) == looks(made)
    assert there_and_back(ValueError("no", thing)).args == ("no", repr(thing))


@pytest.mark.parametrize(
    ("exc", "type_name"),
    [
        (caught(User.model_validate, {}), "pydantic_core._pydantic_core.ValidationError"),
        (Reads(Request()), f"{__name__}.Reads"),
        (caught("\ud800".encode), "UnicodeEncodeError"),
        (UnicodeDecodeError("utf-8", b"\xff" * 100_000, 0, 1, "bad"), "UnicodeDecodeError"),
    ],
)
def test_what_would_not_read_the_same_is_a_remote_error_with_all_that_is_known(
    exc: BaseException, type_name: str
) -> None:
    made = there_and_back(exc)
    assert isinstance(made, RemoteError)
    assert made.type_name == type_name
    assert made.message == str(exc)
    assert type_name in made.traceback or type_name.rpartition(".")[2] in made.traceback
    assert looks(there_and_back(made)) == looks(made)
    assert looks(there_and_back(exc)) == looks(made)


def test_a_class_that_no_longer_exists_is_a_remote_error_with_its_attributes() -> None:
    text = encode_exception(Declined(code=3, card=Card("1"), at=NOON)).replace(":Declined", ":Gone")
    made = decode_exception(text)
    assert isinstance(made, RemoteError)
    assert str(made) == f"{__name__}.Gone: declined with code 3"
    assert made.attributes["code"] == 3
    assert made.attributes["at"] == NOON


def test_only_exception_classes_are_ever_rebuilt() -> None:
    for path in (
        "os:system",
        "subprocess:Popen",
        "builtins:dict",
        "no.such.module:X",
        "os:path.join",
        ":",
        "os",
        "antigravity",
    ):
        text = encode_exception(ValueError("ls")).replace("builtins:ValueError", path)
        assert type(decode_exception(text)) is RemoteError
    hostile = (
        '{"type":"builtins:ValueError","message":"","attributes":{"x":{"$type":"subprocess:Popen","value":["ls"]}}}'
    )
    assert type(decode_exception(hostile)) is RemoteError


def test_a_class_inside_a_function_is_found_as_long_as_it_is_defined() -> None:
    def define() -> type[Exception]:
        class Local(Exception):
            pass

        return Local

    older, newer = define(), define()
    assert type(there_and_back(newer("a"))) is newer
    assert older is not newer
    assert type(decode_exception(encode_exception(older("a")), find=lambda _path: older)) is older
    unknown = encode_exception(newer("a")).replace("Local", "OtherDatabase")
    assert type(decode_exception(unknown)) is RemoteError


def test_a_broken_exception_is_stored_all_the_same() -> None:
    mute = Mute("a")
    mute.__dict__["self"] = mute
    mute.__dict__["__notes__"] = "not a list"
    made = there_and_back(mute)
    assert type(made) is Mute
    surrogate = there_and_back(ValueError("a\ud800"))
    assert surrogate.args == ("a\\ud800",)


def test_chains_end_although_they_go_round() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    made = there_and_back(one)
    assert str(made.__cause__) == "two"
    assert made.__cause__ is not None
    assert made.__cause__.__cause__ is None


def test_chains_and_groups_are_bounded() -> None:
    exc: BaseException = ValueError(0)
    for number in range(1, 100):
        outer = ValueError(number)
        outer.__cause__ = exc
        exc = outer
    length = 0
    made: BaseException | None = there_and_back(exc)
    while made is not None:
        length, made = length + 1, made.__cause__
    assert length == RECORD_LIMIT
    assert len(encode_exception(ExceptionGroup("many", [ValueError(n) for n in range(1000)]))) < 100_000


def test_huge_texts_are_bounded_and_the_type_stays() -> None:
    exc = ValueError("x" * 1_000_000)
    text = encode_exception(exc)
    assert len(text) < 5 * TEXT_LIMIT
    made = decode_exception(text)
    assert type(made) is ValueError
    assert "characters left out" in str(made)
    assert looks(there_and_back(made)) == looks(made)

    deep = ValueError("a")
    deep.__dict__["rows"] = list(range(100_000))
    assert not hasattr(there_and_back(deep), "rows")

    def recurse(n: int) -> None:
        recurse(n + 1)

    assert type(there_and_back(caught(recurse, 0))) is RecursionError


def test_an_http_error_of_the_standard_library_comes_back_with_its_code() -> None:
    exc = urllib.error.HTTPError("http://a", 404, "Not Found", Message(), None)
    made = there_and_back(exc)
    exc.close()
    assert (str(made), getattr(made, "code", None)) == ("HTTP Error 404: Not Found", 404)


class Delegating(Exception):
    """Looks for unknown attributes in the response that it keeps, as the errors of HTTP clients do."""

    def __init__(self, response: object) -> None:
        super().__init__("no answer")
        self.response = response

    def __getattr__(self, name: str) -> Any:
        return getattr(self.response, name)


@pytest.mark.parametrize(
    "exc", [urllib.error.HTTPError("https://example.org", 404, "Not Found", Message(), None), Delegating(object())]
)
def test_an_exception_that_delegates_to_what_was_left_out_can_be_inspected(exc: Exception) -> None:
    back = decode_exception(encode_exception(exc))
    assert type(back) is type(exc)
    assert getattr(back, "no_such_attribute", None) is None
    assert str(exc) in "".join(traceback.format_exception(back))


class Untold(Exception):
    """Has no answer to a question about its attributes, not even AttributeError."""

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


def test_an_exception_whose_attributes_cannot_be_looked_up_is_stored_and_comes_back_described() -> None:
    def ask() -> None:
        raise Untold("never mind")

    text = encode_exception(caught(ask))
    assert "test_failures.py" in json.loads(text)["traceback"]
    assert "Untold: never mind\n" in json.loads(text)["traceback"]  # Python 3.13 adds that it could not read the notes
    back = decode_exception(text)
    assert isinstance(back, RemoteError)
    assert (back.type_name, back.message) == ("tests.codec.test_failures.Untold", "never mind")


def test_pydantic_errors_keep_their_words() -> None:
    with pytest.raises(pydantic.ValidationError) as raised:
        User.model_validate({"name": 3})
    made = there_and_back(raised.value)
    assert isinstance(made, RemoteError)
    assert "Input should be a valid string" in made.message
