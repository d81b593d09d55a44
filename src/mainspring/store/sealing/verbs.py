"""The verbs of a store that seal what they store and open what they return, part by part."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mainspring.errors import PayloadError
from mainspring.store.sealing.payloads import is_sealed
from mainspring.store.sealing.records import opened, opened_exactly, sealed
from mainspring.store.verbs.export import LOG_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mainspring.model.schedules import Backfill, Schedule, Tick
    from mainspring.store.schedules import Decide, Passed, Plan, SetAside, Situation
    from mainspring.store.sealing.payloads import Payloads
    from mainspring.store.verbs.audit import Audit, Entry
    from mainspring.store.verbs.manage import Management
    from mainspring.store.verbs.schedules import Schedules

_LOG_MESSAGE = LOG_COLUMNS.index("message")
_OPENED: Mapping[str, Mapping[str, Callable[[Payloads, Any], Any]]] = {
    "store": dict.fromkeys(("endings", "run", "runs", "steps", "step"), opened),
    "messages": {
        **dict.fromkeys(("next", "asked", "event", "events", "stream"), opened_exactly),
        **dict.fromkeys(("streams", "received"), opened),
    },
    "functions": dict.fromkeys(("get", "page"), opened),
    "schedules": dict.fromkeys(("get", "page", "situation"), opened),
    "management": {},
    "audit": {"entries": opened},
}
"""By part of a store: the verbs whose answers have values, and how to open them."""


class Sealed:
    """A part of a store. Its verbs are those of the part itself, unless they are overridden. The answers of `verbs` are opened."""

    def __init__(self, inner: Any, payloads: Payloads, verbs: Mapping[str, Callable[[Payloads, Any], Any]]) -> None:
        self._inner = inner
        self._payloads = payloads
        self._opened = verbs

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        how = self._opened.get(name)
        if how is None:
            return found

        def opening(*args: Any, **kwargs: Any) -> Any:
            return how(self._payloads, found(*args, **kwargs))

        return opening


class SealedSchedules(Sealed):
    """See `mainspring.store.verbs.schedules.Schedules`."""

    _inner: Schedules

    def create(
        self, schedules: Sequence[Schedule], ticks: Sequence[Tick] = (), backfills: Sequence[Backfill] = ()
    ) -> list[str]:
        return self._inner.create(sealed(self._payloads, list(schedules)), ticks, backfills)

    def change(self, schedule: str, decide: Decide, now: int) -> Plan | None:
        plans: list[Plan] = []
        made = self._inner.change(schedule, self._sealed(decide, plans.append), now)
        return None if made is None else plans[-1]

    def fire(
        self,
        now: int,
        limit: int,
        decide: Decide,
        expect: Callable[[Sequence[str]], None] | None = None,
        set_aside: SetAside | None = None,
    ) -> Passed:
        return self._inner.fire(
            now,
            limit,
            self._sealed(decide, lambda _: None),
            expect,
            None if set_aside is None else self._sealed_aside(set_aside),
        )

    def _sealed_aside(self, set_aside: SetAside) -> SetAside:
        return lambda situation, error: self._sealed(lambda each: set_aside(each, error), lambda _: None)(situation)

    def _sealed(self, decide: Decide, note: Callable[[Plan], None]) -> Decide:
        def decided(situation: Situation) -> Plan:
            plan = decide(opened(self._payloads, situation))
            note(plan)
            return sealed(self._payloads, plan)

        return decided


class SealedManagement(Sealed):
    """See `mainspring.store.verbs.manage.Management`. Exported records stay as stored."""

    _inner: Management

    def complete(self, ids: Sequence[str], output: Callable[[str], str], reason: str, now: int) -> dict[str, bool]:
        def stored(workflow: str) -> str:
            return self._payloads.seal(output(workflow), f"a result for {workflow}")

        return self._inner.complete(ids, stored, reason, now)

    def keep_logs(self, lines: Sequence[dict[str, Any]], now: int) -> None:
        stored = [{**line, "message": self._payloads.seal(json.dumps(line["message"]), "a log line")} for line in lines]
        self._inner.keep_logs(stored, now)

    def logs(self, run_id: str, limit: int) -> list[tuple[Any, ...]]:
        return [
            (*row[:_LOG_MESSAGE], self._line(row[_LOG_MESSAGE]), *row[_LOG_MESSAGE + 1 :])
            for row in self._inner.logs(run_id, limit)
        ]

    def _line(self, text: str) -> str:
        if not is_sealed(text):
            return text
        try:
            line: str = json.loads(self._payloads.open(text, "a log line"))
        except PayloadError:
            return text
        return line


class SealedAudit(Sealed):
    """See `mainspring.store.verbs.audit.Audit`."""

    _inner: Audit

    def note(self, entry: Entry) -> None:
        self._inner.note(sealed(self._payloads, entry))

    def record_outcome(self, entry: str, outcome: str) -> None:
        self._inner.record_outcome(entry, self._payloads.seal(outcome, f"audit entry {entry}"))


class SealedVerbs(Sealed):
    """See `mainspring.store.sql_store.SqlStore`: the verbs of a store, or of a user's transaction on it."""

    def __init__(self, inner: Any, payloads: Payloads) -> None:
        super().__init__(inner, payloads, _OPENED["store"])
        self.messages = Sealed(inner.messages, payloads, _OPENED["messages"])
        self.schedules = SealedSchedules(inner.schedules, payloads, _OPENED["schedules"])
        self.management = SealedManagement(inner.management, payloads, _OPENED["management"])
        self.functions = Sealed(inner.functions, payloads, _OPENED["functions"])
        self.audit = SealedAudit(inner.audit, payloads, _OPENED["audit"])
