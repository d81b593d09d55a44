"""The parts of a store with their values sealed. Each overrides a few verbs of the part that it wraps."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from mainspring.errors import PayloadError
from mainspring.store.sealing.payloads import is_sealed
from mainspring.store.sealing.records import Opener, Sealer, kept

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from mainspring.model.schedules import Backfill, Schedule, Tick
    from mainspring.model.states import State
    from mainspring.store.messages import Message, Messages, PublishedValue, Reading
    from mainspring.store.schedules import Decide, Passed, Plan, ScheduleFilter, ScheduleStore, Situation
    from mainspring.store.sealing.payloads import Payloads
    from mainspring.store.verbs.dashboard import Dashboard, Entry
    from mainspring.store.verbs.manage import Management
    from mainspring.store.verbs.scheduled_functions import FunctionFilter, FunctionRow, Functions

_LOG_MESSAGE = 4
"""The column of the text in a line of a run's log."""


class Delegate:
    """Wraps an object and overrides a few of its methods."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class SealedMessages(Delegate):
    """Messages with sealed values, see `mainspring.store.messages.Messages`."""

    _inner: Messages

    def __init__(self, inner: Messages, opener: Opener) -> None:
        super().__init__(inner)
        self._open = opener

    def next(self, run: str, topic: str, *, question: bool, skip: Collection[int]) -> Message | None:
        return self._open.message(self._inner.next(run, topic, question=question, skip=skip))

    def asked(self, run: str, key: str) -> tuple[Message | None, State | None]:
        message, state = self._inner.asked(run, key)
        return self._open.message(message), state

    def event(self, run: str, key: str) -> Reading:
        return self._open.value(self._inner.event(run, key))

    def events(self, run: str) -> Reading:
        return self._open.value(self._inner.events(run))

    def stream(self, run: str, key: str, offset: int, limit: int) -> Reading:
        return self._open.value(self._inner.stream(run, key, offset, limit))

    def streams(self, run: str, limit: int) -> list[PublishedValue]:
        return [self._open.spoken(each) for each in self._inner.streams(run, limit)]

    def received(self, run: str) -> list[Message]:
        return [self._open.any_message(each) for each in self._inner.received(run)]


class SealedSchedules(Delegate):
    """Schedules with sealed values, see `mainspring.store.schedules.ScheduleStore`."""

    _inner: ScheduleStore

    def __init__(self, inner: ScheduleStore, payloads: Payloads) -> None:
        super().__init__(inner)
        self._seal, self._open = Sealer(payloads), Opener(payloads)

    def create(
        self, schedules: Sequence[Schedule], ticks: Sequence[Tick] = (), backfills: Sequence[Backfill] = ()
    ) -> list[str]:
        return self._inner.create([self._seal.schedule(each) for each in schedules], ticks, backfills)

    def get(self, schedule: str) -> Schedule | None:
        found = self._inner.get(schedule)
        return None if found is None else self._open.schedule(found)

    def page(self, wanted: ScheduleFilter) -> list[Schedule]:
        return [self._open.schedule(each) for each in self._inner.page(wanted)]

    def situation(self, schedule: str) -> Situation | None:
        found = self._inner.situation(schedule)
        return None if found is None else self._open.situation(found)

    def change(self, schedule: str, decide: Decide, now: int) -> Plan | None:
        plans: list[Plan] = []
        made = self._inner.change(schedule, self._sealed(decide, plans.append), now)
        return None if made is None else plans[-1]

    def fire(
        self, now: int, limit: int, decide: Decide, expect: Callable[[Sequence[str]], None] | None = None
    ) -> Passed:
        return self._inner.fire(now, limit, self._sealed(decide, lambda _: None), expect)

    def _sealed(self, decide: Decide, note: Callable[[Plan], None]) -> Decide:
        def decided(situation: Situation) -> Plan:
            plan = decide(self._open.situation(situation))
            note(plan)
            return self._seal.plan(plan)

        return decided


class SealedManagement(Delegate):
    """Operator verbs with sealed values, see `mainspring.store.verbs.manage.Management`. Exported records stay as stored."""

    _inner: Management

    def __init__(self, inner: Management, payloads: Payloads) -> None:
        super().__init__(inner)
        self._payloads = payloads

    def complete(self, ids: Sequence[str], output: Callable[[str], str], reason: str, now: int) -> dict[str, bool]:
        def sealed(workflow: str) -> str:
            return self._payloads.seal(output(workflow), f"a result for {workflow}")

        return self._inner.complete(ids, sealed, reason, now)

    def keep_logs(self, lines: Sequence[dict[str, Any]], now: int) -> None:
        sealed = [{**line, "message": self._payloads.seal(json.dumps(line["message"]), "a log line")} for line in lines]
        self._inner.keep_logs(sealed, now)

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


class SealedDashboard(Delegate):
    """The dashboard with sealed values, see `mainspring.store.verbs.dashboard.Dashboard`. Recorded actions often contain values."""

    _inner: Dashboard

    def __init__(self, inner: Dashboard, payloads: Payloads) -> None:
        super().__init__(inner)
        self._payloads = payloads

    def note(self, entry: Entry) -> None:
        self._inner.note(replace(entry, details=self._payloads.seal(entry.details, f"audit entry {entry.id}")))

    def record_outcome(self, entry: str, outcome: str) -> None:
        self._inner.record_outcome(entry, self._payloads.seal(outcome, f"audit entry {entry}"))

    def entries(self, before: str | None, limit: int) -> list[Entry]:
        return [self._opened(entry) for entry in self._inner.entries(before, limit)]

    def _opened(self, entry: Entry) -> Entry:
        what = f"audit entry {entry.id}"
        details = kept(self._payloads.open, entry.details, what) or entry.details
        return replace(entry, details=details, outcome=kept(self._payloads.open, entry.outcome, what))


class SealedFunctions(Delegate):
    """Scheduled functions with sealed values, see `mainspring.store.verbs.scheduled_functions.Functions`."""

    _inner: Functions

    def __init__(self, inner: Functions, payloads: Payloads) -> None:
        super().__init__(inner)
        self._open = Opener(payloads)

    def get(self, function_id: str) -> FunctionRow | None:
        found = self._inner.get(function_id)
        return None if found is None else self._open.function(found)

    def page(self, wanted: FunctionFilter) -> list[FunctionRow]:
        return [self._open.function(row) for row in self._inner.page(wanted)]
