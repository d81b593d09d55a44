"""What a command changes is written down, with who gave it and why, before it is carried out."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mainspring.operations.audit import Intent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.operations.connect import Operations

F = TypeVar("F", bound="Callable[..., Any]")
R = TypeVar("R")


def reason_option(function: F) -> F:
    """`--reason`, for every command that changes something."""
    return click.option("--reason", help="Why; written down with who did it.")(function)


def carry_out(
    operations: Operations,
    action: str,
    subject: Sequence[str],
    act: Callable[[], R],
    tell: Callable[[R], Any] = lambda _: "done",
    /,
    *,
    reason: str | None,
    **details: Any,
) -> R:
    """Do what a command asks for. `tell` says what came of it, as JSON."""
    said = {name: value if _plain(value) else str(value) for name, value in details.items() if value not in (None, ())}
    who = f"{getpass.getuser()} (command)"
    return operations.audit.carry_out(Intent(who, action, subject, reason, said), act, tell)


def _plain(value: object) -> bool:
    return isinstance(value, str | int | float | bool)
