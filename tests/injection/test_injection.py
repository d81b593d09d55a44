"""Whatever happens to a worker, at whatever point: no promise is broken. A sample of the cases; `python -m tests.injection` plays all."""

from __future__ import annotations

import _thread
import contextlib
import gc
import inspect
import signal
import sqlite3
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from mainspring.store.sql.dialect import prefixed
from tests.injection import shapes
from tests.injection.databases import databases
from tests.injection.generated.program import KINDS, cut, program
from tests.injection.generated.shape import generated
from tests.injection.injections import INJECTIONS, Point
from tests.injection.scene import SHAPES
from tests.injection.seams import UNTOUCHED, verbs
from tests.injection.series import Name, Series, dealt
from tests.support.samples import of

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.injection.databases import Database
    from tests.support.postgres import PostgresServer

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*was deleted while still open:ResourceWarning"),  # psycopg
    pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning"),  # sqlite3, since Python 3.13
]
"""A process that is gone closes nothing; the case goes on without it, and the collector finds its connections: here, not in a later test."""
SEED = 7
EACH = {"sqlite": of(4, 1), "memory": of(2, 1), "postgres": of(3, 1)}
"""Injections for each shape. On PostgreSQL a case takes three times as long, most of it to connect."""
ONE_OF = {"sqlite": 1, "memory": of(1, 3), "postgres": of(1, 2)}
"""How many shapes there are for each that is played."""
GENERATED = {"sqlite": of(60, 5), "memory": of(120, 6), "postgres": of(30, 3)}
"""Generated programs."""


@pytest.fixture
def series(request: pytest.FixtureRequest) -> Generator[Series]:
    kind: str = getattr(request, "param", "sqlite")
    server: PostgresServer | None = request.getfixturevalue("shared_postgres") if kind == "postgres" else None
    with contextlib.closing(databases(kind, server)) as source:
        yield Series(source)
    gc.collect()


@pytest.mark.sampled
@pytest.mark.parametrize("part", shapes.__all__)
@pytest.mark.parametrize("series", ["sqlite", "memory", "postgres"], indirect=True)
def test_nothing_that_happens_to_a_worker_breaks_a_promise(series: Series, part: str) -> None:
    module = getattr(shapes, part)
    mine = [name for name, each in SHAPES.items() if inspect.getmodule(each.build) is module]
    kind = series.databases.kind
    found: list[str] = []
    for name in series.sample(mine[:: ONE_OF[kind]], SEED, EACH[kind]):
        problems = series.play(name).problems
        if problems:
            found.append(f"{name} | {' | '.join(problem.splitlines()[0] for problem in problems)}")
    assert not found, "\n".join([*found, 'again: python -m tests.injection --case "SHAPE INJECTION POINT"'])


@pytest.mark.sampled
@pytest.mark.parametrize("series", ["sqlite", "memory", "postgres"], indirect=True)
def test_nothing_that_happens_to_a_worker_breaks_a_promise_to_a_program_that_nobody_wrote(series: Series) -> None:
    """Workflows that are made from seeds; `python -m tests.injection --generated 1000 --seed 5000` plays others."""
    found: list[str] = []
    for seed in range(GENERATED[series.databases.kind]):
        for name in series.lots(seed, 2, INJECTIONS.values()):
            problems = series.play(name).problems
            if problems:
                found.append(f"{name} | {' | '.join(problem.splitlines()[0] for problem in problems)}")
    assert not found, "\n".join([*found, 'again: python -m tests.injection --case "PROGRAM INJECTION POINT" --shrink'])


def test_generated_programs_have_every_kind_of_operation() -> None:
    kinds = Counter(node.kind for seed in range(200) for node in program(f"g{seed}").walk())
    assert set(kinds) == {*KINDS, "seq", "never"}
    assert min(kinds.values()) > 5


def test_a_generated_program_is_the_same_each_time_and_can_be_cut() -> None:
    program.cache_clear()
    first = str(program("g3"))
    program.cache_clear()
    assert str(program("g3")) == first
    whole = program("g3")
    smaller = program(cut("g3", whole.generations[0].parts[0].number))
    assert len(list(smaller.walk())) < len(list(whole.walk()))


def test_the_judge_sees_a_replay_that_differs_and_a_result_that_cannot_be(series: Series) -> None:
    record = series.play(Name.parse("g3 stop turn:40"))
    assert not record.problems
    shape = generated("g3")
    assert shape.judge is not None and shape.check is not None  # noqa: PT018
    assert not shape.check({"r": ["nothing of the kind"]})
    key = next(key for key, traces in record.ledger.traces.items() if len(traces[-1]) > 2)
    ((number, _, at), *rest) = record.ledger.traces[key][-1]
    record.ledger.traces[key].append([(number, "something else", at), *rest])
    assert [line.split(":")[0] for line in shape.judge(record, {}, {})] == ["replay"]


@pytest.mark.parametrize("each", EACH.values())
def test_the_sample_has_every_shape_and_every_injection(each: int) -> None:
    names = [(shape.name, injection.name) for shape, injection, _ in dealt(SEED, each)]
    assert {injection for _, injection in names} == set(INJECTIONS)
    assert {shape for shape, _ in names} == set(SHAPES)


def test_every_verb_of_the_store_is_called_by_some_case(series: Series) -> None:
    """A verb that is new and that no shape calls is no point of any case: then a shape is missing, or a reason in `UNTOUCHED`."""
    for shape in SHAPES.values():
        if series.databases.kind in shape.databases:
            series.play(Name(shape.name, "none", Point("none", 1)))
    made = series.play(Name.parse("def_transactions none none:1")).calls
    for number, verb in enumerate(made, 1):  # whoever does not know whether a transaction was made looks
        if verb in {"claim", "transactions.transact"}:
            series.play(Name("def_transactions", "lost", Point("lost", number)))
    never = {verb for verb in verbs() - series.verbs if not {verb, verb.split(".")[0]} & UNTOUCHED.keys()}
    never -= {"transactions.atransact"}  # PostgreSQL's; `async_transactions` calls it there
    assert not never, f"no case calls {', '.join(sorted(never))}"


def test_a_case_is_repeated_exactly(series: Series) -> None:
    for text in ("crowd shuffle+stop seed:3", "gathered takeover turn:40", "undoable slow+kill slow:25"):
        first, second = series.play(Name.parse(text)), series.play(Name.parse(text))
        assert first.calls == second.calls
        assert first.ledger.entries == second.ledger.entries
        assert (first.turns, first.operations, first.problems) == (second.turns, second.operations, second.problems)


def test_the_auditor_accepts_an_interruption_of_a_later_step_and_of_a_child(series: Series) -> None:
    """What was under way at the kill was not recorded, although the run had recorded something before."""
    for text in ("once_steps kill turn:38", "many_children kill turn@6:38"):
        record = series.play(Name.parse(text))
        assert record.at_death
        assert not record.problems


@pytest.mark.parametrize(
    ("statement", "seen"),
    [
        ("UPDATE runs SET state = 'waiting', due = NULL, owner = NULL WHERE id = 'r'", "lost: r"),
        ("DELETE FROM steps WHERE name = 'note'", "repeated: "),
        ("UPDATE steps SET output = '\"z\"' WHERE output = '\"a\"'", "result: r"),
        ("DELETE FROM runs WHERE id = 'r'", "missing: r"),
        ("INSERT INTO events (run, key, number, value, set_at) VALUES ('gone', 'k', 1, '1', 0)", "doctor: leftover"),
    ],
)
def test_the_auditor_sees_what_goes_wrong_between_two_lives(series: Series, statement: str, seen: str) -> None:
    """A database that is tampered with while nobody works stands for a library that does the same."""
    name = Name.parse("steps stop time:70")
    undisturbed = series.play(name)
    assert undisturbed.hit
    assert not undisturbed.problems

    def tamper(database: Database) -> None:
        with contextlib.closing(sqlite3.connect(database.url.removeprefix("sqlite:///"))) as db, db:
            db.execute(prefixed(statement))

    problems = series.play(name, tamper).problems
    assert any(problem.startswith(seen) for problem in problems), problems


@pytest.mark.parametrize("series", ["sqlite", "memory"], indirect=True)
def test_a_case_that_waits_for_something_real_is_a_finding(series: Series) -> None:
    """Whatever a thread waits for, the process of the tests goes on, and the next case is played as ever."""
    name = Name.parse("def_steps stop turn:30")
    calm = series.play(name)
    real = _thread.allocate_lock()
    real.acquire()

    def wait(_database: Database) -> None:
        signal.setitimer(
            signal.ITIMER_REAL, 0.1, 2
        )  # the limit is over here, and not where a busy machine happens to be
        real.acquire()

    assert [problem.split(": not at")[0] for problem in series.play(name, wait).problems] == [f"hung: {name}"]
    again = series.play(name)
    assert (again.problems, again.calls) == (calm.problems, calm.calls)
