"""Record the changes that a command makes, with its user and the reason, before they are made."""

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
    """Add `--reason` to a command that changes something."""
    return click.option("--reason", help="The reason. Recorded in the audit log, with the user.")(function)


def carry_out(
    operations: Operations,
    action: str,
    subject: Sequence[str],
    act: Callable[[], R],
    as_json: Callable[[R], Any],
    /,
    *,
    reason: str | None,
    **details: Any,
) -> R:
    """Record an action in the audit log and execute it. `as_json` converts its result to JSON."""
    shown = {name: value if _plain(value) else str(value) for name, value in details.items() if value not in (None, ())}
    who = f"{getpass.getuser()} (command)"
    return operations.audit.carry_out(Intent(who, action, subject, reason, shown), act, as_json)


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
    """Record and execute an action on a schedule or a queue. Return the verb's result, and its answer as text."""
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
