"""The actions on schedules."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, cast

from msgspec import UNSET, Meta, UnsetType

from mainspring.app.declarations.schedules_json import changes_of, definition_of
from mainspring.errors import InvalidInput
from mainspring.operations.schedules.actions import SCHEDULE_ACTIONS
from mainspring.operations.schedules.info import BackfillInfo, ScheduleInfo, TickInfo
from mainspring.web.pages.schedules import CronText, SpecText, ZoneText, spec_of_form
from mainspring.web.requests import read_value
from mainspring.web.views import Body, Id, Moment, Pages, Reason, Scene

pages = Pages()
OverlapName = Literal["skip", "buffer_one", "buffer_all", "cancel_other", "terminate_other", "allow_all"]


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

    overlap: OverlapName | None = None


class Skipping(OneSchedule):
    """A tick to skip: the next one, or that of a nominal time."""

    when: Moment | None = None


class Backfilling(OneSchedule, kw_only=True):
    """A span of time, both ends included. `again`: also ticks that already have a run."""

    start: Moment
    end: Moment
    overlap: OverlapName | None = None
    again: bool = False


class StoppingBackfill(OneSchedule, kw_only=True):
    """A backfill to stop."""

    backfill: Annotated[str, Meta(min_length=1, max_length=600)]


class Described(OneSchedule, kw_only=True):
    """The parts of a schedule. Each may be left out."""

    spec: SpecText | None = None
    cron: CronText | None = None
    timezone: ZoneText | None = None
    workflow: Annotated[str, Meta(min_length=1, max_length=600)] | None = None
    input: dict[str, Any] | UnsetType = UNSET
    """The arguments of the function, by name."""
    overlap: OverlapName | None = None
    catchup: Annotated[str, Meta(max_length=100, description="How late a tick may be, such as 10m.")] | None = None
    pause_on_failure: bool | None = None
    policy: PolicyText | None = None
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
            given = read_value(self.policy, "the policy")
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
