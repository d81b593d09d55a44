"""SQLAlchemy and Alembic: migrations that leave the library's tables alone.

Where the tables of an app are in the same database as yours, `alembic revision --autogenerate` would drop them, since no model describes
them. In `env.py`:

    from mainspring.integrations.sqlalchemy import include_name
    context.configure(…, include_name=include_name)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_PREFIX = "mainspring_"
SCHEMA = "mainspring"
"""The schema of the tables on PostgreSQL, unless `Settings(schema=…)` names another one."""


def include_name(name: str | None, type_: str, parent_names: Mapping[str, str | None], *, schema: str = SCHEMA) -> bool:
    """Whether Alembic should compare an object: not the library's schema, nor tables with its prefix.

    For another schema: `functools.partial(include_name, schema="jobs")`. To leave out more: `include_name(*given) and
    mine(*given)`.
    """
    if type_ == "schema":
        return name != schema
    table = name if type_ == "table" else parent_names.get("table_name")
    return parent_names.get("schema_name") != schema and not (table or "").startswith(_PREFIX)


def include_object(
    object: Any,  # noqa: A002  (Alembic gives it by this name)
    name: str | None,
    type_: str,
    reflected: bool,  # noqa: FBT001
    compare_to: Any,
    *,
    schema: str = SCHEMA,
) -> bool:
    """Whether Alembic should compare an object, for its hook `include_object`, which receives SQLAlchemy's objects."""
    del name, reflected, compare_to
    table = object if type_ == "table" else getattr(object, "table", None)
    return table is None or not (table.schema == schema or table.name.startswith(_PREFIX))
