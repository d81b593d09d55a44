"""Conversations with a database: a verb says which statements it needs, one after the other, and is told the rows.

Who has the connection carries the words: blocking or awaiting, with the driver's own cursor or through SQLAlchemy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

Rows = list[tuple[Any, ...]]
Asked = tuple[str, Any]
"""A statement with its values: by name, or by place where that is known to be understood."""
Talk = Generator[Asked, Rows, T]


class Tongue(Protocol):
    """Says a statement on a connection and answers with its rows, blocking."""

    def ask(self, text: str, values: Any) -> Rows: ...


class AsyncTongue(Protocol):
    """The same, awaited."""

    async def ask(self, text: str, values: Any) -> Rows: ...


def carry(talk: Talk[T], tongue: Tongue) -> T:
    """Carry a conversation to its end, blocking."""
    try:
        asked = next(talk)
        while True:
            asked = talk.send(tongue.ask(*asked))
    except StopIteration as done:
        found: T = done.value
        return found


async def carry_async(talk: Talk[T], tongue: AsyncTongue) -> T:
    """Carry a conversation to its end, awaiting."""
    try:
        asked = next(talk)
        while True:
            asked = talk.send(await tongue.ask(*asked))
    except StopIteration as done:
        found: T = done.value
        return found


class Blocking:
    """A connection whose owner awaits, for code that blocks: each statement is made on the loop, and waited for elsewhere."""

    def __init__(self, tongue: AsyncTongue, loop: asyncio.AbstractEventLoop) -> None:
        self._tongue = tongue
        self._loop = loop

    def ask(self, text: str, values: Any) -> Rows:
        return asyncio.run_coroutine_threadsafe(self._tongue.ask(text, values), self._loop).result()
