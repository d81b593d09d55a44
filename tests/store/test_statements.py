"""Every statement of `store/sql` is understood by both databases."""

from __future__ import annotations

import importlib
import pkgutil
import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

import psycopg
import pytest
from psycopg.pq import ExecStatus

import mainspring.store.sql
from mainspring.store.open import open_store, sqlite_path
from mainspring.store.postgres.dialect import Dialect
from mainspring.store.schedules import ScheduleFilter, TickFilter
from mainspring.store.sql.bulk import Bulk
from mainspring.store.sql.dialect import PerDatabase, prefixed
from mainspring.store.sql.schedules import schedules_page, ticks_page
from mainspring.store.sqlite.dialect import DIALECT
from tests.store.build import StoreSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mainspring.store.sql.dialect import Sql

NO_STATEMENTS = {"run_filters"}
"""Modules that put statements together from what is asked for; `tests/store/test_conformance_reading.py` executes them."""
MODULES = [
    module.name for module in pkgutil.iter_modules(mainspring.store.sql.__path__) if module.name not in NO_STATEMENTS
]
_STATEMENT = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b")
_PARAMETER = re.compile(r"(?<!:):([a-z_][a-z0-9_]*)")
_SCHEDULES = schedules_page(
    ScheduleFilter(
        id_prefix=["a", "b"],
        paused=True,
        workflow=["w"],
        failing=True,
        attributes="{}",
        due_before=1,
        app="a",
        after="b",
    )
)
_TICKS = ticks_page(TickFilter("s", 1, 2, ["fired"], "r", runs_only=True, before=(1, "r")))
MADE: dict[str, dict[str, Sql]] = {"schedules": {"schedules_page": _SCHEDULES[0], "ticks_page": _TICKS[0]}}
"""Statements that functions make."""

ONE_DATABASE = {
    "sqlite": {"retention": {"PRUNE"}},
    "postgres": {"retention": {"FIND_OLD"}},
}
"""What a database need not understand, because it is never executed there: its docstring says why."""


def statements(module: str) -> dict[str, Sql]:
    """The statements of a module by name. A fragment of one does not begin as a statement does."""
    found: dict[str, Sql] = dict(MADE.get(module, {}))
    for name, value in vars(importlib.import_module(f"mainspring.store.sql.{module}")).items():
        if name.isupper() and not name.startswith("_"):
            for key, each in _parts(value):
                text = each.postgres if isinstance(each, PerDatabase) else each
                if isinstance(text, str) and _STATEMENT.match(text):
                    found[f"{name} {key}".strip()] = each
    return found


def _parts(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, dict):
        return cast("Mapping[str, object]", value).items()
    return enumerate(cast("Sequence[object]", value)) if isinstance(value, tuple) else [("", value)]


def parameters(text: str) -> dict[str, None]:
    return dict.fromkeys(_PARAMETER.findall(text))


@pytest.fixture
def tables(store_url: str) -> str:
    store = open_store(store_url, StoreSettings())
    store.open()
    store.close()
    return store_url


@pytest.mark.parametrize("module", MODULES)
def test_a_database_understands_every_statement(tables: str, module: str) -> None:
    kind, prepare = (
        ("postgres", _refused_by_postgres) if tables.startswith("postgres") else ("sqlite", _refused_by_sqlite)
    )
    refused = prepare(tables, statements(module))
    others = ONE_DATABASE[kind].get(module, set[str]())
    assert {name: reason for name, reason in refused.items() if name not in others} == {}
    assert others <= refused.keys()


def test_there_are_statements_about_each_table() -> None:
    assert {module for module in MODULES if statements(module)} >= {"runs", "steps", "messages", "schedules", "queues"}


def test_rows_have_as_many_values_as_the_statement_has_columns() -> None:
    bulks = [each for module in MODULES for each in statements(module).values() if isinstance(each, Bulk)]
    assert bulks
    for each in bulks:
        assert each.rows([tuple(range(len(each.columns)))]).tuples == [tuple(range(len(each.columns)))]
        with pytest.raises(ValueError, match="argument"):
            each.rows([(1,)])


def _refused_by_sqlite(url: str, wanted: dict[str, Sql]) -> dict[str, str]:
    """The statements that SQLite refuses, with its reasons."""
    refused: dict[str, str] = {}
    with closing(sqlite3.connect(sqlite_path(url))) as db, db:
        for name, statement in wanted.items():
            texts = [DIALECT.spelled(statement)]
            if isinstance(statement, Bulk):
                row = f"({', '.join('NULL' for _ in statement.columns)})"
                texts.append(prefixed(statement.values).replace("{rows}", f"{row}, {row}"))
            for text in texts:
                try:
                    db.execute(f"EXPLAIN {text}", parameters(text))
                except sqlite3.Error as error:
                    refused[name] = str(error)
    return refused


def _refused_by_postgres(url: str, wanted: dict[str, Sql]) -> dict[str, str]:
    refused: dict[str, str] = {}
    dialect = Dialect("mainspring")
    with psycopg.connect(url, autocommit=True) as db:
        for name, statement in wanted.items():
            text = statement.postgres if isinstance(statement, PerDatabase) else statement
            done = db.pgconn.prepare(b"", dialect.raw(text).query)
            if done.status != ExecStatus.COMMAND_OK:
                refused[name] = done.error_message.decode()
    return refused
