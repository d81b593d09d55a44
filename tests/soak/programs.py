"""Random programs for `functions/programs.py`, and what must be recorded of a run that has carried one out."""

# ruff: noqa: ARG002  (all kinds of operations are made by calls of one shape)
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.soak.functions.programs import BLOCKING_KINDS

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from tests.soak.functions.programs import Operation

_DEEPEST = 2
_WEIGHTS = {
    "step": 10,
    "transaction": 4,
    "retried": 6,
    "sleep": 4,
    "gather": 3,
    "group": 2,
    "first": 1,
    "timeout": 1,
    "catch": 2,
    "call": 2,
    "start": 2,
    "many": 1,
    "event": 1,
    "stream": 1,
    "mail": 2,
    "unheard": 1,
    "later": 1,
    "patched": 1,
    "adhoc": 1,
    "timed": 1,
}
_NESTED = frozenset({"gather", "group", "first", "timeout", "catch", "call", "start", "many"})
_ALIASES = {"transaction": "step", "retried": "step", "timed": "step"}


class Maker:
    """Makes programs from a seed. `transactions` are the names of those that this soak has databases for."""

    def __init__(self, chance: random.Random, transactions: list[str]) -> None:
        self._chance = chance
        self._transactions = transactions
        self._number = 0

    def colour(self) -> str:
        return self._chance.choice(["async", "async", "def", "async retried", "def retried"])

    def make(self, colour: str, depth: int = 0) -> list[Operation]:
        """A program for a workflow of a colour."""
        size = self._chance.randint(2, 5) if depth == 0 else self._chance.randint(1, 3)
        made = [self._operation(colour, depth) for _ in range(size)]
        if depth == 0 and "retried" in colour and self._chance.random() < 0.6:
            made.insert(self._chance.randrange(len(made) + 1), ["fail", self._label(), self._chance.randint(1, 3)])
        elif depth == 0 and self._chance.random() < 0.06:
            made.append(["fail", self._label(), 99])
        return made

    def _operation(self, colour: str, depth: int) -> Operation:
        allowed = {
            kind: weight
            for kind, weight in _WEIGHTS.items()
            if (depth < _DEEPEST or kind not in _NESTED)
            and ("def" not in colour or _ALIASES.get(kind, kind) in BLOCKING_KINDS)
        }
        kind = self._chance.choices(list(allowed), list(allowed.values()))[0]
        made: Operation = getattr(self, f"_{kind}")(colour, depth)
        return made

    def _label(self) -> str:
        self._number += 1
        return f"s{self._number}"

    def _seconds(self) -> float:
        """Mostly short; some take as long as a worker's grace."""
        return self._chance.choice([0, 0, 0.01, 0.03, 0.1, 0.25, 0.6, 1.5 if self._chance.random() < 0.2 else 0])

    def _step(self, colour: str, depth: int) -> Operation:
        name = self._chance.choice(["act", "act", "act_blocking", "act_blocking", "act_interruptible"])
        return ["step", name, self._label(), self._seconds(), 0]

    def _retried(self, colour: str, depth: int) -> Operation:
        name = self._chance.choice(["act_retried", "act_retried_blocking"])
        return ["step", name, self._label(), self._chance.choice([0, 0.05, 0.3]), self._chance.randint(0, 4)]

    def _timed(self, colour: str, depth: int) -> Operation:
        return ["step", "act_timed", self._label(), 0.05, self._chance.randint(0, 1)]

    def _transaction(self, colour: str, depth: int) -> Operation:
        return ["step", self._chance.choice(self._transactions), self._label(), 0]

    def _adhoc(self, colour: str, depth: int) -> Operation:
        return ["adhoc", self._label()]

    def _sleep(self, colour: str, depth: int) -> Operation:
        return ["sleep", self._chance.choice([0.01, 0.05, 0.2, 0.5, 1, 4 if self._chance.random() < 0.3 else 0.1])]

    def _branches(self, depth: int) -> list[list[Operation]]:
        return [self.make("async", depth + 1) for _ in range(self._chance.randint(2, 3))]

    def _gather(self, colour: str, depth: int) -> Operation:
        return ["gather", self._branches(depth)]

    def _group(self, colour: str, depth: int) -> Operation:
        return ["group", self._branches(depth)]

    def _first(self, colour: str, depth: int) -> Operation:
        return ["first", self._branches(depth)]

    def _timeout(self, colour: str, depth: int) -> Operation:
        return ["timeout", self._chance.choice([0.05, 0.3, 2]), self.make("async", depth + 1)]

    def _catch(self, colour: str, depth: int) -> Operation:
        failing = self._chance.choice(
            [
                ["step", "act", self._label(), 0.02, 1],
                ["step", "act_retried_blocking", self._label(), 0, 99],
                ["step", self._chance.choice(self._transactions), self._label(), 1],
                ["fail", self._label(), 99],
            ]
        )
        return ["catch", [*self.make(colour.removesuffix(" retried"), depth + 1), failing]]

    def _call(self, colour: str, depth: int) -> Operation:
        child = self.colour()
        return ["call", child, self.make(child, depth + 1)]

    def _start(self, colour: str, depth: int) -> Operation:
        child = self.colour()
        return ["start", child, self.make(child, depth + 1), self._chance.random() < 0.2]

    def _many(self, colour: str, depth: int) -> Operation:
        child = self.colour()
        return ["many", child, [self.make(child, depth + 1) for _ in range(self._chance.randint(2, 4))]]

    def _event(self, colour: str, depth: int) -> Operation:
        return ["event", self._chance.choice("abc"), self._chance.randrange(100)]

    def _stream(self, colour: str, depth: int) -> Operation:
        self._number += 1
        return ["stream", f"k{self._number}", list(range(self._chance.randint(1, 5)))]

    def _mail(self, colour: str, depth: int) -> Operation:
        return ["mail", self._chance.randint(1, 4)] if depth == 0 else self._step(colour, depth)

    def _unheard(self, colour: str, depth: int) -> Operation:
        return ["unheard", self._chance.choice([0.02, 0.2, 1])]

    def _later(self, colour: str, depth: int) -> Operation:
        return ["later", self._label()]

    def _patched(self, colour: str, depth: int) -> Operation:
        return ["patched", self._chance.choice(["x", "y"])]


def certain(program: list[Operation]) -> Iterator[Operation]:
    """The operations of one run that were carried out for certain, if it has succeeded: not those of children, races and handlers."""
    for operation in program:
        if operation[0] in {"gather", "group"}:
            for each in operation[1]:
                yield from certain(each)
        elif operation[0] not in {"first", "timeout", "catch"}:
            yield operation


def mail_of(outcome: Any, program: list[Operation]) -> Iterator[tuple[int, Any]]:
    """How many messages each `mail` operation of a run has sent to itself, and what it received."""
    for operation, found in zip(program, outcome, strict=False):
        if operation[0] == "mail":
            yield operation[1], found
