"""The dashboard: an ASGI app to mount in any other. Needs the extra `web`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.errors import MissingExtra

if TYPE_CHECKING:
    from mainspring.web.auth import Basic, Token, User
    from mainspring.web.redaction import About
    from mainspring.web.site import dashboard

__all__ = ["About", "Basic", "Token", "User", "dashboard"]

_WHERE = {"About": "redaction", "Basic": "auth", "Token": "auth", "User": "auth", "dashboard": "site"}


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  (starlette is there only with the extra)

    try:
        return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name in {"starlette", "jinja2"}:
            raise MissingExtra("the dashboard needs more packages; pip install 'mainspring[web]'") from error
        raise
