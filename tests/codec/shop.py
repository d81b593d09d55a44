"""Types as users have them, for the tests of the codec."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 - read when the program runs
from decimal import Decimal  # noqa: TC003
from typing import Generic, NamedTuple, NotRequired, TypedDict, TypeVar

import msgspec
import pydantic

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Unit(enum.StrEnum):
    PIECE = "piece"
    KILO = "kilo"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Mixed(enum.Enum):
    NUMBER = 1.5
    PAIR = (1, 2)


@dataclass
class Item:
    sku: str
    price: Decimal
    count: int = 1


@dataclass(frozen=True)
class Order:
    id: int
    items: list[Item]
    placed: datetime
    colour: Colour = Colour.RED
    note: str | None = None


@dataclass
class Gift(Item):
    message: str = ""


@dataclass
class Card:
    number: str


@dataclass
class Transfer:
    iban: str
    at: datetime | None = None


@dataclass
class Payment:
    by: Card | Transfer
    amount: float


@dataclass
class Tree:
    value: int
    children: list[Tree] = field(default_factory=list["Tree"])


@dataclass
class Box(Generic[T]):
    content: T


@dataclass
class Parcel(Box[int]):
    weight: float


class Point(NamedTuple):
    x: int
    y: float = 0.0


class Options(TypedDict):
    retries: int
    label: NotRequired[str]


class Struct(msgspec.Struct):
    name: str
    when: datetime | None = None


class Renamed(msgspec.Struct, rename="camel"):
    given_name: str
    at: datetime


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    tricks: list[str]


@dataclass
class Checked:
    amount: int

    def __post_init__(self) -> None:
        if self.amount < 0:
            raise ValueError("amount is negative")


class User(pydantic.BaseModel):
    name: str
    joined: datetime
    score: float = 0.0


class Aliased(pydantic.BaseModel):
    full_name: str = pydantic.Field(alias="fullName")
