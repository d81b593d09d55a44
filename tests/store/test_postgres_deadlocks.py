"""No two verbs may ever wait for each other. PostgreSQL itself counts how often it had to cut such a knot."""

from __future__ import annotations

import itertools
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest

from mainspring.model.states import State
from mainspring.store.postgres.store import PostgresStore
from mainspring.store.writes import RecordStep
from tests.store.build import (
    FUNCTIONS,
    NOW,
    finish,
    owned,
    release,
    request,
    rest,
    run,
    start,
    step,
    wait_for,
    worker,
)
from tests.support.samples import of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from mainspring.store.protocol import Store
    from tests.support.postgres import PostgresServer

PARENTS = 6
CHILDREN = 4
ROUNDS = of(25, 10)
PATIENCE = 60.0
"""Seconds until a verb that does not come back is taken for one that waits for ever: PostgreSQL cuts its own knots after one."""


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
        start(store, *(owned(parent, "w1") for parent in self.parents))
        start(store, *(owned(child, "w2", parent=child.split("/")[0]) for child in self.children))
        store.apply(
            [
                RecordStep(
                    "w1",
                    wait_for(child, child.split("/")[0], child.split("/")[1]),
                    watch=child,
                    run_state=State.WAITING,
                )
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
        [RecordStep("w1", step(each, f"x{n}")) for each in shuffled(family.parents, n)], NOW
    ),
    "stir parents": lambda store, family, n: store.apply(
        [
            RecordStep("w1", step(each, f"m{n}"), run_state=State.RUNNING, due=None)
            for each in shuffled(family.parents, n)
        ],
        NOW,
    ),
    "watch children": lambda store, family, n: store.apply(
        [
            RecordStep("w1", wait_for(child, parent, f"w{n}"), watch=child, run_state=State.WAITING)
            for parent, child in zip(family.parents, shuffled(family.children, n), strict=False)
        ],
        NOW,
    ),
    "children watch parents": lambda store, family, n: store.apply(
        [
            RecordStep("w2", wait_for(parent, child, f"w{n}"), watch=parent, run_state=State.WAITING)
            for parent, child in zip(family.parents, shuffled(family.children, n), strict=False)
        ],
        NOW,
    ),
    "rest parents": lambda store, family, n: store.apply([rest(each) for each in shuffled(family.parents, n)], NOW),
    "release parents": lambda store, family, _: store.apply([release(each) for each in family.parents], NOW),
    "finish parents": lambda store, family, n: store.apply([finish(each) for each in shuffled(family.parents, n)], NOW),
    "cancel trees": lambda store, family, n: store.cancel(shuffled(family.parents, n), None, NOW),
    "terminate trees": lambda store, family, n: store.terminate(shuffled(family.parents, n)[:2], None, NOW),
    "retire": lambda store, _, n: store.retire("w1" if n % 2 else "w2", NOW, None),
    "claim": lambda store, _family, _n: store.claim(request("w1", 5)),
    "notices": lambda store, _family, _n: store.notices("w1"),
    "expire": lambda store, _family, _n: store.expire(NOW),
    "strand": lambda store, _family, _n: store.strand(FUNCTIONS),
    "start children": lambda store, family, n: store.apply(
        [
            RecordStep("w1", step(each, f"s{n}"), starts=[run(f"{each}/s{n}", parent=each)])
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
    ("finish children", "notices"),
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
    ("notices", "cancel trees"),
]


@contextmanager
def no_knots(server: PostgresServer, url: str) -> Generator[None]:
    """PostgreSQL cuts no knot meanwhile. If it does, its log says which statements were in it."""
    before = deadlocks(url)
    yield
    assert deadlocks(url) == before, server.end_of_log()


def deadlocks(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(
            b"SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])


def take_turns(stores: list[Store], verbs: list[str], families: list[Family], seed: int) -> None:
    """Each thread its own verb on every family, all at the same time."""
    barrier = threading.Barrier(len(stores))

    def work(number: int) -> None:
        for turn, family in enumerate(families):
            barrier.wait(PATIENCE)
            answers = VERBS[verbs[number]](stores[number], family, seed + turn)
            assert "HELD" not in repr(answers), verbs[number]
            assert "Error" not in repr(answers), verbs[number]

    with ThreadPoolExecutor(len(stores)) as pool:
        list(pool.map(work, range(len(stores))))


@pytest.mark.sampled
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_no_two_verbs_wait_for_each_other(shared_postgres: PostgresServer, url: str, first: str, second: str) -> None:
    with no_knots(shared_postgres, url), closing(open_at(url)) as one, closing(open_at(url)) as two:
        one.register(worker("w1"))
        families = [Family(one) for _ in range(ROUNDS)]
        take_turns([one, two], [first, second], families, 0)
        for each in families:
            one.terminate(each.parents, None, NOW)


@pytest.mark.sampled
def test_no_crowd_of_verbs_ties_a_knot(shared_postgres: PostgresServer, url: str) -> None:
    names = [
        "finish children",
        "write parents",
        "cancel trees",
        "notices",
        "watch children",
        "rest parents",
        "claim",
        "retire",
    ]
    with no_knots(shared_postgres, url), ExitStack() as stack:
        stores = [stack.enter_context(closing(open_at(url))) for _ in names]
        families = [Family(stores[0]) for _ in range(ROUNDS)]
        take_turns(stores, names, families, 1)
