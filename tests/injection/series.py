"""Cases in order: which there are, which of them make a sample, and what came of each."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.injection import shapes
from tests.injection.auditor import NORMAL, REFERENCE
from tests.injection.case import Case
from tests.injection.generated.program import PREFIX as GENERATED
from tests.injection.generated.program import is_generated
from tests.injection.generated.shape import generated
from tests.injection.injections import INJECTIONS, LAG, NOWHERE, SEEDS, Point
from tests.injection.limit import Hung, limited
from tests.injection.record import Record
from tests.injection.scene import SHAPES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.injection.databases import Database, Postgres, SqliteFiles
    from tests.injection.injections import Injection
    from tests.injection.scene import Shape

__all__ = ["Name", "Series", "shapes"]

REAL_SECONDS = 60.0
"""A case takes a tenth of a second, on PostgreSQL a few; the rest is for a machine that has other things to do."""


@dataclass(frozen=True, slots=True)
class Name:
    """What names a case: the same name is the same case, each time."""

    shape: str
    injection: str
    point: Point

    @classmethod
    def parse(cls, text: str) -> Name:
        shape, injection, point = text.split()[:3]
        return cls(shape, injection, Point.parse(point))

    def __str__(self) -> str:
        return f"{self.shape} {self.injection} {self.point}"


@dataclass
class Length:
    """How long a shape lasts, undisturbed, under the settings of an injection."""

    calls: int
    turns: int
    operations: int


@dataclass
class Series:
    """Cases on one kind of database."""

    databases: SqliteFiles | Postgres
    verbs: set[str] = field(default_factory=set[str])
    """Verbs of the store that any case has called."""
    limit: float = REAL_SECONDS
    """Real seconds that one case may take."""
    seeds: int = SEEDS
    """How many orders of threads are drawn by lot, for each shape and injection that has such."""
    _lengths: dict[tuple[str, str], Length] = field(default_factory=dict[tuple[str, str], Length])

    def play(self, name: Name, between_lives: Callable[[Database], None] = lambda _: None) -> Record:
        """Play one case. `between_lives` is called when the first life is over."""
        shape, injection = shape_of(name.shape), INJECTIONS[name.injection]
        self._know(shape)
        return self._play(shape, injection, name.point, between_lives)

    def _play(
        self,
        shape: Shape,
        injection: Injection,
        point: Point,
        between_lives: Callable[[Database], None] = lambda _: None,
    ) -> Record:
        try:
            with limited(self.limit), self.databases.fresh() as database:
                case = Case(shape, injection, point, database)
                case.between_lives = lambda: between_lives(database)
                record = case.play()
        except Hung as hung:
            return Record(
                shape, injection, point, problems=[f"hung: {Name(shape.name, injection.name, point)}: {hung}"]
            )
        self.verbs |= record.verbs
        return record

    def _know(self, shape: Shape) -> None:
        """What an undisturbed case has for effects, and how long it takes."""
        if shape.name not in REFERENCE:
            record = self._play(shape, INJECTIONS["none"], NOWHERE)
            REFERENCE[shape.name] = {label for _, label in record.ledger.count("end")}
            NORMAL[shape.name] = record.ended_at if record.ended_at < 300 else 60.0

    def names(self, chosen: Iterable[Shape], injections: Iterable[Injection]) -> Iterator[Name]:
        """Every case there is of some shapes and injections."""
        wanted = list(injections)
        for shape in chosen:
            if self.databases.kind not in shape.databases:
                continue
            for injection in wanted:
                for point in self._points(shape, injection):
                    yield Name(shape.name, injection.name, point)

    def _points(self, shape: Shape, injection: Injection) -> Iterator[Point]:
        for kind in injection.kinds:
            length = self._length(shape, injection, lag=LAG if kind.endswith("@") else 0)
            yield from injection.points(kind, length.calls, length.turns, length.operations, self.seeds)

    def _length(self, shape: Shape, injection: Injection, lag: int) -> Length:
        key = (shape.name, f"{sorted(injection.settings.items())} {lag}")
        if key not in self._lengths:
            self._know(shape)
            quiet = INJECTIONS["park" if injection.settings else "none"]
            record = self._play(shape, quiet, Point("none", 1, lag))
            self._lengths[key] = Length(len(record.calls), record.turns, record.operations)
        return self._lengths[key]

    def sample(self, chosen: Iterable[str], seed: int, each: int) -> Iterator[Name]:
        """A stratified sample of the cases of some shapes."""
        wanted = set(chosen)
        for shape, injection, lot in dealt(seed, each):
            if shape.name in wanted and self.databases.kind in shape.databases:
                names = list(self.names([shape], [injection]))
                yield names[int(lot * len(names))]

    def lots(self, seed: int, each: int, injections: Iterable[Injection]) -> Iterator[Name]:
        """So many cases of one generated program, drawn by lot."""
        chance, wanted, shape = random.Random(seed), list(injections), generated(f"{GENERATED}{seed}")
        for _ in range(each):
            points = list(self.names([shape], [chance.choice(wanted)]))
            if points:
                yield chance.choice(points)


def shape_of(name: str) -> Shape:
    """The shape of a name, written by hand or generated."""
    return generated(name) if is_generated(name) else SHAPES[name]


def dealt(seed: int, each: int) -> Iterator[tuple[Shape, Injection, float]]:
    """So many injections for every shape, dealt out so that every injection has its turn, and where in a case each happens."""
    chance = random.Random(seed)
    injections = list(INJECTIONS.values())
    chance.shuffle(injections)
    for number, shape in enumerate(SHAPES.values()):
        for turn in range(each):
            yield shape, injections[(number * each + turn) % len(injections)], chance.random()
