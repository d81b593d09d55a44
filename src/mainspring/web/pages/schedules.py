"""Schedules, one schedule, previews of changes, and the actions on schedules."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, cast

from msgspec import UNSET, Meta, Struct, UnsetType, field

from mainspring.app.declarations.schedules_json import changes_of, definition_of
from mainspring.errors import InvalidInput
from mainspring.model.clock import to_datetime
from mainspring.model.schedules import Overlap, TickOutcome
from mainspring.operations.filters import SCHEDULE_FILTERS
from mainspring.operations.schedules.actions import SCHEDULE_ACTIONS
from mainspring.operations.schedules.info import BackfillInfo, ScheduleDescription, ScheduleInfo, TickInfo
from mainspring.operations.schedules.pictures import Day, ScheduleCard
from mainspring.recurrence import Spec, lint
from mainspring.recurrence.spec import stored_spec
from mainspring.web.requests import read_value
from mainspring.web.views import After, Body, Id, Moment, Pages, PageSize, Reason, Scene, query_of

pages = Pages()
SpecText = Annotated[str, Meta(max_length=100_000, description="The spec as JSON, as `Spec.from_dict` takes it.")]
CronText = Annotated[str, Meta(max_length=1_000, description="A cron expression, such as 0 9 * * mon-fri.")]
ZoneText = Annotated[str, Meta(max_length=100, description="The time zone of the cron expression; UTC.")]
_LOOK_AHEAD = 10
_MOST_PREVIEWED = 500


ScheduleQuery = query_of(
    "ScheduleQuery",
    {name: each for name, each in SCHEDULE_FILTERS.items() if name != "attributes"},
    ("after", After | None, None),
    ("limit", Annotated[int, Meta(ge=1, le=100)], 20),
    doc="Which schedules.",
)
"""The filters of schedules as query parameters."""


class ScheduleList(Struct):
    """A page of schedules, by id. Pass `next` as `after` for the next page; null is the last page."""

    schedules: list[ScheduleCard]
    next: str | None
    known: list[str]
    """Functions that a schedule can start."""


class TickQuery(Struct):
    """The id of a schedule, and the page of its ticks."""

    id: Id
    outcome: list[TickOutcome] = field(default_factory=list[TickOutcome])
    after: After | None = None
    limit: PageSize = 50


class ScheduleAnswer(Struct):
    """A schedule with its ticks, days and warnings."""

    schedule: ScheduleDescription
    timezone: str
    ticks: list[TickInfo]
    next: str | None
    """Pass as `after` for older ticks; null: there are none."""
    year: list[Day]
    """Half a year of past days and half a year of future ones, in the schedule's own zone."""
    backfills: list[BackfillInfo]
    warnings: list[str]
    """Parts of the spec that may not be meant as they are written."""
    known: list[str]
    """Functions that a schedule can start."""


class SpecQuery(Struct):
    """A spec to preview, as JSON, or a cron expression with its zone; with a schedule, compared with its own spec."""

    spec: SpecText | None = None
    cron: CronText | None = None
    timezone: ZoneText | None = None
    id: Id | None = None


class SpecPreview(Struct):
    """The times of a spec."""

    description: str
    timezone: str
    upcoming: list[datetime]
    gone: list[datetime]
    """The next times of the schedule that this spec does not have."""
    warnings: list[str]


class BackfillQuery(Struct):
    """A span of time to preview a backfill of."""

    id: Id
    start: Moment
    end: Moment
    again: bool = False


class BackfillPreview(Struct):
    """The runs that a backfill would start."""

    times: list[datetime]
    more: bool
    """Whether there are more than are listed."""
    skipped: int
    """The number of ticks that a backfill leaves out: they have a run, wait for one, or are still due."""


@pages.view("/schedules", "schedules.html", query=ScheduleQuery)
def schedules(scene: Scene, query: Any) -> ScheduleList:
    """A page of schedules, each with its next times, its last outcome and its last thirty days."""
    filters: Any = {name: getattr(query, name) for name in SCHEDULE_FILTERS if hasattr(query, name)}
    found = scene.operations.pictures.cards(after=query.after, limit=query.limit, **filters)
    shown = [scene.redactor.card(card) for card in found.cards]
    return ScheduleList(shown, found.next, scene.operations.runs.known()["workflow"])


@pages.view("/schedules/preview", "spec_preview.html")
def preview_spec(scene: Scene, query: SpecQuery) -> SpecPreview:
    """The times of a spec: in words and as a list. Changes nothing."""
    spec = spec_of_form(query.spec, query.cron, query.timezone)
    now = to_datetime(scene.now)
    times = spec.upcoming(now, _LOOK_AHEAD)
    gone: list[datetime] = []
    if query.id is not None:
        before = scene.operations.schedules.describe(query.id).upcoming
        gone = [when for when in before if not spec.matches(when)]
    return SpecPreview(spec.describe(), spec.timezone, times, gone, [warning.message for warning in lint(spec, now)])


@pages.view("/schedules/backfill-preview", "backfill_preview.html")
def preview_backfill(scene: Scene, query: BackfillQuery) -> BackfillPreview:
    """The ticks that a backfill would start. Changes nothing."""
    if query.end < query.start:
        raise InvalidInput("the end is before the start")
    operations = scene.operations
    found = operations.schedules.describe(query.id)
    spec = stored_spec(found.spec)
    times: list[datetime] = []
    moment = spec.next(query.start - timedelta(seconds=1))
    while moment is not None and moment <= query.end and len(times) <= _MOST_PREVIEWED:
        times.append(moment)
        moment = spec.next(moment)
    listed = times[:_MOST_PREVIEWED]
    there: set[datetime] = set()
    if listed and not query.again:
        page = operations.schedules.ticks(query.id, since=listed[0], until=listed[-1], limit=2 * _MOST_PREVIEWED)
        taken = [tick for tick in page.ticks if tick.run is not None or tick.outcome.waiting]
        there = {tick.nominal for tick in taken if tick.source != "trigger"}
        if not found.paused:  # a tick that only waits for its jitter starts on its own
            there |= {when for when in found.upcoming if when <= to_datetime(scene.now)}
    left = [when for when in listed if when not in there]
    return BackfillPreview(left, len(times) > _MOST_PREVIEWED, len(listed) - len(left))


@pages.view("/schedules/{id:path}", "schedule.html")
def schedule(scene: Scene, query: TickQuery) -> ScheduleAnswer:
    """One schedule: its definition, its ticks with their reasons, a year of days."""
    operations = scene.operations
    found = operations.schedules.describe(query.id)
    page = operations.pictures.ticks(query.id, outcome=tuple(query.outcome), after=query.after, limit=query.limit)
    spec = stored_spec(found.spec)
    return ScheduleAnswer(
        scene.redactor.schedule(found),
        spec.timezone,
        [scene.redactor.tick(tick, found.workflow) for tick in page.ticks],
        page.next,
        operations.pictures.year(query.id),
        operations.schedules.backfills(query.id)[:5],
        [warning.message for warning in lint(spec, to_datetime(scene.now))],
        operations.runs.known()["workflow"],
    )


def spec_of_form(spec: str | dict[str, Any] | None, cron: str | None, timezone: str | None) -> Spec:
    """Return the spec of a form: JSON, or a cron expression."""
    if bool(spec) == bool(cron):
        raise InvalidInput("when? Give a cron expression, or a spec as JSON, not both")
    if spec:
        return read_spec(spec) if isinstance(spec, str) else Spec.from_dict(spec)
    return Spec.from_dict({"cron": [cron], **({"timezone": timezone} if timezone else {})})


def read_spec(text: str) -> Spec:
    """Decode a spec as typed. Raise one error that lists everything that is wrong with it."""
    given = read_value(text, "the spec")
    if not isinstance(given, dict):
        raise InvalidInput('the spec is a JSON object, such as {"cron": ["0 9 * * mon-fri"]}')
    return Spec.from_dict(cast("dict[str, Any]", given))


PolicyText = Annotated[
    str, Meta(max_length=10_000, description="More of the policy, as JSON: maxRunning, coalesce, limit, bufferLimit.")
]


class OneSchedule(Body):
    """A schedule to act on, and the reason."""

    id: Id
    reason: Reason | None = None


class Pausing(OneSchedule):
    """A pause, until it is resumed or until a time."""

    until: Moment | None = None


class Triggering(OneSchedule):
    """A run to start now. `overlap` overrides the schedule's own policy."""

    overlap: Overlap | None = None


class Skipping(OneSchedule):
    """A tick to skip: the next one, or that of a nominal time."""

    when: Moment | None = None


class Backfilling(OneSchedule, kw_only=True):
    """A span of time, both ends included. `again`: also ticks that already have a run."""

    start: Moment
    end: Moment
    overlap: Overlap | None = None
    again: bool = False


class StoppingBackfill(OneSchedule, kw_only=True):
    """A backfill to stop."""

    backfill: Annotated[str, Meta(min_length=1, max_length=600)]


class Described(OneSchedule, kw_only=True):
    """The parts of a schedule. Each may be left out."""

    spec: SpecText | dict[str, Any] | None = None
    """An object, or the same as text, as forms send it."""
    cron: CronText | None = None
    timezone: ZoneText | None = None
    workflow: Annotated[str, Meta(min_length=1, max_length=600)] | None = None
    input: dict[str, Any] | UnsetType = UNSET
    """The arguments of the function, by name."""
    overlap: Overlap | None = None
    catchup: Annotated[str, Meta(max_length=100, description="How late a tick may be, such as 10m.")] | None = None
    pause_on_failure: bool | None = None
    policy: PolicyText | dict[str, Any] | None = None
    note: Annotated[str, Meta(max_length=10000)] | UnsetType | None = UNSET

    def parts(self) -> dict[str, Any]:
        """Return the given parts in the format of a file of schedules."""
        found: dict[str, Any] = {}
        if self.spec or self.cron:
            found["spec"] = spec_of_form(self.spec, self.cron, self.timezone).to_dict()
        policy: dict[str, Any] = {
            "overlap": self.overlap,
            "catchup": self.catchup,
            "pauseOnFailure": self.pause_on_failure,
        }
        if self.policy:
            given = read_value(self.policy, "the policy") if isinstance(self.policy, str) else self.policy
            if not isinstance(given, dict):
                raise InvalidInput('the policy is a JSON object, such as {"maxRunning": 2}')
            policy |= cast("dict[str, Any]", given)
        if named := {name: value for name, value in policy.items() if value is not None}:
            found["policy"] = named
        if self.workflow is not None:
            found["workflow"] = self.workflow
        for name in ("input", "note"):
            if (value := getattr(self, name)) is not UNSET:
                found[name] = value
        return found


class Creating(Described, kw_only=True):
    """A new schedule: `workflow`, and `spec` or `cron`, are required."""

    paused: bool = False
    trigger: bool = False


class Updating(Described, kw_only=True):
    """Parts to change. With the `revision` that was read, a change by another operator since then is not overwritten."""

    revision: int | None = None


def _of(body: OneSchedule) -> list[str]:
    return [body.id]


@pages.action(SCHEDULE_ACTIONS["pause"], _of)
def pause(scene: Scene, body: Pausing) -> ScheduleInfo:
    return scene.operations.schedules.pause(body.id, body.reason, body.until)


@pages.action(SCHEDULE_ACTIONS["resume"], _of)
def resume(scene: Scene, body: OneSchedule) -> ScheduleInfo:
    return scene.operations.schedules.resume(body.id, body.reason)


@pages.action(SCHEDULE_ACTIONS["trigger"], _of)
def trigger(scene: Scene, body: Triggering) -> TickInfo:
    tick = scene.operations.schedules.trigger(body.id, body.overlap)
    if scene.redactor.hides:
        tick = scene.redactor.tick(tick, scene.operations.schedules.describe(body.id).workflow)
    return tick


@pages.action(SCHEDULE_ACTIONS["skip"], _of)
def skip(scene: Scene, body: Skipping) -> datetime:
    return scene.operations.schedules.skip(body.id, body.when)


@pages.action(SCHEDULE_ACTIONS["unskip"], _of)
def unskip(scene: Scene, body: Skipping) -> datetime:
    return scene.operations.schedules.unskip(body.id, body.when)


@pages.action(SCHEDULE_ACTIONS["backfill"], _of)
def backfill(scene: Scene, body: Backfilling) -> BackfillInfo:
    return scene.operations.schedules.backfill(body.id, body.start, body.end, overlap=body.overlap, again=body.again)


@pages.action(SCHEDULE_ACTIONS["stop_backfill"], _of)
def stop_backfill(scene: Scene, body: StoppingBackfill) -> BackfillInfo:
    return scene.operations.schedules.stop_backfill(body.backfill)


@pages.action(SCHEDULE_ACTIONS["create"], _of)
def create(scene: Scene, body: Creating) -> ScheduleInfo:
    definition = definition_of({"id": body.id, **body.parts()})
    return scene.operations.schedules.create(definition, paused=body.paused, trigger=body.trigger)


@pages.action(SCHEDULE_ACTIONS["update"], _of)
def update(scene: Scene, body: Updating) -> ScheduleInfo:
    present = scene.operations.schedules.describe(body.id)
    named = {"spec": present.spec, "policy": present.policy, "action": present.action}
    values = changes_of(body.parts(), named, body.id)
    if not values:
        raise InvalidInput(
            "nothing to change: give at least one of spec, cron, workflow, input, overlap, catchup, note"
        )
    revision = body.revision or present.revision
    return scene.operations.schedules.update(body.id, values, revision=revision)


@pages.action(SCHEDULE_ACTIONS["reset"], _of)
def reset(scene: Scene, body: OneSchedule) -> ScheduleInfo:
    return scene.operations.schedules.reset(body.id)


@pages.action(SCHEDULE_ACTIONS["delete"], _of)
def delete(scene: Scene, body: OneSchedule) -> None:
    scene.operations.schedules.delete(body.id)
