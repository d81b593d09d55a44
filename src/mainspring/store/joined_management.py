"""The verbs of `store/management.py` inside somebody's open transaction: they commit with it, or not at all."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.store.conversations import carry
from mainspring.store.management import Management

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from mainspring.store.conversations import Tongue
    from mainspring.store.desk import Desk
    from mainspring.store.joining import Joining
    from mainspring.store.message_sql import Rows
    from mainspring.store.run_filters import Filters

T = TypeVar("T")

_PART = "mainspring_managed"


class JoinedDesk:
    """See `mainspring.store.management.Desk`."""

    def __init__(self, tongue: Tongue, joining: Joining) -> None:
        self._tongue = tongue
        self._joining = joining
        self.over: set[str] = set()

    def rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        return self._tongue.ask(statement, values)

    def ready(self) -> None:
        self._joining.ready = True

    def ended(self, run: str) -> None:
        self.over.add(run)


def joined_management(tongue: Tongue, joining: Joining, filters: Filters) -> Management:
    """Managing runs as part of the transaction that is open on the other side of `tongue`."""

    def change(ids: Sequence[str], now: int, act: Callable[[Desk], T]) -> T:
        """What fails in the middle leaves no trace, and what was done before stays."""
        desk = JoinedDesk(tongue, joining)
        tongue.ask(f"SAVEPOINT {_PART}", {})
        try:
            carry(joining.hold(ids), tongue)
            answer = act(desk)
            carry(joining.settle(desk.over, now), tongue)
        except BaseException:
            tongue.ask(f"ROLLBACK TO SAVEPOINT {_PART}", {})
            tongue.ask(f"RELEASE SAVEPOINT {_PART}", {})
            raise
        tongue.ask(f"RELEASE SAVEPOINT {_PART}", {})
        return answer

    def rows(statement: str, **values: Any) -> list[tuple[Any, ...]]:
        return tongue.ask(statement, values)

    @contextlib.contextmanager
    def snapshot(ids: Sequence[str]) -> Generator[Rows]:
        """Every statement of this transaction may see another moment; what is held does not change."""
        carry(joining.hold(ids), tongue)
        yield rows

    return Management(change, rows, snapshot, filters)
