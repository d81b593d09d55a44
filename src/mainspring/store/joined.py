"""Somebody's open transaction, and what works inside it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from mainspring.store.conversations import Blocking, carry, carry_async

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.store.conversations import AsyncTongue, Talk, Tongue
    from mainspring.store.functions import Functions
    from mainspring.store.joining import Joining
    from mainspring.store.management import Management
    from mainspring.store.queues import QueueStore
    from mainspring.store.schedules import ScheduleStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Inside:
    """The part of a store that works inside somebody's transaction."""

    schedules: ScheduleStore
    functions: Functions
    management: Management
    queues: QueueStore
    _joining: Joining
    _tongue: Tongue

    def cancel(self, ids: Sequence[str], reason: str | None, now: int) -> dict[str, bool]:
        """See `Store.cancel`."""
        return carry(self._joining.cancel(ids, reason, now), self._tongue)

    def terminate(self, ids: Sequence[str], reason: str | None, now: int) -> dict[str, bool]:
        """See `Store.terminate`."""
        return carry(self._joining.terminate(ids, reason, now), self._tongue)


class Joined:
    """A conversation partner: somebody's open transaction, and what was made part of it.

    `inside` makes what works inside the transaction of the parts of a store. `check` is a conversation before all others, which
    raises an error if somebody's connection is not to the database that the app has its tables in.
    """

    __slots__ = ("_async", "_check", "_inside", "_tongue", "joining")

    def __init__(
        self,
        joining: Joining,
        inside: Callable[[Tongue, Joining], Inside],
        *,
        tongue: Tongue | None = None,
        async_tongue: AsyncTongue | None = None,
        check: Callable[[], Talk[None]] | None = None,
    ) -> None:
        self.joining = joining
        self._check = check
        self._inside = inside
        self._tongue = tongue
        self._async = async_tongue

    @property
    def is_async(self) -> bool:
        return self._tongue is None

    @property
    def tongue(self) -> Tongue:
        """The way to a blocking connection."""
        assert self._tongue is not None  # noqa: S101
        return self._tongue

    @property
    def async_tongue(self) -> AsyncTongue:
        """The way to one that is awaited."""
        assert self._async is not None  # noqa: S101
        return self._async

    def check(self) -> None:
        """See that it is the right database, if the connection can be asked without awaiting. Others are asked before the first verb."""
        if self._check is not None and self._tongue is not None:
            check, self._check = self._check, None
            carry(check(), self._tongue)

    async def acheck(self) -> None:
        """The same for every connection."""
        self.check()
        if self._check is not None and self._async is not None:
            check, self._check = self._check, None
            await carry_async(check(), self._async)

    def do(self, talk: Talk[T]) -> T:
        assert self._tongue is not None  # noqa: S101
        return carry(talk, self._tongue)

    async def ado(self, talk: Talk[T]) -> T:
        if self._tongue is not None:
            return carry(talk, self._tongue)
        assert self._async is not None  # noqa: S101
        await self.acheck()
        return await carry_async(talk, self._async)

    def within(self, work: Callable[[Inside], T]) -> T:
        """Do something that blocks with what a store has, inside the transaction."""
        return work(self._inside(self.tongue, self.joining))

    async def awithin(self, work: Callable[[Inside], T]) -> T:
        """The same where the connection is an asynchronous one."""
        assert self._async is not None  # noqa: S101
        await self.acheck()
        tongue = Blocking(self._async, asyncio.get_running_loop())
        return await asyncio.to_thread(work, self._inside(tongue, self.joining))
