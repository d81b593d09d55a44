"""Messages and streams: keyed and not, from outside, from workflows and their steps, to runs that begin anew, through takeovers."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, ClassVar

from mainspring.errors import StillRunning
from tests.random_programs.stage import Program

if TYPE_CHECKING:
    import random

    from mainspring import JSON, Client, Handle
    from tests.random_programs.stage import Stage

RECEIVERS = ["r0", "r1"]
MOST_ASKERS = 60
"""One run answers them all, one question after the other."""
ANEW = 0.15
"""It must answer more often than it begins anew."""


class Messages(Program):
    name: ClassVar[str] = "messages"

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.sent: dict[str, dict[str, list[str]]] = {each: defaultdict(list) for each in RECEIVERS}
        """By receiver and sender, in order."""
        self.keyed: dict[str, list[tuple[str, str]]] = {each: [] for each in RECEIVERS}
        self.senders: list[tuple[Handle[JSON], str, str, int]] = []
        self.askers: list[tuple[Handle[JSON], list[int]]] = []
        self._count = 0

    def prepare(self, client: Client) -> None:
        for each in RECEIVERS:
            client.options(id=each).start.sync("receiver")
        client.options(id="echo").start.sync("echo")

    def act(self, client: Client, chance: random.Random, actor: int) -> str:
        receiver = chance.choice(RECEIVERS)
        self._count += 1
        number = self._count
        what = chance.random()
        if what < 0.35:
            sender = f"a{actor}"
            value = f"{sender}:{len(self.sent[receiver][sender])}"
            client.send.sync(receiver, "t", value)
            self.sent[receiver][sender].append(value)
            return "sent"
        if what < 0.5:
            value = f"k{actor}-{number}:0"
            for _ in range(chance.randint(1, 2)):
                client.send.sync(receiver, "t", value, key=value)
            self.keyed[receiver].append((value, value))
            return "sent with a key"
        if what < 0.65 and self.keyed[receiver]:
            value, key = chance.choice(self.keyed[receiver])
            client.send.sync(receiver, "t", value, key=key)
            return "sent with a key again"
        if what < 0.8:
            name, count = f"w{actor}-{number}", chance.randint(1, 4)
            handle = client.options(id=f"sender-{name}").start.sync("sender", receiver, name, count)
            self.senders.append((handle, receiver, name, count))
            return "sent by a workflow"
        return self._ask(client, chance, f"{number}-{actor}")

    def _ask(self, client: Client, chance: random.Random, name: str) -> str:
        if chance.random() < ANEW:
            client.send.sync("echo", "anew", 1)
            return "begun anew"
        if len(self.askers) < MOST_ASKERS:
            numbers = [chance.randrange(100) for _ in range(3)]
            self.askers.append((client.options(id=f"asker-{name}").start.sync("asker", "echo", numbers), numbers))
            return "asked"
        return "nothing"

    def finish(self, client: Client) -> None:
        for handle, *_ in self.senders:
            self._result(client, handle)
        for asker, numbers in self.askers:
            got = self._result(client, asker)
            self.check(got == [number * 2 for number in numbers], f"{asker.id} asked {numbers} and got {got}")
        for each in RECEIVERS:
            client.send.sync(each, "t", None)
        client.send.sync("echo", "anew", None)

    def _result(self, client: Client, handle: Handle[Any]) -> Any:
        try:
            return handle.result.sync(timeout=90)
        except StillRunning:
            rows = [json.loads(line) for line in client.runs.export.sync(handle.id, "echo")]
            shown = [row for row in rows if row.get("table") in {"runs", "steps"}]
            self.fault("does not end:\n" + "\n".join(map(str, shown))[-6000:])
            return None

    def audit(self, client: Client) -> None:
        for receiver in RECEIVERS:
            got: list[str] = list(client.read_stream.sync(receiver, "got"))
            times = Counter(got)
            expected = {value for values in self.sent[receiver].values() for value in values}
            expected |= {value for value, _ in self.keyed[receiver]}
            expected |= {f"{n}:{i}" for _, to, n, count in self.senders if to == receiver for i in range(count)}
            self.check(
                set(times) == expected, f"{receiver}: lost {expected - set(times)}, invented {set(times) - expected}"
            )
            double = {value: count for value, count in times.items() if count > 1}
            self.check(not double, f"{receiver}: received more than once: {double}")
            order: dict[str, list[int]] = defaultdict(list)
            for value in got:
                sender, _, number = value.partition(":")
                order[sender].append(int(number))
            wrong = {sender: numbers for sender, numbers in order.items() if numbers != sorted(numbers)}
            self.check(not wrong, f"{receiver}: out of order: {wrong}")
            self.check(client.runs.get.sync(receiver).output == len(got), f"{receiver}: its count is wrong")
            self.stage.outcome.done["messages received"] += len(got)
            self.stage.outcome.done["generations"] += client.runs.get.sync(receiver).generation
