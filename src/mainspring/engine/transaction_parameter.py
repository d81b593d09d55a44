"""Reads from the annotation of a transaction's first parameter which connection or session the function receives.

Types are recognised by their names, so that no unused driver is imported.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

from mainspring.codec.resolve import annotations_of, unresolved
from mainspring.errors import InvalidInput
from mainspring.store.external.tx import Tx, Wants

if TYPE_CHECKING:
    from collections.abc import Callable

_KNOWN = {
    ("mainspring", "Tx"): Wants.TX,
    ("sqlite3", "Connection"): Wants.SQLITE,
    ("_sqlite3", "Connection"): Wants.SQLITE,
    ("psycopg", "Connection"): Wants.PSYCOPG,
    ("psycopg", "AsyncConnection"): Wants.PSYCOPG_ASYNC,
    ("aiosqlite", "Connection"): Wants.AIOSQLITE,
    ("sqlalchemy", "Connection"): Wants.SA_CONNECTION,
    ("sqlalchemy", "Session"): Wants.SA_SESSION,
    ("sqlalchemy", "AsyncConnection"): Wants.SA_ASYNC_CONNECTION,
    ("sqlalchemy", "AsyncSession"): Wants.SA_ASYNC_SESSION,
    ("sqlmodel", "Session"): Wants.SQLMODEL_SESSION,
    ("sqlmodel", "AsyncSession"): Wants.SQLMODEL_ASYNC_SESSION,
}
_ALONE = {"Tx": "mainspring", "Session": "sqlalchemy", "AsyncSession": "sqlalchemy"}
"""Names that are unambiguous without their module, where they are imported for type checkers only."""


def wanted(fn: Callable[..., Any], place: int, name: str) -> Wants:
    """Return the type that annotates the parameter at `place`; `Tx` without an annotation."""
    parameters = list(inspect.signature(fn).parameters.values())
    if len(parameters) <= place or parameters[place].kind not in {
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    }:
        raise InvalidInput(f"the transaction {name!r} needs a first parameter for what it works on: def …(tx: Tx, …)")
    parameter = parameters[place]
    hint = annotations_of(fn).get(parameter.name, Tx)
    wants = _named(*_spelled(hint))
    if wants is None:
        raise InvalidInput(
            f"the first parameter of the transaction {name!r} is annotated with {_shown(hint)}, which is none of "
            f"{', '.join(each.value for each in Wants if each is not Wants.NOTHING)}. A name that is imported for type checkers only needs its module in front"
        )
    if wants.is_awaited and not inspect.iscoroutinefunction(fn):
        raise InvalidInput(f"the transaction {name!r} is given a {wants.value}, so it must be `async def`")
    if inspect.iscoroutinefunction(fn) and not wants.is_awaited:
        awaited = ", ".join(each.value for each in Wants if each.is_awaited)
        raise InvalidInput(
            f"the transaction {name!r} is `async def`, which works with one of {awaited}; "
            f"with {wants.value} write it as `def` and call it with `await {name}.aio(…)`"
        )
    return wants


def _spelled(hint: Any) -> tuple[str, str]:
    """Return the package and the name of a type."""
    if (text := unresolved(hint)) is not None:
        path = text.strip("'\"").partition("[")[0].split(".")
        package = path[0] if len(path) > 1 else _ALONE.get(path[-1], "")
        return package, path[-1]
    hint = get_args(hint)[0] if get_origin(hint) is Annotated else get_origin(hint) or hint
    return getattr(hint, "__module__", "").partition(".")[0], getattr(hint, "__name__", "")


def _named(package: str, name: str) -> Wants | None:
    return _KNOWN.get((package, name))


def _shown(hint: Any) -> str:
    package, name = _spelled(hint)
    return f"{package}.{name}".strip(".") or repr(hint)
