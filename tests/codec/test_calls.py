"""The arguments of a call are checked when it is made, readable when stored, and fit the function when read."""

from __future__ import annotations

import functools
from collections.abc import Awaitable  # noqa: TC003 - read when the program runs
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from mainspring.codec import CallCodec, encode_call
from mainspring.errors import InvalidInput, NotSerializable
from tests.codec.shop import Card, Checked, Item, Transfer, User

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from fractions import Fraction

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


async def charge(item: Item, retries: int = 3, *, by: Card | Transfer | None = None) -> Decimal:
    return item.price * retries if by is None else Decimal(0)


def everything(a: int, /, b: int, *rest: int, c: int = 1, **more: str) -> dict[str, Any]:
    return {"a": a, "b": b, "rest": rest, "c": c, "more": more}


def nothing() -> None: ...


def _untyped(a, b=2): ...  # type: ignore[no-untyped-def] # noqa: ANN001 # pyright: ignore[reportMissingParameterType, reportUnknownParameterType]


untyped: Any = _untyped  # pyright: ignore[reportUnknownVariableType]


def codec(fn: Callable[..., Any], *, skip_first: bool = False) -> CallCodec:
    return CallCodec(fn, name=fn.__name__, skip_first=skip_first)


def test_a_call_is_one_object_by_parameter_name() -> None:
    text = codec(charge).bind_and_encode((Item("tea", Decimal("4.50")),), {"by": Card("1")})
    assert text == '{"item":{"sku":"tea","price":"4.50","count":1},"by":{"$type":"Card","number":"1"}}'
    assert codec(charge).decode(text) == ((Item("tea", Decimal("4.50")),), {"by": Card("1")})


def test_defaults_are_not_stored() -> None:
    assert codec(nothing).bind_and_encode((), {}) == "{}"
    assert codec(nothing).decode("{}") == ((), {})
    assert CallCodec(untyped, name="untyped").bind_and_encode((1,), {}) == '{"a":1}'


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((1, 2), {}, '{"a":1,"b":2}'),
        ((1,), {"b": 2}, '{"a":1,"b":2}'),
        ((1, 2), {"c": 5}, '{"a":1,"b":2,"c":5}'),
        ((1, 2, 3, 4), {"c": 5}, '{"a":1,"b":2,"*rest":[3,4],"c":5}'),
        ((1, 2), {"a": "x", "c": 5, "rest": "y"}, '{"a":1,"b":2,"c":5,"**more":{"a":"x","rest":"y"}}'),
    ],
)
def test_every_kind_of_parameter_comes_back_to_where_it_belongs(args: Any, kwargs: Any, text: str) -> None:
    calls = codec(everything)
    assert calls.bind_and_encode(args, kwargs) == text
    read_args, read_kwargs = calls.decode(text)
    assert everything(*read_args, **read_kwargs) == everything(*args, **kwargs)


def test_a_gap_in_the_positional_arguments_is_bridged_by_name() -> None:
    def fn(a: int = 1, b: int = 2, c: int = 3) -> None: ...

    assert codec(fn).decode(codec(fn).bind_and_encode((), {"c": 4})) == ((), {"c": 4})


@pytest.mark.parametrize(
    ("args", "kwargs", "problem"),
    [
        ((), {}, "missing a required argument: 'item'"),
        ((1, 2, 3), {}, "too many positional arguments"),
        ((1,), {"item": 2}, "multiple values for argument 'item'"),
        ((1,), {"retry": 2}, "got an unexpected keyword argument 'retry'"),
    ],
)
def test_a_call_that_the_function_does_not_take_is_an_error_with_its_signature(
    args: Any, kwargs: Any, problem: str
) -> None:
    with pytest.raises(InvalidInput, match=problem) as caught:
        codec(charge).bind_and_encode(args, kwargs)
    assert "charge(item: Item, retries: int = 3, *, by: Card | Transfer | None = None)" in str(caught.value)


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (("tea",), "at item: 'tea' is a str, not an Item"),
        ((Item("tea", Decimal(1)), "3"), "at retries: '3' is a str, not an int"),
        ((Item("tea", 1.5),), "at item.price: 1.5 is a float, not a Decimal"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_type_fails_at_the_call(args: tuple[Any, ...], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem) as caught:
        codec(charge).bind_and_encode(args, {})
    assert str(caught.value).startswith("the arguments of 'charge' ")


def test_an_argument_that_its_own_class_would_refuse_fails_at_the_call() -> None:
    def fn(checked: Checked) -> None: ...

    value = Checked(1)
    value.amount = -1
    with pytest.raises(InvalidInput, match="amount is negative"):
        codec(fn).bind_and_encode((value,), {})


def test_the_first_parameter_can_be_the_librarys_own() -> None:
    class Shop:
        def sell(self, item: Item, count: int = 1) -> Item: ...  # type: ignore[empty-body]

    method = codec(Shop.sell, skip_first=True)
    assert method.bind_and_encode((Item("tea", Decimal(1)),), {}) == '{"item":{"sku":"tea","price":"1","count":1}}'
    assert codec(Shop().sell).bind_and_encode((Item("tea", Decimal(1)),), {}) == method.bind_and_encode(
        (Item("tea", Decimal(1)),), {}
    )
    with pytest.raises(InvalidInput, match="missing a required argument: 'item'"):
        method.bind_and_encode((), {})


def test_names_that_are_local_to_the_enclosing_function_are_resolved() -> None:
    @dataclass
    class Line:
        sku: str

    @dataclass
    class Basket:
        lines: list[Line]

    def fn(basket: Basket) -> Basket: ...  # type: ignore[empty-body]

    calls = codec(fn)
    basket = Basket([Line("tea")])
    assert calls.decode(calls.bind_and_encode((basket,), {})) == ((basket,), {})
    assert calls.result.decode(calls.result.encode(basket)) == basket


def test_an_annotation_for_type_checkers_only_counts_as_any_and_the_error_says_so() -> None:
    def fn(half: Fraction, count: int) -> Fraction: ...  # type: ignore[empty-body]

    calls = codec(fn)
    assert calls.bind_and_encode((1, 2), {}) == '{"half":1,"count":2}'
    with pytest.raises(
        InvalidInput, match=r"at half: .* its annotation 'Fraction' has a name that is not known when the program"
    ):
        calls.bind_and_encode((Card("1"), 2), {})
    with pytest.raises(InvalidInput, match="at count: 'a' is a str"):
        calls.bind_and_encode((1, "a"), {})


def test_the_result_has_the_awaited_type() -> None:
    def later() -> Awaitable[Decimal]: ...  # type: ignore[empty-body]
    def never() -> NoReturn: ...  # type: ignore[empty-body]

    for fn in (charge, later):
        assert codec(fn).result.decode('"1.5"') == Decimal("1.5")
    assert codec(untyped).result.decode('{"a":1}') == {"a": 1}
    assert codec(never).result.encode(None) == "null"


def test_generators_and_unreadable_annotations_are_refused_when_registered() -> None:
    def numbers() -> Iterator[int]:
        yield 1

    async def slowly() -> AsyncIterator[int]:
        yield 1

    def takes(fn: type) -> None: ...
    def gives() -> complex: ...  # type: ignore[empty-body]

    for fn in (numbers, slowly):
        with pytest.raises(NotSerializable, match=r"is a generator.*return a list"):
            codec(fn)
    with pytest.raises(
        NotSerializable,
        match=r"the annotation of the arguments of 'takes' cannot be used: takes.fn: type is not a type",
    ):
        codec(takes)
    with pytest.raises(NotSerializable, match="the annotation of the result of 'gives' cannot be used"):
        codec(gives)


def test_anything_that_can_be_called_has_a_codec() -> None:
    class Caller:
        def __call__(self, item: Item) -> int: ...  # type: ignore[empty-body]

    @functools.wraps(charge)
    def wrapped(*args: Any, **kwargs: Any) -> Any: ...

    tea = Item("tea", Decimal(1))
    assert CallCodec(Caller(), name="x").bind_and_encode((tea,), {}).startswith('{"item":{')
    assert CallCodec(functools.partial(charge, tea), name="x").bind_and_encode((), {"retries": 2}) == '{"retries":2}'
    assert CallCodec(wrapped, name="x").result.decode('"1"') == Decimal(1)
    assert CallCodec(len, name="x").bind_and_encode(([1],), {}) == '{"obj":[1]}'
    assert CallCodec(max, name="x").decode(CallCodec(max, name="x").bind_and_encode((1, 2), {})) == ((1, 2), {})
    anonymous: Callable[[int], int] = lambda n: n  # noqa: E731
    assert CallCodec(anonymous, name="x").bind_and_encode((1,), {}) == '{"n":1}'


def test_a_caller_without_the_function_stores_a_call_that_its_worker_can_read() -> None:
    text = encode_call((Item("tea", Decimal(1)),), {"retries": 2, "by": None})
    assert text == '{"*":[{"sku":"tea","price":"1","count":1}],"retries":2,"by":null}'
    assert codec(charge).decode(text) == ((Item("tea", Decimal(1)), 2), {"by": None})
    assert codec(everything).decode(encode_call((1, 2, 3), {"x": "y"})) == ((1, 2, 3), {"x": "y"})
    assert codec(nothing).decode(encode_call((), {})) == ((), {})

    def rich(at: datetime, tags: set[str], pair: tuple[int, int], users: list[User], by: dict[str, Card]) -> None: ...

    args = (NOON, {"b", "a"}, (1, 2), [User(name="Ada", joined=NOON)], {"x": Card("1")})
    assert codec(rich).decode(encode_call(args, {})) == (args, {})


def test_a_stored_call_that_does_not_fit_is_an_error_for_the_worker() -> None:
    with pytest.raises(
        NotSerializable, match=r"do not fit: charge.* cannot be called like this: missing a required argument: 'item'"
    ):
        codec(charge).decode(encode_call((), {"retries": 2}))
    with pytest.raises(NotSerializable, match="at retries: 'x' is stored where an int belongs"):
        codec(charge).decode(encode_call((Item("tea", Decimal(1)),), {"retries": "x"}))
    with pytest.raises(NotSerializable, match="needs 'item', which is missing"):
        codec(charge).decode('{"retries":2}')


@pytest.mark.parametrize("value", [object(), float("nan"), {(1, 2): 3}, lambda: None])
def test_a_caller_without_the_function_cannot_store_what_json_cannot_carry(value: object) -> None:
    with pytest.raises(NotSerializable, match="the arguments cannot be stored as JSON: at "):
        encode_call((), {"x": [value]})
