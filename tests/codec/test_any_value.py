"""Whatever fits an annotation comes back equal, and both lanes of the codec agree about it."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.codec import value_codec
from mainspring.codec.annotations import shape_of
from tests.codec.shop import Box, Card, Colour, Item, Options, Payment, Point, Rights, Size, Struct, Transfer, Tree

text = st.text(st.characters(exclude_categories=["Cs"]))
finite = st.floats(allow_nan=False, allow_infinity=False)
offsets = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
zones = st.sampled_from(["Europe/Paris", "America/St_Johns", "Asia/Kathmandu"]).map(ZoneInfo)
some_zone: Any = st.none() | st.just(UTC) | offsets | zones
moments = st.datetimes(datetime(1950, 1, 1), datetime(2100, 1, 1), timezones=some_zone)  # noqa: DTZ001
decimals = st.decimals(allow_nan=False)

SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    type(None): st.none(),
    bool: st.booleans(),
    int: st.integers() | st.integers(min_value=2**62, max_value=2**130),
    float: finite,
    str: text,
    bytes: st.binary(),
    Decimal: decimals,
    UUID: st.uuids(),
    datetime: moments,
    date: st.dates(),
    time: st.times(),
    timedelta: st.timedeltas(),
    Colour: st.sampled_from(Colour),
    Size: st.sampled_from(Size),
    Rights: st.integers(0, 3).map(Rights),
    Card: text.map(Card),
    Item: st.builds(Item, text, decimals, st.integers()),
    Struct: st.builds(Struct, text, st.none() | moments),
    Payment: st.builds(Payment, text.map(Card) | st.builds(Transfer, text, st.none() | moments), finite),
    Point: st.builds(Point, st.integers(), finite),
    Options: st.fixed_dictionaries({"retries": st.integers()}, optional={"label": text}),
    Tree: st.recursive(
        st.builds(Tree, st.integers()), lambda t: st.builds(Tree, st.integers(), st.lists(t, max_size=3)), max_leaves=6
    ),
}
HASHABLE = (bool, int, str, bytes, Decimal, UUID, date, Colour, Point)


@st.composite
def annotated(draw: st.DrawFn, depth: int = 2) -> tuple[Any, st.SearchStrategy[Any]]:
    """An annotation, and the values that fit it."""
    if depth == 0 or draw(st.booleans()):
        scalar = draw(st.sampled_from(list(SCALARS)))
        return scalar, SCALARS[scalar]
    one, ones = draw(annotated(depth - 1))
    other, others = draw(annotated(depth - 1))
    key = draw(st.sampled_from(HASHABLE))
    few = st.lists(ones, max_size=3)
    made: list[tuple[Any, st.SearchStrategy[Any]]] = [
        (_of(list, one), few),
        (_of(tuple, one, ...), few.map(tuple)),
        (_of(tuple, one, other), st.tuples(ones, others)),
        (_of(set, key), st.sets(SCALARS[key])),
        (_of(frozenset, key), st.frozensets(SCALARS[key])),
        (_of(dict, key, one), st.dictionaries(SCALARS[key], ones, max_size=3)),
        (_of(Box, one), st.builds(Box[Any], ones)),
        (one | other, ones | others),
    ]
    chosen: tuple[Any, st.SearchStrategy[Any]] = draw(st.sampled_from(made))
    return chosen


def _of(generic: Any, *arguments: Any) -> Any:
    return generic[arguments]


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_what_fits_an_annotation_comes_back_equal_and_is_written_alike(data: st.DataObject) -> None:
    annotation, values = data.draw(annotated())
    value = data.draw(values)
    codec = value_codec(annotation, "the value")
    written = codec.encode(value)
    read = codec.decode(written)
    assert read == value
    assert type(read) is type(value)
    assert codec.encode(read) == written


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_the_slow_lane_reads_what_the_fast_lane_writes_and_the_reverse(data: st.DataObject) -> None:
    annotation, values = data.draw(annotated())
    value = data.draw(values)
    codec, shape = value_codec(annotation, "the value"), shape_of(annotation)
    assert shape.lift(msgspec.json.decode(codec.encode(value))) == value
    assert codec.decode(msgspec.json.encode(shape.lower(value)).decode()) == value


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | finite
    | text
    | moments
    | decimals
    | st.uuids()
    | st.binary()
    | st.dates()
    | st.timedeltas(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(text | st.just("$type") | st.integers(), inner, max_size=3)
        | st.sets(st.integers() | text, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(anything)
def test_a_value_without_annotation_comes_back_equal(value: object) -> None:
    codec = value_codec(Any, "the value")
    written = codec.encode(value)
    assert codec.decode(written) == value
    assert codec.encode(codec.decode(written)) == written
