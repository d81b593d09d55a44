"""Alembic, run as a user runs it, in a database that has the library's tables beside the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Column, Index, MetaData, Table, Text

from mainspring import App
from mainspring.integrations.sqlalchemy import include_object
from tests.transactions import bank

pytest.importorskip("alembic")
from alembic import command
from alembic.config import Config

if TYPE_CHECKING:
    from collections.abc import Callable

ENV = """
from alembic import context
from sqlalchemy import Column, Integer, MetaData, String, Table, create_engine
from mainspring.integrations.sqlalchemy import include_name, include_object

models = MetaData()
Table("orders", models, Column("id", Integer, primary_key=True), Column("name", String(50)))
settings = context.config.attributes
helper = {"include_name": include_name, "include_object": include_object, "none": None}[settings["helper"]]
chosen = {settings["helper"]: helper} if helper else {}
with create_engine(settings["engine_url"]).connect() as connection:
    context.configure(connection=connection, target_metadata=models, include_schemas=True, **chosen)
    with context.begin_transaction():
        context.run_migrations()
connection.engine.dispose()
"""
TEMPLATE = '"""${message}"""\nrevision = ${repr(up_revision)}\ndown_revision = ${repr(down_revision)}\n\ndef upgrade():\n    ${upgrades}\n'


@pytest.fixture
def autogenerate(store_url: str, tmp_path: Path) -> Callable[[str], str]:
    """Makes a revision with one of the helpers, and answers with its text."""
    with App(store_url):  # its tables are made
        pass
    driver = "sqlite" if bank.is_sqlite(store_url) else "postgresql+psycopg"
    (tmp_path / "versions").mkdir()
    (tmp_path / "env.py").write_text(ENV)
    (tmp_path / "script.py.mako").write_text(TEMPLATE)
    config = Config()
    config.set_main_option("script_location", str(tmp_path))
    config.set_main_option("path_separator", "os")

    def made(helper: str) -> str:
        url = store_url.replace(store_url.split(":", maxsplit=1)[0], driver, 1)
        config.attributes.update(helper=helper, engine_url=url)
        script: Any = command.revision(config, message="orders", autogenerate=True)
        return Path(script.path).read_text()

    return made


@pytest.mark.parametrize("helper", ["include_name", "include_object"])
def test_a_revision_leaves_the_tables_of_the_library_alone(autogenerate: Callable[[str], str], helper: str) -> None:
    text = autogenerate(helper)
    assert "create_table('orders'" in text
    assert "mainspring" not in text
    assert "drop_" not in text


def test_without_the_helper_a_revision_would_drop_them(autogenerate: Callable[[str], str]) -> None:
    assert "drop_table" in autogenerate("none")


def test_columns_and_indexes_go_with_their_table() -> None:
    ours = Table("runs", MetaData(), Column("id", Text), schema="mainspring")
    theirs = Table("runs", MetaData(), Column("id", Text))
    for table, wanted in ((ours, False), (theirs, True)):
        index = Index("by_id", table.c.id)
        assert include_object(table, "runs", "table", True, None) is wanted
        assert include_object(table.c.id, "id", "column", True, None) is wanted
        assert include_object(index, "by_id", "index", True, None) is wanted
