"""Operator verbs, each described once: its sentence, the words of its answer, and who may do it.

The app, the client, the command line, the dashboard and its API call the same method. What they say about it comes from here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar

Role: TypeAlias = Literal["viewer", "operator", "admin"]
"""Who may do something: a viewer only looks, an operator acts, an admin also deletes."""
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to an action, for an operator: one sentence, and the result as JSON."""

    message: str
    result: Any = field(default_factory=dict[str, Any])
    run: str | None = None
    """The run that the action made, if it made one."""


@dataclass(frozen=True, slots=True)
class Action:
    """One operator verb."""

    noun: str
    name: str
    summary: str
    """The first sentence of its docstring."""
    answer: Callable[..., Answer]
    """Makes the answer from the subject and from what the verb returned."""
    role: Role

    @property
    def label(self) -> str:
        """Its name in the record of actions and in the records of runs."""
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
    """The first sentence of a docstring."""
    paragraph = " ".join((function.__doc__ or function.__name__).strip().partition("\n\n")[0].split())
    sentence, stop, _ = paragraph.partition(". ")
    return f"{sentence}." if stop else paragraph
