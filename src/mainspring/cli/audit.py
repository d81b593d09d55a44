"""What a command changes is recorded, with its user and the reason, before it is carried out."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mainspring.operations.audit import Intent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.operations.actions import Action, Answer
    from mainspring.operations.connect import Operations

F = TypeVar("F", bound="Callable[..., Any]")
R = TypeVar("R")


def reason_option(function: F) -> F:
    """`--reason`, for every command that changes something."""
    return click.option("--reason", help="Why; recorded with who did it.")(function)


def carry_out(
    operations: Operations,
    action: str,
    subject: Sequence[str],
    act: Callable[[], R],
    tell: Callable[[R], Any],
    /,
    *,
    reason: str | None,
    **details: Any,
) -> R:
    """Do what a command asks for. `tell` says what came of it, as JSON."""
    shown = {name: value if _plain(value) else str(value) for name, value in details.items() if value not in (None, ())}
    who = f"{getpass.getuser()} (command)"
    return operations.audit.carry_out(Intent(who, action, subject, reason, shown), act, tell)


def perform(
    operations: Operations,
    action: Action,
    subject: str,
    act: Callable[[], R],
    /,
    *,
    reason: str | None,
    **details: Any,
) -> tuple[R, Answer]:
    """Do to a schedule or a queue what a command asks for: what the verb returned, and its answer in words."""
    given = reason
    result = carry_out(
        operations,
        action.label,
        [subject] if subject else [],
        act,
        lambda found: action.answer(subject, found).result,
        reason=given,
        **details,
    )
    return result, action.answer(subject, result)


def _plain(value: object) -> bool:
    return isinstance(value, str | int | float | bool)
