"""Starts under few keys, in every mode: what was acknowledged runs, with the input of a request that shaped it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, ClassVar

from mainspring import Debounce
from mainspring.model.keys import KeyMode
from tests.random_programs.stage import Program

if TYPE_CHECKING:
    import random

    from mainspring import Client
    from tests.random_programs.stage import Stage

MODES: list[Any] = [mode.value for mode in KeyMode if mode is not KeyMode.DEBOUNCE]
SHAPING = {"replace", "preserve_run_at", "debounce"}


class Keys(Program):
    name: ClassVar[str] = "keys"

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.requests: list[tuple[str, str, str, str, bool]] = []
        """Run, value, mode, key, created."""
        self._count = 0

    def act(self, client: Client, chance: random.Random, actor: int) -> str:
        value = f"v{actor}-{self._count}"
        self._count += 1
        if chance.random() < 0.15 and self.requests:
            victim = chance.choice(self.requests[-20:])[0]
            (client.runs.cancel if chance.random() < 0.5 else client.runs.terminate).sync(victim)
            return "stopped"
        key = f"k{chance.randrange(3)}"
        length, after = chance.choice([0, 0.05, 0.3]), chance.choice([0, 0, 0.05, 0.3])
        if chance.random() < 0.3:
            mode, starter = "debounce", client.options(debounce=Debounce(key, 0.1, max_wait=0.5))
        else:
            mode = chance.choice(MODES)
            starter = client.options(key=key, key_mode=mode, after=after)
        handle = starter.start.sync("job", value=value, length=length)
        self.requests.append((handle.id, value, mode, key, handle.created))
        return f"started under a key, {mode}"

    def audit(self, client: Client) -> None:
        asked: dict[str, list[tuple[str, str, bool]]] = defaultdict(list)
        for run_id, value, mode, _, created in self.requests:
            asked[run_id].append((value, mode, created))
        executed: dict[str, list[str]] = defaultdict(list)
        for entry in self.stage.fleet.ledger.entries():
            if entry.step == "begin":
                executed[entry.run].append(entry.remark)
        for run_id, requests in asked.items():
            info = client.runs.get.sync(run_id)
            self.check(info.state.ended, f"{run_id} was acknowledged and has not ended: {info.state}")
            shaped = {value for value, mode, created in requests if created or mode in SHAPING}
            self.check(sum(created for _, _, created in requests) == 1, f"{run_id} was created {requests}")
            given = str(info.input["value"])
            self.check(given in shaped, f"{run_id} has the input {given}, asked for were {requests}")
            self.check(set(executed[run_id]) <= {given}, f"{run_id} was executed with {executed[run_id]}, has {given}")
            if info.state == "succeeded":
                self.check(info.output == given, f"{run_id} gave {info.output} for {given}")
        self.stage.outcome.done["runs"] = len(asked)
