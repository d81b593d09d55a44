"""Ended runs are pruned at once, while others wait for them: every waiter gets its result, and nothing is left at the end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar

from mainspring.errors import NotFound
from tests.random_programs.played import Declined, expected
from tests.random_programs.stage import Program
from tests.support.processes import eventually

if TYPE_CHECKING:
    import random

    from mainspring import Client
    from tests.random_programs.stage import Stage

DEPTH = 2
PATIENCE = 90


class Pruning(Program):
    name: ClassVar[str] = "pruning"
    settings: ClassVar[dict[str, Any]] = {"retention": 0.001}

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._count = 0

    def act(self, client: Client, chance: random.Random, actor: int) -> str:
        self._count += 1
        label = f"p{actor}-{self._count}"
        run_id = label if chance.random() < 0.7 else f"reused-{chance.randrange(3)}-{actor}"
        handle = client.options(id=run_id).start.sync("tree", depth=DEPTH, label=label)
        if chance.random() < 0.3:
            client.runs.export.sync(run_id)
        right = expected(DEPTH, label)
        try:
            got = handle.result.sync(timeout=PATIENCE)
        except NotFound:
            return "pruned before its result was asked for"
        except Exception as error:  # noqa: BLE001  (what the workflow raised, or something that must not be)
            mine = right is None or not handle.created  # else it is the end of an earlier run under the same id
            self.check(mine and Declined.__name__ in repr(error), f"{run_id} ({label}) raised {error!r}")
            return "declined"
        if handle.created:
            self.check(got == right, f"{run_id} ({label}) gave {got}, not {right}")
        return "waited for"

    def audit(self, client: Client) -> None:
        began = time.monotonic()
        try:
            eventually(lambda: not client.runs.list.sync(limit=1).runs, "everything is pruned", PATIENCE)
        except AssertionError:
            left = client.runs.list.sync(limit=5).runs
            self.fault(f"not pruned after {time.monotonic() - began:.0f} s: {[(run.id, run.state) for run in left]}")
