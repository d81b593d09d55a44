# pyright: reportPrivateUsage=false
"""A verb of apps and clients whose types are more than `dual` can carry: it spells out both of its colours."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from mainspring.app.dual import refuse_blocking_on_loop, refuse_coroutine_in_def_run

if TYPE_CHECKING:
    from mainspring.app.talk import Talk

T = TypeVar("T")
Future = Coroutine[Any, Any, T]


class Speaker(Protocol):
    """An app or client."""

    _spelled: ClassVar[str]

    @property
    def _talk(self) -> Talk: ...

    def _block(self, work: Coroutine[Any, Any, T], label: str) -> T: ...


class Verb:
    """A verb bound to its app: call it for a coroutine, or call `.sync` to block."""

    name = ""

    def __init__(self, owner: Speaker) -> None:
        self._owner = owner
        self._label = f"{owner._spelled}.{self.name}"  # noqa: SLF001  (the other half of the bridge)

    @property
    def _talk(self) -> Talk:
        return self._owner._talk  # noqa: SLF001

    def _ready(self) -> None:
        refuse_coroutine_in_def_run(f"{self._label}.sync(…)")

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._owner._block(work, self._label)  # noqa: SLF001

    def _may_block(self) -> None:
        refuse_blocking_on_loop(f"await {self._label}(…)")
