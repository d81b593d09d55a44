"""The dialects of cron. Each module has a function `read(text, faults)` that collects all faults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from mainspring.recurrence.cron.dialects import dbos, graphile, temporal, vixie

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.errors import Fault
    from mainspring.recurrence.cron.dialects.reading import Reading

Dialect = Literal["dbos", "graphile", "temporal", "vixie"]
"""How a cron expression is parsed: as by DBOS for TypeScript, Graphile Worker, Temporal, or cron itself."""

READERS: Final[dict[str, Callable[[str, list[Fault]], Reading]]] = {
    "dbos": dbos.read,
    "graphile": graphile.read,
    "temporal": temporal.read,
    "vixie": vixie.read,
}
DIALECTS: Final[tuple[Dialect, ...]] = ("dbos", "graphile", "temporal", "vixie")
