"""A store whose values are sealed by a codec: what is above it sees values, what is below it sees what is stored."""

from __future__ import annotations

import dataclasses
import json
import logging
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec.structs import replace

from mainspring.errors import PayloadError
from mainspring.model.states import State
from mainspring.store.sealing.payloads import Payloads, is_sealed
from mainspring.store.sealing.records import Opener, Sealer, kept
from mainspring.store.writes import Finish, Recorded, run_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from mainspring.model.payloads import PayloadCodec
    from mainspring.model.runs import Claim, Ending, Run, Step
    from mainspring.model.schedules import Backfill, Schedule, Tick
    from mainspring.store.external.join import Inside
    from mainspring.store.messages import Message, Messages, Reading, Spoken
    from mainspring.store.protocol import Claimed, ClaimRequest, RunFilter, Store
    from mainspring.store.schedules import Decide, Passed, Plan, ScheduleFilter, ScheduleStore, Situation
    from mainspring.store.verbs.dashboard import Dashboard, Entry
    from mainspring.store.verbs.manage import Management
    from mainspring.store.verbs.scheduled_functions import FunctionFilter, FunctionRow, Functions
    from mainspring.store.writes import Op, Result

log = logging.getLogger("mainspring.store")
T = TypeVar("T")
_NOTED = [field for field in Finish.__struct_fields__ if field not in {"output", "error", "reason"}]
_LOG_MESSAGE = 4
"""The column of the text in a line of a run's log."""


def sealed_store(store: Store, codec: PayloadCodec) -> Store:
    """A store whose values are encoded and decoded by a codec."""
    payloads = Payloads(codec)
    store.transactions.use(payloads=payloads)
    return cast("Store", SealedStore(store, payloads))


def sealed_inside(inside: Inside, payloads: Payloads) -> Inside:
    """The nouns of a store inside a user's transaction, with the same done to their values."""
    return dataclasses.replace(
        inside,
        schedules=cast("ScheduleStore", SealedSchedules(inside.schedules, payloads)),
        functions=cast("Functions", SealedFunctions(inside.functions, payloads)),
        management=cast("Management", SealedManagement(inside.management, payloads)),
    )


class _Delegate:
    """Stands for something, of which it changes a few verbs."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class SealedStore(_Delegate):
    """See `mainspring.store.protocol.Store`."""

    _inner: Store

    def __init__(self, inner: Store, payloads: Payloads) -> None:
        super().__init__(inner)
        self._seal, self._open = Sealer(payloads), Opener(payloads)
        self.messages = SealedMessages(inner.messages, self._open)
        self.schedules = SealedSchedules(inner.schedules, payloads)
        self.management = SealedManagement(inner.management, payloads)
        self.functions = SealedFunctions(inner.functions, payloads)
        self.watching = SealedDashboard(inner.watching, payloads)

    def apply(self, ops: Sequence[Op], now: int) -> list[Result | Exception]:
        """What cannot be encoded comes back as its exception, with all later writes about the same run."""
        answers: list[Result | Exception | None] = [None] * len(ops)
        failed: dict[str, PayloadError] = {}
        sealed: list[tuple[int, Op]] = []
        for number, op in enumerate(ops):
            error = failed.get(run_of(op))
            if error is None:
                try:
                    sealed.append((number, self._seal.op(op)))
                    continue
                except PayloadError as caught:
                    error = failed[run_of(op)] = caught
            answers[number] = error
        found = self._inner.apply([op for _, op in sealed], now) if sealed else []
        for (number, copy), answer in zip(sealed, found, strict=True):
            op = ops[number]
            if isinstance(op, Finish):
                for field in _NOTED:  # what the store has noted in a write is for its maker
                    setattr(op, field, getattr(copy, field))
            if isinstance(answer, Recorded) and answer.ending is not None:
                answer.ending = self._open.ending(answer.ending)
            answers[number] = answer
        return cast("list[Result | Exception]", answers)

    def claim(self, request: ClaimRequest) -> Claimed:
        """Runs whose values cannot be decoded fail here, with the reason, and are not handed to the worker."""
        found = self._inner.claim(request)
        claims: list[Claim] = []
        failed: list[Op] = []
        for claim in found.claims:
            try:
                claims.append(self._open.claim(claim))
            except PayloadError as error:
                log.error("run %s fails, because %s", claim.run.id, error, exc_info=error.__cause__)  # noqa: TRY400
                failed.append(_failure(claim.run, request, error))
        if failed:
            self._inner.apply(failed, request.now)
        return replace(found, claims=claims) if found.claims else found

    def endings(self, ids: Iterable[str]) -> dict[str, Ending | None]:
        found = self._inner.endings(ids)
        return {run: None if ending is None else self._open.ending(ending) for run, ending in found.items()}

    def run(self, run_id: str) -> Run | None:
        found = self._inner.run(run_id)
        return None if found is None else self._open.run(found)

    def runs(self, wanted: RunFilter) -> list[Run]:
        return [self._open.run(run) for run in self._inner.runs(wanted)]

    def steps(self, run_id: str) -> list[Step]:
        return [self._open.step(step) for step in self._inner.steps(run_id)]

    def step(self, run_id: str, position: str) -> Step | None:
        found = self._inner.step(run_id, position)
        return None if found is None else self._open.step(found)


def _failure(run: Run, request: ClaimRequest, error: PayloadError) -> Finish:
    record = {"type": "mainspring.errors:PayloadError", "message": str(error), "args": [str(error)]}
    return Finish(
        request.worker,
        run.id,
        run.epoch,
        State.FAILED,
        request.at_present().now,
        reason=f"PayloadError: {error}"[:500],
        error=json.dumps(record, ensure_ascii=False),
        schedule=run.schedule,
    )


class SealedMessages(_Delegate):
    """See `mainspring.store.messages.Messages`."""

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

    def streams(self, run: str, limit: int) -> list[Spoken]:
        return [self._open.spoken(each) for each in self._inner.streams(run, limit)]

    def received(self, run: str) -> list[Message]:
        return [self._open.any_message(each) for each in self._inner.received(run)]


class SealedSchedules(_Delegate):
    """See `mainspring.store.schedules.ScheduleStore`."""

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


class SealedManagement(_Delegate):
    """See `mainspring.store.verbs.manage.Management`. Exported records stay as they are stored."""

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


class SealedDashboard(_Delegate):
    """See `mainspring.store.verbs.dashboard.Dashboard`. What was done by operators was often done with values."""

    _inner: Dashboard

    def __init__(self, inner: Dashboard, payloads: Payloads) -> None:
        super().__init__(inner)
        self._payloads = payloads

    def note(self, entry: Entry) -> None:
        self._inner.note(replace(entry, details=self._payloads.seal(entry.details, f"audit entry {entry.id}")))

    def came_of_it(self, entry: str, outcome: str) -> None:
        self._inner.came_of_it(entry, self._payloads.seal(outcome, f"audit entry {entry}"))

    def entries(self, before: str | None, limit: int) -> list[Entry]:
        return [self._opened(entry) for entry in self._inner.entries(before, limit)]

    def _opened(self, entry: Entry) -> Entry:
        what = f"audit entry {entry.id}"
        details = kept(self._payloads.open, entry.details, what) or entry.details
        return replace(entry, details=details, outcome=kept(self._payloads.open, entry.outcome, what))


class SealedFunctions(_Delegate):
    """See `mainspring.store.verbs.scheduled_functions.Functions`."""

    _inner: Functions

    def __init__(self, inner: Functions, payloads: Payloads) -> None:
        super().__init__(inner)
        self._open = Opener(payloads)

    def get(self, function_id: str) -> FunctionRow | None:
        found = self._inner.get(function_id)
        return None if found is None else self._open.function(found)

    def page(self, wanted: FunctionFilter) -> list[FunctionRow]:
        return [self._open.function(row) for row in self._inner.page(wanted)]
