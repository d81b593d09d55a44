"""Operator verbs, each described once: its summary, the text of its answer, and the role that it needs.

The app, the client, the command line, the dashboard and its API call the same method, and take its texts from here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar

Role: TypeAlias = Literal["viewer", "operator", "admin"]
"""Who may do an action: a viewer only reads, an operator acts, an admin also deletes."""
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to an action: one sentence for the operator, and the result as JSON."""

    message: str
    result: Any = field(default_factory=dict[str, Any])
    run: str | None = None
    """The run that the action started, if any."""


@dataclass(frozen=True, slots=True)
class Action:
    """One operator verb."""

    noun: str
    name: str
    summary: str
    """The first sentence of the verb's docstring."""
    answer: Callable[..., Answer]
    """Makes the answer from the subject and the verb's return value."""
    role: Role

    @property
    def label(self) -> str:
        """The name of the verb in the audit log, such as `runs.cancel`."""
        return f"{self.noun}.{self.name}"


class Actions(dict[str, Action]):
    """The operator verbs of one noun, by name. An instance decorates the methods that implement them."""

    def __init__(self, noun: str) -> None:
        super().__init__()
        self.noun = noun

    def __call__(self, answer: Callable[[Any, Any], Answer], *, role: Role = "operator") -> Callable[[F], F]:
        def add(verb: F) -> F:
            self[verb.__name__] = Action(self.noun, verb.__name__, summary_of(verb), answer, role)
            return verb

        return add


def summary_of(function: Callable[..., Any]) -> str:
    """Return the first sentence of a docstring."""
    paragraph = " ".join((function.__doc__ or function.__name__).strip().partition("\n\n")[0].split())
    sentence, stop, _ = paragraph.partition(". ")
    return f"{sentence}." if stop else paragraph
