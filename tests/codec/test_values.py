"""A value comes back as what its annotation says, from text that a person can read."""

from __future__ import annotations

import enum
import subprocess
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ForwardRef, Literal, NewType, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest

from mainspring.codec import value_codec
from mainspring.errors import InvalidInput, NotSerializable
from tests.codec.shop import (
    Aliased,
    Box,
    Card,
    Cat,
    Checked,
    Colour,
    Dog,
    Gift,
    Item,
    Mixed,
    Options,
    Order,
    Parcel,
    Payment,
    Point,
    Renamed,
    Rights,
    Size,
    Struct,
    Transfer,
    Tree,
    Unit,
    User,
)

PARIS = ZoneInfo("Europe/Paris")
NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
UserId = NewType("UserId", int)
Bounded = TypeVar("Bounded", bound=Card)
ORDER = Order(7, [Item("tea", Decimal("4.50"))], NOON, Colour.BLUE)


@pytest.mark.parametrize(
    ("annotation", "value", "text"),
    [
        (None, None, "null"),
        (bool, True, "true"),
        (int, 2**200, str(2**200)),
        (int, -(2**63) - 1, "-9223372036854775809"),
        (float, -0.1, "-0.1"),
        (str, "Zoë \0 \u2028 🦊", '"Zoë \\u0000 \u2028 🦊"'),
        (bytes, b"\x00\xff", '"AP8="'),
        (Decimal, Decimal("9.90"), '"9.90"'),
        (UUID, UUID(int=5), '"00000000-0000-0000-0000-000000000005"'),
        (Path, Path("/tmp/a b"), '"/tmp/a b"'),
        (PurePosixPath, PurePosixPath("a"), '"a"'),
        (ZoneInfo, PARIS, '"Europe/Paris"'),
        (datetime, NOON, '"2026-07-01T12:00:00Z"'),
        (datetime, NOON.replace(tzinfo=None), '"2026-07-01T12:00:00"'),
        (datetime, datetime(2026, 7, 1, 12, tzinfo=PARIS), '"2026-07-01T12:00:00+02:00[Europe/Paris]"'),
        (datetime, datetime(2026, 7, 1, tzinfo=timezone(timedelta(hours=-3))), '"2026-07-01T00:00:00-03:00"'),
        (date, date(2026, 7, 1), '"2026-07-01"'),
        (time, time(9, 30), '"09:30:00"'),
        (time, time(9, 30, tzinfo=UTC), '"09:30:00+00:00"'),
        (timedelta, timedelta(days=1, hours=1), '"P1DT3600S"'),
        (Colour, Colour.BLUE, '"blue"'),
        (Size, Size.LARGE, "2"),
        (Unit, Unit.KILO, '"kilo"'),
        (Rights, Rights.READ | Rights.WRITE, "3"),
        (Mixed, Mixed.PAIR, '"PAIR"'),
        (list[int], [1, 2], "[1,2]"),
        (tuple[int, ...], (1, 2), "[1,2]"),
        (tuple[int, str], (1, "a"), '[1,"a"]'),
        (tuple[()], (), "[]"),
        (set[str], {"b", "a", "c"}, '["a","b","c"]'),
        (frozenset[int], frozenset({10, 9}), "[10,9]"),
        (Sequence[int], [1], "[1]"),
        (Iterable[Card], [Card("1")], '[{"number":"1"}]'),
        (Mapping[str, int], {"b": 1, "a": 2}, '{"b":1,"a":2}'),
        (dict[int, str], {1: "a"}, '{"1":"a"}'),
        (dict[Colour, int], {Colour.RED: 1}, '{"red":1}'),
        (dict[tuple[int, int], str], {(1, 2): "a"}, '[[[1,2],"a"]]'),
        (dict[date, int], {date(2026, 1, 1): 1}, '[["2026-01-01",1]]'),
        (Order, ORDER, None),
        (list[Order] | None, [ORDER], None),
        (Tree, Tree(1, [Tree(2), Tree(3, [Tree(4)])]), None),
        (Box[Card], Box(Card("1")), '{"content":{"number":"1"}}'),
        (Parcel, Parcel(3, 0.5), '{"content":3,"weight":0.5}'),
        (Point, Point(1, 2.0), "[1,2.0]"),
        (Options, {"retries": 3}, '{"retries":3}'),
        (Struct, Struct("a", NOON), '{"name":"a","when":"2026-07-01T12:00:00Z"}'),
        (
            Renamed,
            Renamed("a", NOON.astimezone(PARIS)),
            '{"givenName":"a","at":"2026-07-01T14:00:00+02:00[Europe/Paris]"}',
        ),
        (User, User(name="Ada", joined=NOON), '{"name":"Ada","joined":"2026-07-01T12:00:00Z","score":0.0}'),
        (Aliased, Aliased(fullName="Ada"), '{"fullName":"Ada"}'),
        (User | None, User(name="Ada", joined=NOON), '{"name":"Ada","joined":"2026-07-01T12:00:00Z","score":0.0}'),
        (list[User], [User(name="Ada", joined=NOON)], None),
        (UserId, UserId(3), "3"),
        (Literal["a", 1] | None, 1, "1"),
        (Literal[True], True, "true"),
        (Annotated[int, "a note"], 3, "3"),
        (Annotated[int, msgspec.Meta(gt=0)], 3, "3"),
        (Bounded, Card("1"), '{"number":"1"}'),
        (float | None, None, "null"),
        (int | str, "1", '"1"'),
        (int | float, 1.0, "1.0"),
        (float | int, 1, "1"),
    ],
)
def test_an_annotated_value_comes_back_equal_from_readable_text(
    annotation: Any, value: object, text: str | None
) -> None:
    codec = value_codec(annotation, "the value")
    written = codec.encode(value)
    read = codec.decode(written)
    assert read == value
    assert type(read) is type(value)
    assert text is None or written == text
    assert codec.encode(read) == written


@pytest.mark.parametrize(
    ("annotation", "value", "text"),
    [
        (Card | Transfer, Card("1"), '{"$type":"Card","number":"1"}'),
        (Card | Transfer | None, None, "null"),
        (datetime | str, NOON, '{"$type":"datetime","value":"2026-07-01T12:00:00Z"}'),
        (datetime | str, "2026-07-01T12:00:00Z", '"2026-07-01T12:00:00Z"'),
        (datetime | date, date(2026, 7, 1), '{"$type":"date","value":"2026-07-01"}'),
        (datetime | date, NOON, '{"$type":"datetime","value":"2026-07-01T12:00:00Z"}'),
        (bytes | str, b"a", '{"$type":"bytes","value":"YQ=="}'),
        (Path | str, Path("a"), '{"$type":"Path","value":"a"}'),
        (Path | int, Path("a"), '"a"'),
        (list[int] | list[str], ["a"], '{"$type":"list[str]","value":["a"]}'),
        (set[int] | list[int], {1}, '{"$type":"set[int]","value":[1]}'),
        (dict[str, int] | Card, {"$type": 1}, '{"$type":"dict[str, int]","value":{"$type":1}}'),
        (
            Item | Gift,
            Gift("tea", Decimal(1), 2, "hi"),
            '{"$type":"Gift","sku":"tea","price":"1","count":2,"message":"hi"}',
        ),
        (User | Card, User(name="Ada", joined=NOON), None),
        (float | Size, 1.0, "1.0"),
        (float | Size, Size.SMALL, '{"$type":"Size","value":1}'),
        (Decimal | float, Decimal("1.5"), '"1.5"'),
        (Decimal | float, 1.5, "1.5"),
        (Cat | Dog, Dog(["sit"]), '{"type":"Dog","tricks":["sit"]}'),
        (Cat | Dog | datetime, Cat(9), '{"type":"Cat","lives":9}'),
        (Payment, Payment(Transfer("DE1", NOON.astimezone(PARIS)), 2.5), None),
        (list[Card | Transfer], [Card("1"), Transfer("2")], None),
    ],
)
def test_a_union_says_which_member_a_value_is_where_json_cannot(
    annotation: Any, value: object, text: str | None
) -> None:
    codec = value_codec(annotation, "the value")
    written = codec.encode(value)
    assert text is None or written == text
    read = codec.decode(written)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, 2.5, None, True, "x"]}, '{"a":[1,2.5,null,true,"x"]}'),
        (NOON, '{"$type":"datetime","value":"2026-07-01T12:00:00Z"}'),
        ({"at": NOON}, '{"at":{"$type":"datetime","value":"2026-07-01T12:00:00Z"}}'),
        (date(2026, 7, 1), '{"$type":"date","value":"2026-07-01"}'),
        (Decimal("1.50"), '{"$type":"Decimal","value":"1.50"}'),
        (UUID(int=1), None),
        (timedelta(1), None),
        (time(1), None),
        (Path("a"), '{"$type":"Path","value":"a"}'),
        ((1, (2, "a")), '{"$type":"tuple","value":[1,{"$type":"tuple","value":[2,"a"]}]}'),
        ({3, 1}, '{"$type":"set","value":[1,3]}'),
        (frozenset({"a"}), '{"$type":"frozenset","value":["a"]}'),
        (b"a", '{"$type":"bytes","value":"YQ=="}'),
        ({1: "a"}, '{"$type":"dict","value":[[1,"a"]]}'),
        ({"$type": "datetime"}, '{"$type":"dict","value":[["$type","datetime"]]}'),
        ('"$type"', '"\\"$type\\""'),
        (["$type"], '["$type"]'),
    ],
)
@pytest.mark.parametrize("annotation", [Any, object])
def test_without_an_annotation_standard_values_come_back_too(annotation: Any, value: object, text: str | None) -> None:
    codec = value_codec(annotation, "the value")
    written = codec.encode(value)
    assert text is None or written == text
    assert codec.decode(written) == value
    assert type(codec.decode(written)) is type(value)


def test_a_bare_container_holds_anything_but_is_what_it_says() -> None:
    for annotation, value in [
        (dict, {"at": NOON, "n": 1}),
        (dict, {1: 2}),
        (list, [NOON, (1,)]),
        (tuple, (1, NOON)),
        (set, {1, "a"}),
    ]:
        codec = value_codec(annotation, "the value")
        assert codec.decode(codec.encode(value)) == value
    with pytest.raises(NotSerializable, match="'abc' is a str, not a dict"):
        value_codec(dict, "the value").encode("abc")
    with pytest.raises(NotSerializable, match="is stored where a dict belongs"):
        value_codec(dict, "the value").decode("[]")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("annotation", [float, Any, list[float], float | None, dict[str, float], Payment, User])
def test_nan_and_infinity_are_errors_and_never_null(annotation: Any, value: float) -> None:
    held: dict[Any, object] = {
        list[float]: [1.0, value],
        dict[str, float]: {"a": value},
        Payment: Payment(Card("1"), value),
        User: User(name="Ada", joined=NOON, score=value),
    }
    with pytest.raises(NotSerializable, match=r"(nan|inf) has no form in JSON"):
        value_codec(annotation, "the value").encode(held.get(annotation, value))


class Unawaited:
    """Something to await, such as a future."""

    def __await__(self) -> Iterator[None]:
        yield


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (int, "3", "'3' is a str, not an int"),
        (str, 3, "3 is an int, not a str"),
        (str, UUID(int=1), "is a uuid.UUID, not a str"),
        (bool, 1, "1 is an int, not a bool"),
        (None, 0, "0 is an int, not None"),
        (float, "1", "'1' is a str, not a float"),
        (float, 10**400, "too large for a float"),
        (date, NOON, "is a datetime.datetime, not a date"),
        (list[int], (1,), r"\(1,\) is a tuple, not a list\[int\]"),
        (list[int], [1, "a"], r"at \[1\]: 'a' is a str, not an int"),
        (dict[str, int], {1: 1}, "1 is an int, not a str"),
        (dict[str, list[Card]], {"a": [Card(3)]}, r"at \['a'\]\[0\].number: 3 is an int, not a str"),  # type: ignore[arg-type]
        (Order, Order(1, [Item("a", 3)], NOON), r"at items\[0\].price: 3 is an int, not a Decimal"),  # type: ignore[arg-type]
        (Options, {"label": "x"}, "needs 'retries', which is missing"),
        (Options, {"retries": 1, "more": 2}, "has no key 'more'"),
        (tuple[int, str], (1,), r"has 1 items, but tuple\[int, str\] has 2"),
        (Literal["a"], "b", r"'b' is none of Literal\['a'\]"),
        (Card | Transfer, Item("a", Decimal(1)), r"none of Card \| Transfer"),
        (Annotated[int, msgspec.Meta(gt=0)], 0, ">= 1"),
        (time, time(1, tzinfo=PARIS), "has a time zone but no date"),
        (str, "a\ud800", "lone surrogate at index 1"),
        (Any, {"a": ["\udfff"]}, r"at \['a'\]\[0\]: .* lone surrogate"),
        (
            Any,
            {"a": [object()]},
            r"at \['a'\]\[0\]: <object object at .*> is an object, which cannot be stored and read back; use a dataclass",
        ),
        (Any, 1j, "is a complex, which cannot be stored"),
        (Any, value_codec, "is a function, which cannot be stored"),
        (Any, Unawaited(), "is an? .*Unawaited that was not awaited; write `await`"),
        (Any, Card("1"), "is a tests.codec.shop.Card, and no annotation says so; annotate it"),
        (Any, Point(1), "is a tests.codec.shop.Point, and no annotation says so"),
        (Any, Colour.RED, "is a tests.codec.shop.Colour, and no annotation says so"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_that_says_what_and_where(
    annotation: Any, value: object, message: str
) -> None:
    with pytest.raises(NotSerializable, match=message) as caught:
        value_codec(annotation, "the result of step 'charge'").encode(value)
    assert str(caught.value).startswith("the result of step 'charge' cannot be stored as JSON: ")
    assert isinstance(caught.value, InvalidInput)


@pytest.mark.parametrize(
    ("annotation", "value"), [(Item, Gift("a", Decimal(1))), (list[Item], [Gift("a", Decimal(1))])]
)
def test_a_subclass_is_never_stored_as_its_base(annotation: Any, value: object) -> None:
    with pytest.raises(
        NotSerializable, match=r"subclass of the annotated Item .* annotate what is passed, as in Item \| Gift"
    ):
        value_codec(annotation, "the value").encode(value)


def test_subclasses_of_plain_types_come_back_as_the_plain_value_they_equal() -> None:
    class Name(str):
        __slots__ = ()

    cases: list[tuple[Any, object, object]] = [
        (str, Unit.KILO, "kilo"),
        (int, Size.LARGE, 2),
        (int, True, 1),
        (float, 3, 3.0),
        (str, Name("a"), "a"),
        (dict[str, int], OrderedDict(a=1), {"a": 1}),
        (Any, defaultdict(list, a=[1]), {"a": [1]}),
        (Any, [Unit.KILO, Size.LARGE, Name("a")], ["kilo", 2, "a"]),
    ]
    for annotation, value, plain in cases:
        codec = value_codec(annotation, "the value")
        read = codec.decode(codec.encode(value))
        assert read == plain
        assert type(read) is type(plain)


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (object().__class__.__subclasses__, "is not a type whose values can be stored"),
        (type, "type is not a type whose values"),
        (Callable[[], int], "a function cannot be stored"),
        (complex, "use a dataclass"),
        (ForwardRef("Nowhere"), "the name 'Nowhere' in an annotation is not known"),
        (Box[complex], "Box.content: complex is not a type"),
        (Literal[Colour.RED], "in a Literal has no form in JSON"),
    ],
)
def test_an_annotation_that_cannot_be_read_back_is_refused_when_it_is_registered(annotation: Any, message: str) -> None:
    with pytest.raises(NotSerializable, match=message) as caught:
        value_codec(annotation, "the result of step 'charge'")
    assert str(caught.value).startswith("the annotation of the result of step 'charge' cannot be used: ")


def test_two_types_of_one_name_in_a_union_are_refused() -> None:
    def another() -> type[object]:
        class Card(enum.Enum):
            GOLD = 1

        return Card

    with pytest.raises(NotSerializable, match="two types of a union are called Card"):
        value_codec(Card | another(), "the value")


@pytest.mark.parametrize("zone", ["Europe/Paris", "America/New_York", "Australia/Lord_Howe", "UTC"])
def test_a_datetime_keeps_its_zone_also_in_a_fold_and_a_gap(zone: str) -> None:
    codec = value_codec(datetime, "the value")
    for hour in range(24 * 366):
        moment = (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=hour)).astimezone(ZoneInfo(zone))
        read = codec.decode(codec.encode(moment))
        assert (read, read.fold, read.tzinfo) == (moment, moment.fold, moment.tzinfo)
    gap = datetime(2026, 3, 29, 2, 30, tzinfo=PARIS)
    assert codec.decode(codec.encode(gap)).timestamp() == gap.timestamp()


def test_an_instant_is_kept_where_the_offset_has_seconds() -> None:
    codec = value_codec(datetime, "the value")
    for zone in (PARIS, timezone(timedelta(seconds=561))):
        moment = datetime(1900, 1, 1, tzinfo=zone)
        assert codec.decode(codec.encode(moment)).timestamp() == moment.timestamp()


def test_an_instant_survives_a_change_of_its_zones_rules() -> None:
    read = value_codec(datetime, "the value").decode('"2026-07-01T12:00:00+05:00[Europe/Paris]"')
    assert read == datetime(2026, 7, 1, 7, tzinfo=UTC)
    assert read.tzinfo is PARIS


def test_a_zone_that_this_machine_does_not_know_is_an_error_in_words() -> None:
    with pytest.raises(
        NotSerializable, match=r"time zone .*Mars/Olympus.* is not known on this machine; install tzdata"
    ):
        value_codec(datetime, "the value").decode('"2026-07-01T12:00:00+05:00[Mars/Olympus]"')


def test_a_class_may_grow_between_writing_and_reading() -> None:
    codec = value_codec(Item, "the value")
    assert codec.decode('{"sku":"a","price":"1","gone":3}') == Item("a", Decimal(1), 1)
    assert value_codec(Payment, "x").decode('{"by":{"$type":"Transfer","iban":"1"},"amount":1}') == Payment(
        Transfer("1"), 1.0
    )
    with pytest.raises(NotSerializable, match="lacks the field 'price' of Item"):
        codec.decode('{"sku":"a"}')


@pytest.mark.parametrize(
    ("annotation", "text", "message"),
    [
        (int, '"a"', "'a' is stored where an int belongs"),
        (list[Card], '[{"number":1}]', r"at \[0\].number: 1 is stored where a str belongs"),
        (Card | Transfer, '{"$type":"Cash"}', "is stored where Card | Transfer belongs"),
        (Checked, '{"amount":-1}', "Checked refuses .* amount is negative"),
        (User, '{"name":"Ada"}', "joined"),
        (Colour, '"green"', "green"),
        (Mixed, '"green"', "'green' is not a member of Mixed"),
        (Any, '{"$type":"os:system","value":"ls"}', "is stored with a type that is not known here"),
        (int, "{", "truncated"),
    ],
)
def test_a_stored_text_that_does_not_fit_is_an_error_that_says_where(annotation: Any, text: str, message: str) -> None:
    with pytest.raises(NotSerializable, match=message) as caught:
        value_codec(annotation, "the result of 'charge'").decode(text)
    assert str(caught.value).startswith("the result of 'charge' cannot be read back from what is stored: ")


@pytest.mark.parametrize("annotation", [Any, list[Any], Tree])
def test_a_value_that_contains_itself_is_an_error(annotation: Any) -> None:
    loop: Any = Tree(1) if annotation is Tree else []
    (loop.children if annotation is Tree else loop).append(loop)
    with pytest.raises(NotSerializable, match="nested too deeply, or contains itself"):
        value_codec(annotation, "the value").encode(loop)


def test_attrs_classes_are_carried_where_attrs_is_installed() -> None:
    attrs: Any = pytest.importorskip("attrs")

    made = attrs.make_class("Made", {"n": attrs.field(type=int), "tags": attrs.field(type=list[str], factory=list)})
    codec = value_codec(made, "the value")
    assert codec.encode(made(1)) == '{"n":1,"tags":[]}'
    assert codec.decode('{"n":1}') == made(1)
    assert value_codec(made | Card, "the value").decode('{"$type":"Made","n":1}') == made(1)


def test_pydantic_is_not_imported_by_the_codec() -> None:
    code = "import sys, mainspring.codec; print('pydantic' in sys.modules, 'attr' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
