"""The conditions of a statement that depend on what a caller asks for, and the values of their parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


class Where:
    """Conditions that must all hold. A condition whose value is None was not asked for, and is left out."""

    def __init__(self, *conditions: str, **values: Any) -> None:
        self.conditions = list(conditions)
        self.values = values

    def __str__(self) -> str:
        return f"WHERE {' AND '.join(self.conditions)}" if self.conditions else ""

    def __and__(self, condition: str) -> str:
        """The clause with one more condition."""
        return f"WHERE {' AND '.join([condition, *self.conditions])}"

    def add(self, condition: str, **values: Any) -> None:
        """A condition with its values."""
        if None not in values.values():
            self.conditions.append(condition)
            self.values |= values

    def holds(self, condition: str, wanted: bool | None) -> None:  # noqa: FBT001  (it is the value)
        """A condition that must hold, or must not."""
        if wanted is not None:
            self.conditions.append(condition if wanted else f"NOT {condition}")

    def one_of(self, column: str, choice: Sequence[str]) -> None:
        """A column has one of some values; empty: any value."""
        names = {f"{column}{number}": str(value) for number, value in enumerate(choice)}
        if names:
            self.add(f"{column} IN ({', '.join(f':{name}' for name in names)})", **names)

    def between(self, column: str, span: tuple[int | None, int | None]) -> None:
        """A column is in a span of time, which may have no beginning or no end."""
        self.add(f"{column} >= :{column}_from", **{f"{column}_from": span[0]})
        self.add(f"{column} < :{column}_to", **{f"{column}_to": span[1]})

    def begins(self, column: str, prefixes: Sequence[str]) -> None:
        """A column begins with one of some prefixes; empty: any value."""
        if prefixes:
            self.conditions.append(f"({' OR '.join(begins(column, number) for number in range(len(prefixes)))})")
            for number, prefix in enumerate(prefixes):
                self.values |= {f"prefix{number}": prefix, f"prefix_end{number}": prefix + "\U0010ffff"}


def begins(column: str, number: int) -> str:
    """The condition for one of the prefixes of `Where.begins`."""
    return f"{column} >= :prefix{number} AND {column} < :prefix_end{number}"
