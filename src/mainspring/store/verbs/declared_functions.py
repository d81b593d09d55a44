"""What workers declare about the functions that they execute: signatures, kinds, retention."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainspring.store.transaction import Transactor

_KEY = "function "
_LIST = "SELECT key, value FROM meta WHERE key LIKE :like"
_KEEP = """
  INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value
"""


class DeclaredFunctions:
    """The verbs of declared functions, in transactions of a `Transactor`."""

    def __init__(self, transactor: Transactor) -> None:
        self._read = transactor.read
        self._do = transactor.execute_many

    def keep(self, described: Mapping[str, str]) -> None:
        """Store declarations. Writes nothing if nothing has changed."""
        there = self.list()
        changed = {name: text for name, text in described.items() if there.get(name) != text}
        if changed:
            self._do((_KEEP, [{"key": f"{_KEY}{name}", "value": changed[name]} for name in sorted(changed)]))

    def list(self) -> dict[str, str]:
        """The declarations, by the name of the function."""
        return {key.removeprefix(_KEY): value for key, value in self._read(_LIST, like=f"{_KEY}%")}
