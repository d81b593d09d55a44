"""What can be done to schedules."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from mainspring.app.changes import columns
from mainspring.web.pages.schedules import read_spec
from mainspring.web.views import Body, Done, Id, Moment, Pages, Reason, Scene

pages = Pages()
OverlapName = Literal["skip", "buffer_one", "buffer_all", "cancel_other", "terminate_other", "allow_all"]


class OneSchedule(Body):
    """A schedule to act on, and why."""

    id: Id
    reason: Reason | None = None


class Pausing(OneSchedule):
    """A pause, until somebody ends it or until a time."""

    until: Moment | None = None


class Triggering(OneSchedule):
    """Acting now; `overlap` instead of the schedule's own policy."""

    overlap: OverlapName | None = None


class Skipping(OneSchedule):
    """A tick to leave out: the next one, or that of a nominal time."""

    when: Moment | None = None


class Backfilling(OneSchedule, kw_only=True):
    """A stretch of time, both ends included. `again`: also times that have a run already."""

    start: Moment
    end: Moment
    overlap: OverlapName | None = None
    again: bool = False


class StoppingBackfill(OneSchedule, kw_only=True):
    """A backfill to stop."""

    backfill: Annotated[str, Meta(min_length=1, max_length=600)]


class Editing(OneSchedule, kw_only=True):
    """A new spec. With the revision that was looked at, a change by somebody else in between is not overwritten."""

    spec: Annotated[str, Meta(min_length=2, max_length=100_000)]
    revision: int | None = None


def _of(body: OneSchedule) -> list[str]:
    return [body.id]


@pages.action("/schedules/pause", _of)
def pause(scene: Scene, body: Pausing) -> Done:
    """Let a schedule start nothing, until it is resumed or until a time."""
    scene.operations.schedules.pause(body.id, body.reason, body.until)
    until = f" until {body.until:%Y-%m-%d %H:%M %Z}" if body.until else ""
    return Done(f"{body.id} is paused{until}", {})


@pages.action("/schedules/resume", _of)
def resume(scene: Scene, body: OneSchedule) -> Done:
    """End the pause of a schedule."""
    scene.operations.schedules.resume(body.id, body.reason)
    return Done(f"{body.id} is active again", {})


@pages.action("/schedules/trigger", _of)
def trigger(scene: Scene, body: Triggering) -> Done:
    """Act now, whatever the clock says."""
    found = scene.operations.schedules.trigger(body.id, body.overlap)
    tick = (
        scene.redactor.tick(found, scene.operations.schedules.describe(body.id).workflow)
        if scene.redactor.hides
        else found
    )
    started = f"{body.id} was triggered: {tick.run}" if tick.run else f"{body.id} started nothing: {tick.reason}"
    return Done(started, {"run": tick.run, "outcome": str(tick.outcome), "reason": tick.reason}, tick.run)


@pages.action("/schedules/skip", _of)
def skip(scene: Scene, body: Skipping) -> Done:
    """Leave out the next tick, or that of a nominal time."""
    when = scene.operations.schedules.skip(body.id, body.when)
    return Done(f"{body.id} will leave out {when:%Y-%m-%d %H:%M:%S %Z}", {"when": when.isoformat()})


@pages.action("/schedules/unskip", _of)
def unskip(scene: Scene, body: Skipping) -> Done:
    """Take back the first tick that is to be left out, or that of a nominal time."""
    when = scene.operations.schedules.unskip(body.id, body.when)
    return Done(f"{body.id} will act on {when:%Y-%m-%d %H:%M:%S %Z} after all", {"when": when.isoformat()})


@pages.action("/schedules/backfill", _of)
def backfill(scene: Scene, body: Backfilling) -> Done:
    """Take all actions of a stretch of time."""
    made = scene.operations.schedules.backfill(body.id, body.start, body.end, overlap=body.overlap, again=body.again)
    return Done(f"{body.id} is being filled in, as backfill {made.id}", {"backfill": made.id})


@pages.action("/schedules/stop-backfill", _of)
def stop_backfill(scene: Scene, body: StoppingBackfill) -> Done:
    """Make no more ticks for a backfill, and drop those that wait."""
    made = scene.operations.schedules.stop_backfill(body.backfill)
    return Done(f"backfill {made.id} is {made.state}", {"backfill": made.id, "state": made.state})


@pages.action("/schedules/edit", _of)
def edit(scene: Scene, body: Editing) -> Done:
    """Give a schedule another spec, from now on."""
    values: dict[str, Any] = columns(body.id, {"spec": read_spec(body.spec)})
    info = scene.operations.schedules.update(body.id, values, revision=body.revision)
    return Done(f"{body.id} is now {info.description}", {"revision": info.revision})


@pages.action("/schedules/reset", _of)
def reset(scene: Scene, body: OneSchedule) -> Done:
    """Make a schedule what the code, or the crontab, declares: what was changed at run time is undone."""
    info = scene.operations.schedules.reset(body.id)
    return Done(f"{body.id} is as declared again: {info.description}", {"revision": info.revision})


@pages.action("/schedules/delete", _of, role="admin")
def delete(scene: Scene, body: OneSchedule) -> Done:
    """Forget a schedule and its ticks. Runs that it has started go on; those that wait for their turn are cancelled."""
    scene.operations.schedules.delete(body.id)
    return Done(f"{body.id} is deleted; its runs go on", {})
