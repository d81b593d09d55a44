"""No two verbs may ever wait for each other. PostgreSQL itself counts how often it had to cut such a knot."""

from __future__ import annotations

import itertools
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
import pytest

from mainspring.model.clock import SystemClock
from mainspring.model.states import State
from mainspring.store.ops import FAR, Write
from mainspring.store.postgres.store import PostgresStore
from tests.store.build import (
    FUNCTIONS,
    NOW,
    finish,
    in_hand,
    release,
    request,
    rest,
    run,
    start,
    step,
    wait_for,
    worker,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainspring.store.protocol import Store
    from tests.support.postgres import PostgresServer

PARENTS = 6
CHILDREN = 4
ROUNDS = 25
SLOWEST = 4.0
"""Seconds that a verb may take on a busy machine; a knot would take longer than that to be cut, or would not be."""


@pytest.fixture(scope="module")
def url(shared_postgres: PostgresServer) -> Iterator[str]:
    with shared_postgres.database() as made:
        yield made


def open_at(url: str) -> Store:
    made = PostgresStore(url)
    made.open()
    return made


class Family:
    """Parents of one worker that wait for children of another, in a fresh set for each round."""

    numbers = itertools.count()

    def __init__(self, store: Store) -> None:
        prefix = f"f{next(self.numbers)}"
        self.parents = [f"{prefix}p{number}" for number in range(PARENTS)]
        self.children = [f"{parent}/{number}" for parent in self.parents for number in range(CHILDREN)]
        start(store, *(in_hand(parent, "w1") for parent in self.parents))
        start(store, *(in_hand(child, "w2", parent=child.split("/")[0]) for child in self.children))
        store.apply(
            [
                Write("w1", wait_for(child, child.split("/")[0], child.split("/")[1]), watch=child, mood=State.WAITING)
                for child in self.children
            ],
            NOW,
        )


def shuffled(names: list[str], seed: int) -> list[str]:
    found = list(names)
    random.Random(seed).shuffle(found)
    return found


VERBS: dict[str, Callable[[Store, Family, int], object]] = {
    "finish children": lambda store, family, n: store.apply(
        [finish(each, "w2") for each in shuffled(family.children, n)], NOW
    ),
    "finish one by one": lambda store, family, n: [
        store.apply([finish(each, "w2")], NOW) for each in shuffled(family.children, n)
    ],
    "write parents": lambda store, family, n: store.apply(
        [Write("w1", step(each, f"x{n}")) for each in shuffled(family.parents, n)], NOW
    ),
    "stir parents": lambda store, family, n: store.apply(
        [Write("w1", step(each, f"m{n}"), mood=State.RUNNING, due=FAR) for each in shuffled(family.parents, n)], NOW
    ),
    "watch children": lambda store, family, n: store.apply(
        [
            Write("w1", wait_for(child, parent, f"w{n}"), watch=child, mood=State.WAITING)
            for parent, child in zip(family.parents, shuffled(family.children, n), strict=False)
        ],
        NOW,
    ),
    "children watch parents": lambda store, family, n: store.apply(
        [
            Write("w2", wait_for(parent, child, f"w{n}"), watch=parent, mood=State.WAITING)
            for parent, child in zip(family.parents, shuffled(family.children, n), strict=False)
        ],
        NOW,
    ),
    "rest parents": lambda store, family, n: store.apply([rest(each) for each in shuffled(family.parents, n)], NOW),
    "release parents": lambda store, family, _: store.apply([release(each, due=FAR) for each in family.parents], NOW),
    "finish parents": lambda store, family, n: store.apply([finish(each) for each in shuffled(family.parents, n)], NOW),
    "cancel trees": lambda store, family, n: store.cancel(shuffled(family.parents, n), None, NOW),
    "terminate trees": lambda store, family, n: store.terminate(shuffled(family.parents, n)[:2], None, NOW),
    "retire": lambda store, _, n: store.retire("w1" if n % 2 else "w2", NOW, None),
    "claim": lambda store, _family, _n: store.claim(request("w1", 5)),
    "pokes": lambda store, _family, _n: store.pokes("w1"),
    "expire": lambda store, _family, _n: store.expire(NOW),
    "strand": lambda store, _family, _n: store.strand("w1", FUNCTIONS, NOW),
    "start children": lambda store, family, n: store.apply(
        [
            Write("w1", step(each, f"s{n}"), starts=[run(f"{each}/s{n}", parent=each)])
            for each in shuffled(family.parents, n)
        ],
        NOW,
    ),
}
PAIRS = [
    ("claim", "cancel trees"),
    ("finish children", "rest parents"),
    ("finish children", "finish parents"),
    ("finish children", "cancel trees"),
    ("finish one by one", "cancel trees"),
    ("finish children", "terminate trees"),
    ("finish children", "retire"),
    ("finish parents", "retire"),
    ("finish children", "pokes"),
    ("finish children", "watch children"),
    ("finish children", "stir parents"),
    ("finish one by one", "stir parents"),
    ("finish parents", "children watch parents"),
    ("watch children", "children watch parents"),
    ("cancel trees", "terminate trees"),
    ("cancel trees", "start children"),
    ("cancel trees", "retire"),
    ("retire", "claim"),
    ("retire", "retire"),
    ("release parents", "finish children"),
    ("pokes", "cancel trees"),
]


def deadlocks(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(
            b"SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])


def take_turns(stores: list[Store], verbs: list[str], families: list[Family], seed: int) -> float:
    """Each thread its own verb on every family, all at the same time. The longest that any of them took."""
    clock = SystemClock()
    barrier = threading.Barrier(len(stores))

    def work(number: int) -> float:
        longest = 0.0
        for turn, family in enumerate(families):
            barrier.wait(30)
            begun = clock.monotonic()
            answers = VERBS[verbs[number]](stores[number], family, seed + turn)
            longest = max(longest, clock.monotonic() - begun)
            assert "HELD" not in repr(answers)
            assert "Error" not in repr(answers)
        return longest

    with ThreadPoolExecutor(len(stores)) as pool:
        return max(pool.map(work, range(len(stores))))


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_no_two_verbs_wait_for_each_other(url: str, first: str, second: str) -> None:
    before = deadlocks(url)
    with closing(open_at(url)) as one, closing(open_at(url)) as two:
        one.register(worker("w1"))
        families = [Family(one) for _ in range(ROUNDS)]
        assert take_turns([one, two], [first, second], families, 0) < SLOWEST
        for each in families:
            one.terminate(each.parents, None, NOW)
    assert deadlocks(url) == before


def test_no_crowd_of_verbs_ties_a_knot(url: str) -> None:
    before = deadlocks(url)
    names = [
        "finish children",
        "write parents",
        "cancel trees",
        "pokes",
        "watch children",
        "rest parents",
        "claim",
        "retire",
    ]
    stores = [open_at(url) for _ in names]
    try:
        families = [Family(stores[0]) for _ in range(ROUNDS)]
        assert take_turns(stores, names, families, 1) < 2 * SLOWEST
    finally:
        for each in stores:
            each.close()
    assert deadlocks(url) == before
