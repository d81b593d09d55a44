"""Programs: trees of operations, made from a seed.

A program is a list of trees, one for each generation of its run (`continue_as`). A node has a number, by which it is named, and a kind.
Whatever the tree is, its code is deterministic: it depends on outcomes of operations and on nothing else.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PREFIX = "g"
_CUT = "~"
DEPTH = 3
_FEW, _MANY = 3, 10
_LENGTHS = (0.0, 0.01, 0.05, 0.05, 0.1, 0.3)
"""Seconds that a step or a short sleep takes. Some are equal, so that things happen at one moment."""
_LIMITS = (0.05, 0.1, 0.2, 30.0)


@dataclass(frozen=True)
class Node:
    """One operation, or several that are put together."""

    number: int
    kind: str
    parts: tuple[Node, ...] = ()
    given: dict[str, Any] = field(default_factory=dict[str, Any], hash=False)

    def walk(self) -> Iterator[Node]:
        yield self
        for part in self.parts:
            yield from part.walk()

    def __str__(self) -> str:
        given = [f"{name}={value}" for name, value in self.given.items()]
        return f"{self.kind}{self.number}({', '.join([*given, *map(str, self.parts)])})"


@dataclass(frozen=True)
class Program:
    """A program and its name."""

    name: str
    blocking: bool
    """Its workflows are `def`."""
    retried: bool
    """Its runs have several attempts, and some operations fail in the first of them."""
    generations: tuple[Node, ...]

    def walk(self) -> Iterator[Node]:
        for root in self.generations:
            yield from root.walk()

    def find(self, number: int) -> Node:
        return next(node for node in self.walk() if node.number == number)

    def __str__(self) -> str:
        kind = "def" if self.blocking else "async def"
        kind = f"retried {kind}" if self.retried else kind
        return f"{self.name}: {kind} {' then '.join(map(str, self.generations))}"


@cache
def program(name: str) -> Program:
    """The program of a name."""
    seed, *cuts = name.removeprefix(PREFIX).split(_CUT)
    made = _Maker(int(seed)).make(name)
    for cut in cuts:
        made = _without(made, int(cut))
    return made


def is_generated(name: str) -> bool:
    return name.startswith(PREFIX) and name[1:2].isdigit()


def cut(name: str, number: int) -> str:
    """The name of the program without a node: its first part takes its place, if it has any."""
    return f"{name}{_CUT}{number}"


def _without(made: Program, number: int) -> Program:
    return replace(
        made, generations=tuple(_cut_from(root, number) or replace(root, parts=()) for root in made.generations)
    )


def _cut_from(node: Node, number: int) -> Node | None:
    if node.number == number:
        return node.parts[0] if node.parts else None
    parts = [_cut_from(part, number) for part in node.parts]
    if None not in parts:
        return replace(node, parts=tuple(part for part in parts if part is not None))
    if node.kind in _FIXED:  # every part has its place
        empty = Node(number, "seq")
        return replace(node, parts=tuple(part or empty for part in parts))
    return replace(node, parts=tuple(part for part in parts if part is not None))


_FIXED = frozenset(
    {
        "try",
        "spawn_cancel",
        "spawn_join",
        "later",
        "shield",
        "hand_over",
        "timeout",
        "swallow",
        "undo",
        "called",
        "debounced",
        "child_cancel",
    }
)


class _Maker:
    """Makes a program by lot."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._numbers = iter(range(1, 1_000))
        self._left = self._chance.randint(_FEW, _MANY)
        self._blocking = self._chance.random() < 0.1
        self._retried = self._chance.random() < 0.3

    def make(self, name: str) -> Program:
        generations = [self._root()]
        if self._chance.random() < 0.15:
            self._left = self._chance.randint(1, 4)
            generations.append(self._root())
        return Program(name, self._blocking, self._retried, tuple(generations))

    def _root(self) -> Node:
        parts: list[Node] = []
        while self._left > 0:
            parts.append(self._node(DEPTH, _Where()))
        return Node(next(self._numbers), "seq", tuple(parts))

    def _node(self, depth: int, where: _Where) -> Node:
        self._left -= 1
        kinds = _kinds(depth, where, blocking=self._blocking, last=self._left <= 0)
        if self._retried:
            kinds["flaky"] = 5.0
        kind = self._chance.choices(list(kinds), list(kinds.values()))[0]
        make: Callable[[int, int, _Where], Node] | None = getattr(self, f"_make_{kind}", None)
        number = next(self._numbers)
        if make is not None:
            return make(number, depth - 1, where)
        return Node(number, kind)

    def _some(self, depth: int, where: _Where, least: int, most: int) -> tuple[Node, ...]:
        return tuple(self._node(depth, where) for _ in range(self._chance.randint(least, most)))

    def _seq(self, depth: int, where: _Where) -> Node:
        """One or two operations in a row."""
        parts = self._some(depth, where, 1, 2)
        return parts[0] if len(parts) == 1 else Node(next(self._numbers), "seq", parts)

    # -- leaves --------------------------------------------------------------------------------------------------------
    def _make_step(self, number: int, _depth: int, where: _Where) -> Node:
        given: dict[str, Any] = {"how": self._chance.choice(["async", "async", "def", "named"])}
        given["seconds"] = self._chance.choice(_LENGTHS)
        lot = self._chance.random()
        if lot < 0.15:
            given["fails"] = self._chance.randint(1, 2)
        elif lot < 0.3:
            given["how"] = "once"
        elif lot < 0.45 and where.caught:
            given["raises"] = True
        elif lot < 0.5:
            given["spins"] = self._chance.randint(1, 3)
        return Node(number, "step", given=given)

    def _make_flaky(self, number: int, _depth: int, where: _Where) -> Node:
        how = self._chance.choice(["code", "async", "async", "def", "transaction"])
        if how == "code" and where.caught:  # what a handler does after it would stay recorded: a known limit
            how = "async"
        return Node(number, "flaky", given={"how": how, "until": self._chance.choice([2, 2, 3])})

    def _make_transaction(self, number: int, _depth: int, _where: _Where) -> Node:
        how = self._chance.choice(["own", "own", "elsewhere", "nested", "sends", "async"])
        return Node(number, "transaction", given={"how": how})

    def _make_sleep(self, number: int, _depth: int, _where: _Where) -> Node:
        return Node(number, "sleep", given={"seconds": self._chance.choice([*_LENGTHS, 3.0, 12.0])})

    def _make_receive(self, number: int, _depth: int, _where: _Where) -> Node:
        return Node(number, "receive", given={"timeout": self._chance.choice([None, 0.1, 30.0])})

    # -- branches ------------------------------------------------------------------------------------------------------
    def _make_gather(self, number: int, depth: int, where: _Where) -> Node:
        how = self._chance.choice(["gather", "group", "completed", "locked"])
        inner = where.cancellable() if how == "group" and where.caught else where
        return Node(number, "gather", self._branches(depth, inner), {"how": how})

    def _make_race(self, number: int, depth: int, where: _Where) -> Node:
        parts = self._branches(depth, where.cancellable())
        if self._chance.random() < 0.4:
            parts = (
                *parts,
                Node(next(self._numbers), "never", given={"how": self._chance.choice(["receive", "sleep", "event"])}),
            )
        return Node(number, "race", parts, {"tidy": self._chance.random() < 0.85})

    def _branches(self, depth: int, where: _Where) -> tuple[Node, ...]:
        return tuple(self._seq(depth, where) for _ in range(self._chance.randint(2, 3)))

    def _make_spawn_cancel(self, number: int, depth: int, where: _Where) -> Node:
        spawned = self._seq(depth, where.cancellable())
        return Node(number, "spawn_cancel", (spawned, self._seq(depth, where)))

    def _make_spawn_join(self, number: int, depth: int, where: _Where) -> Node:
        return Node(number, "spawn_join", (self._seq(depth, where), self._seq(depth, where)))

    def _make_shield(self, number: int, depth: int, where: _Where) -> Node:
        return Node(number, "shield", (self._seq(depth, where),), {"seconds": self._chance.choice(_LIMITS)})

    def _make_hand_over(self, number: int, depth: int, where: _Where) -> Node:
        how = self._chance.choice(["queue", "event", "message"])
        if where.child:
            how = "queue"
        return Node(number, "hand_over", (self._seq(depth, where), self._seq(depth, where)), {"how": how})

    # -- what ends otherwise -------------------------------------------------------------------------------------------
    def _make_timeout(self, number: int, depth: int, where: _Where) -> Node:
        body = self._seq(depth, where.cancellable())
        return Node(number, "timeout", (body,), {"seconds": self._chance.choice(_LIMITS)})

    def _make_try(self, number: int, depth: int, where: _Where) -> Node:
        body = self._seq(depth, where.catching())
        handler = self._seq(depth, where.perhaps())
        parts = (body, handler, self._node(depth, where)) if self._chance.random() < 0.5 else (body, handler)
        return Node(number, "try", parts)

    def _make_swallow(self, number: int, depth: int, where: _Where) -> Node:
        return Node(
            number,
            "swallow",
            (self._seq(depth, where), self._seq(depth, where)),
            {"again": self._chance.random() < 0.5},
        )

    def _make_undo(self, number: int, depth: int, where: _Where) -> Node:
        given = {"seconds": self._chance.choice(_LENGTHS), "fails": self._chance.random() < 0.4}
        return Node(number, "undo", (self._seq(depth, where.catching()),), given)

    # -- other runs ----------------------------------------------------------------------------------------------------
    def _make_called(self, number: int, depth: int, where: _Where) -> Node:
        queued = not where.child and self._chance.random() < 0.3
        return Node(number, "called", (self._seq(depth, where.in_child()),), {"queued": queued})

    def _make_debounced(self, number: int, depth: int, where: _Where) -> Node:
        given = {"times": self._chance.randint(1, 3), "seconds": self._chance.choice(_LIMITS[:3])}
        return Node(number, "debounced", (self._seq(depth, where.in_child()),), given)

    def _make_later(self, number: int, depth: int, where: _Where) -> Node:
        return Node(number, "later", (self._seq(depth, where.in_child()), self._seq(depth, where)))

    def _make_child_cancel(self, number: int, depth: int, where: _Where) -> Node:
        return Node(number, "child_cancel", (self._seq(depth, where.in_child().cancellable()), self._seq(depth, where)))

    def _make_children(self, number: int, depth: int, where: _Where) -> Node:
        how = self._chance.choice(["gather", "many", "first"])
        inner = where.in_child().cancellable() if how == "first" else where.in_child()
        return Node(number, "children", self._branches(depth, inner), {"how": how})


@dataclass(frozen=True)
class _Where:
    """What is around a node."""

    cancelled: bool = False
    """The code may cancel it."""
    caught: bool = False
    """An exception that it raises is caught."""
    child: bool = False
    """It is in a child run."""

    def cancellable(self) -> _Where:
        return replace(self, cancelled=True)

    def perhaps(self) -> _Where:
        return self

    def catching(self) -> _Where:
        return replace(self, caught=True)

    def in_child(self) -> _Where:
        return replace(self, child=True, caught=False, cancelled=False)


_LEAVES = {
    "step": 10.0,
    "sleep": 3.0,
    "set_event": 0.7,
    "stream": 0.7,
    "patched": 0.7,
    "draw": 0.5,
    "transaction": 2.0,
    "batch": 1.0,
    "look": 0.5,
}
_OF_MAIN = {"receive": 2.0, "ask": 0.7, "post": 0.7}
_ASYNC = {
    "gather": 5.0,
    "race": 6.0,
    "spawn_cancel": 5.0,
    "spawn_join": 3.0,
    "shield": 2.0,
    "hand_over": 3.0,
    "timeout": 5.0,
}
_EITHER = {"try": 5.0, "undo": 4.0, "called": 2.5, "later": 2.5, "child_cancel": 2.5, "children": 2.0, "debounced": 1.0}

KINDS = frozenset({*_LEAVES, *_OF_MAIN, *_ASYNC, *_EITHER, "swallow", "flaky"})
"""All kinds that are drawn by lot."""


def _kinds(depth: int, where: _Where, *, blocking: bool, last: bool) -> dict[str, float]:
    found = dict(_LEAVES)
    if not where.child:
        found |= _OF_MAIN
    if depth > 0 and not last:
        found |= _EITHER
        if not blocking:
            found |= _ASYNC
            if where.cancelled:
                found["swallow"] = 4.0
    return found
