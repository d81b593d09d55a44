"""A pydantic model comes back as it was given, or is refused."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import pydantic
import pytest

from mainspring.codec import value_codec
from mainspring.errors import NotSerializable
from tests.codec.shop import User

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


class Login(pydantic.BaseModel):
    name: str
    password: pydantic.SecretStr


class OpenLogin(Login):
    @pydantic.field_serializer("password", when_used="json")
    def written(self, password: pydantic.SecretStr) -> str:
        return password.get_secret_value()


class Animal(pydantic.BaseModel):
    legs: int


class Dog(Animal):
    tricks: int = 0


class Kennel(pydantic.BaseModel):
    inhabitants: list[Animal]
    note: Any = None


class Doubling(pydantic.BaseModel):
    value: int

    @pydantic.field_serializer("value")
    def doubled(self, value: int) -> int:
        return 2 * value


class Loose(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (Login(name="ada", password=pydantic.SecretStr("hush")), ".password"),
        (Kennel(inhabitants=[Animal(legs=4), Dog(legs=4, tricks=3)]), ".inhabitants[1]"),
        (Kennel(inhabitants=[], note=date(2026, 7, 1)), ".note"),
        (Kennel(inhabitants=[], note=(1, 2)), ".note"),
        (Kennel(inhabitants=[], note={"when": date(2026, 7, 1)}), ".note['when']"),
        (Doubling(value=1), ".value"),
        (Loose.model_validate({"when": NOON}), ".when"),
    ],
)
def test_a_model_that_pydantic_would_give_back_as_another_one_is_refused(value: pydantic.BaseModel, where: str) -> None:
    for annotation, given, path in ((type(value), value, where), (list[type(value)], [value], f"[0]{where}")):  # type: ignore[misc]
        with pytest.raises(NotSerializable, match=re.escape(f"at {path.removeprefix('.')}: ")):
            value_codec(annotation, "it").encode(given)


class Hooked(pydantic.BaseModel):
    cached: int = pydantic.Field(default=0, exclude=True)
    _hits: int = pydantic.PrivateAttr(default=0)


class Opaque:
    def __init__(self, text: str) -> None:
        self.text = text


class Holder(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    opaque: Annotated[
        Opaque,
        pydantic.PlainSerializer(lambda opaque: opaque.text, str),
        pydantic.BeforeValidator(lambda raw: raw if isinstance(raw, Opaque) else Opaque(raw)),
    ]


def test_a_model_is_compared_by_what_pydantic_is_to_keep() -> None:
    hooked = Hooked(cached=7)
    hooked._hits = 3
    assert value_codec(Hooked, "it").encode(hooked) == "{}"
    assert value_codec(Holder, "it").encode(Holder(opaque=Opaque("a"))) == '{"opaque":"a"}'
    login = OpenLogin(name="ada", password=pydantic.SecretStr("hush"))
    assert value_codec(OpenLogin, "it").decode(value_codec(OpenLogin, "it").encode(login)) == login
    repeated = datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Paris"))
    text = value_codec(User, "it").encode(User(name="Ada", joined=repeated))
    assert value_codec(User, "it").decode(text).joined.timestamp() == repeated.timestamp()
