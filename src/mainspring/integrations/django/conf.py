"""The setting MAINSPRING of a Django project, and the database that it names.

MAINSPRING = {
    "DATABASE": "default",          # an alias of DATABASES: the tables are there, and requests' transactions are joined
    "URL": "postgresql://…",        # or another database, together with ATOMIC
    "ATOMIC": "join",               # starts inside transaction.atomic: join, on_commit or immediate
    "NAME": "shop", "VERSION": "7", "IMPORTS": ["shop.workflows"], "STAFF_ROLE": "operator",
    "LEASE": 15, "CONCURRENCY": 100,                       # and every other field of mainspring.Settings
}
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlencode

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections

from mainspring.app.settings import Settings
from mainspring.errors import InvalidInput
from mainspring.web.auth import ROLES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainspring.operations.actions import Role

JOIN, ON_COMMIT, IMMEDIATE = "join", "on_commit", "immediate"
_ATOMIC = (JOIN, ON_COMMIT, IMMEDIATE)
_OWN = ("DATABASE", "URL", "ATOMIC", "NAME", "VERSION", "IMPORTS", "STAFF_ROLE")
_FIELDS = {field.name.upper(): field.name for field in fields(Settings)}
_VENDORS = ("sqlite", "postgresql")


@dataclass(frozen=True)
class Configuration:
    """The parsed setting. One `ImproperlyConfigured` lists everything that is wrong with it."""

    alias: str | None
    """The alias of the Django database that has the tables; None: the tables are in a database of their own."""
    url: str | None
    atomic: str
    name: str
    version: str | None
    imports: tuple[str, ...]
    staff_role: Role
    settings: Settings


def configuration() -> Configuration:
    """Read the current setting."""
    given: Any = getattr(settings, "MAINSPRING", {})
    if not isinstance(given, dict):
        raise ImproperlyConfigured(f"MAINSPRING is a dict, not {given!r}")
    found = cast("dict[str, Any]", given)
    faults = list(_faults(found))
    own: Settings | None = None
    try:
        own = Settings(**{_FIELDS[key]: value for key, value in found.items() if key in _FIELDS})
    except InvalidInput as error:
        faults.append(str(error))
    if faults or own is None:
        raise ImproperlyConfigured("MAINSPRING: " + "; ".join(faults))
    url = found.get("URL")
    return Configuration(
        alias=None if url else found.get("DATABASE", DEFAULT_DB_ALIAS),
        url=url,
        atomic=found.get("ATOMIC", JOIN),
        name=found.get("NAME") or _project(),
        version=found.get("VERSION"),
        imports=tuple(found.get("IMPORTS", ())),
        staff_role=found.get("STAFF_ROLE", "operator"),
        settings=own,
    )


def _faults(given: Mapping[str, Any]) -> list[str]:
    faults: list[str] = []
    unknown = sorted(set(given) - set(_OWN) - set(_FIELDS))
    if unknown:
        faults.append(
            f"there is no {', '.join(unknown)}; there are {', '.join(_OWN)}, and the fields of Settings in capitals"
        )
    if given.get("URL") and given.get("DATABASE"):
        faults.append("give DATABASE, an alias of DATABASES, or URL, not both")
    if given.get("DATABASE", DEFAULT_DB_ALIAS) not in connections.settings and not given.get("URL"):
        faults.append(f"DATABASE: there is no {given.get('DATABASE', DEFAULT_DB_ALIAS)!r} in DATABASES")
    atomic = given.get("ATOMIC", JOIN)
    if atomic not in _ATOMIC:
        faults.append(f"ATOMIC is one of {', '.join(_ATOMIC)}, not {atomic!r}")
    elif given.get("URL") and atomic == JOIN:
        faults.append(
            "URL names a database that Django does not commit, so a request's transaction cannot be joined. Name an alias with "
            'DATABASE instead, or say what is to happen inside transaction.atomic: ATOMIC = "on_commit" starts after the commit, '
            'and nothing if the process dies in between; "immediate" starts at once, also if the transaction is rolled back'
        )
    if given.get("STAFF_ROLE", "operator") not in ROLES:
        faults.append(f"STAFF_ROLE is one of {', '.join(ROLES)}, not {given['STAFF_ROLE']!r}")
    return faults


def _project() -> str:
    return os.environ.get("DJANGO_SETTINGS_MODULE", "").partition(".")[0] or "django"


def database_url(found: Configuration) -> str:
    """Return the URL of the app's database: the current one, because a test runner may put another database behind an alias."""
    if found.url is not None:
        return found.url
    assert found.alias is not None  # noqa: S101  (one of the two)
    connection = connections[found.alias]
    if connection.vendor not in _VENDORS:
        raise ImproperlyConfigured(
            f"MAINSPRING: the database {found.alias!r} is {connection.display_name}; Mainspring's tables are in SQLite or PostgreSQL. "
            "Name another alias with DATABASE, or give URL and ATOMIC"
        )
    described: dict[str, Any] = connection.settings_dict
    return _sqlite(found.alias, described) if connection.vendor == "sqlite" else _postgresql(described)


def in_memory(alias: str) -> bool:
    """Whether a database of Django's is in memory, where no other connection can reach it."""
    name = str(connections[alias].settings_dict["NAME"])
    return not name or name == ":memory:" or "mode=memory" in name


def _sqlite(alias: str, described: Mapping[str, Any]) -> str:
    if in_memory(alias):
        raise ImproperlyConfigured(
            f"the database {alias!r} is in memory, where workers cannot reach it. For tests, name a file: "
            f'DATABASES["{alias}"]["TEST"] = {{"NAME": BASE_DIR / "test.sqlite3"}}'
        )
    name = str(described["NAME"])
    return f"sqlite:///{quote(os.path.abspath(name))}"  # noqa: PTH100  (without following links, as Django)


def _postgresql(described: Mapping[str, Any]) -> str:
    from psycopg.pq import Conninfo  # noqa: PLC0415  (only for PostgreSQL)

    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    options = {key: str(value) for key, value in described.get("OPTIONS", {}).items() if key in known}
    host, port = str(described.get("HOST") or ""), str(described.get("PORT") or "")
    if host.startswith("/"):
        options["host"], host = host, ""
        if port:
            options["port"], port = port, ""
    user = quote(str(described.get("USER") or ""), safe="")
    password = quote(str(described.get("PASSWORD") or ""), safe="")
    place = f"{user}{':' + password if password else ''}{'@' if user or password else ''}"
    place += f"[{host}]" if ":" in host else host
    place += f":{port}" if port else ""
    query = f"?{urlencode(options, quote_via=quote)}" if options else ""
    return f"postgresql://{place}/{quote(str(described.get('NAME') or ''), safe='')}{query}"
