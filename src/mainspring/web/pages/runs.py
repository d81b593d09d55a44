"""Runs, one run, and what can be done to them."""

from __future__ import annotations

import json
import shlex
from typing import Annotated, Any, Literal, cast

from msgspec import Meta, Struct, field

from mainspring.errors import InvalidInput
from mainspring.model.clock import SECOND, to_micros
from mainspring.model.states import State
from mainspring.operations.run_lists import RunGlance
from mainspring.operations.runs import LogLine, RunInfo, StepInfo
from mainspring.operations.talk import Conversation
from mainspring.recurrence.durations import parse_duration
from mainspring.store.by_hand import Move
from mainspring.web.reading import read_value
from mainspring.web.views import After, Body, Done, Id, Moment, Pages, PageSize, Reason, Scene
from mainspring.web.words import WHERE_REPLAY_AGREES

pages = Pages()
MOST_CHILDREN = 50
MOST_LINES = 300
Text = Annotated[str, Meta(max_length=600)]
StateName = Literal[
    "scheduled", "queued", "running", "waiting", "cancelling", "succeeded", "failed", "cancelled"
]  # as in State; a literal describes itself in the API


class RunQuery(Struct):
    """Which runs."""

    state: list[StateName] = field(default_factory=list[StateName])
    workflow: list[Text] = field(default_factory=list[Text])
    id_prefix: list[Text] = field(default_factory=list[Text])
    queue: list[Text] = field(default_factory=list[Text])
    schedule: list[Text] = field(default_factory=list[Text])
    version: list[Text] = field(default_factory=list[Text])
    parent: list[Id] = field(default_factory=list[Id])
    forked_from: list[Id] = field(default_factory=list[Id])
    attributes: (
        Annotated[str, Meta(max_length=2_000, description="A JSON object: runs that have all of it.")] | None
    ) = None
    stranded: bool | None = None
    created_after: Moment | None = None
    created_before: Moment | None = None
    after: After | None = None
    limit: PageSize = 50


class RunList(Struct):
    """A page of runs, newest first, without their values. Hand `next` back as `after`; null is the last page."""

    runs: list[RunGlance]
    next: str | None
    further: bool = False
    """Only so many runs were looked at, and the next page goes on from there: this one may be short, or empty."""


class RunId(Struct):
    """Which run."""

    id: Id


class RunAnswer(Struct):
    """All there is to know of a run."""

    run: RunInfo
    steps: list[StepInfo]
    children: list[RunGlance]
    """Its latest children."""
    forks: list[RunGlance]
    """The latest runs that were forked from it."""
    conversation: Conversation
    logs: list[LogLine]
    """The last lines that it logged, if they are kept (setting keep_logs)."""
    helps: list[str]
    """If it is stranded: the commands that help, the careful one first."""


class Chosen(Body):
    """Runs to act on, and why."""

    ids: Annotated[list[Id], Meta(min_length=1, max_length=500)]
    reason: Reason | None = None


class Completing(Chosen):
    """What the runs are to have returned."""

    result: Annotated[str, Meta(max_length=100_000, description="JSON; null if it is not given.")] = "null"


class Rescheduling(Chosen):
    """When the runs are to begin: so long from now, or at a time. Neither: at once."""

    after: Annotated[str, Meta(max_length=100, description="Such as 1h30m, or a number of seconds.")] | None = None
    at: Moment | None = None
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] | None = None


class Forking(Chosen):
    """Where the new runs go on: at a step (its position or name), at the beginning, or else at what ended the old ones."""

    step: Text | None = None
    beginning: bool = False
    version: Text | None = None


@pages.view("/runs", "runs.html")
def runs(scene: Scene, query: RunQuery) -> RunList:
    """A page of runs, newest first."""
    found = scene.operations.runs.glance(
        state=query.state,
        workflow=query.workflow,
        id_prefix=query.id_prefix,
        queue=query.queue,
        schedule=query.schedule,
        version=query.version,
        parent=query.parent,
        forked_from=query.forked_from,
        attributes=_attributes(scene, query),
        stranded=query.stranded,
        created_after=query.created_after,
        created_before=query.created_before,
        after=query.after,
        limit=query.limit,
    )
    return RunList([scene.redactor.glance(run) for run in found.runs], found.next, found.further)


@pages.view("/runs/{id:path}", "run.html")
def run(scene: Scene, query: RunId) -> RunAnswer:
    """One run: its steps, what it was told and has said, its children."""
    operations = scene.operations
    found = operations.runs.get(query.id)
    children = operations.runs.glance(parent=query.id, limit=MOST_CHILDREN).runs
    forks = operations.runs.glance(forked_from=query.id, limit=MOST_CHILDREN).runs
    return RunAnswer(
        scene.redactor.run(found),
        [scene.redactor.step(step, found) for step in operations.runs.steps(query.id)],
        [scene.redactor.glance(child) for child in children],
        [scene.redactor.glance(fork) for fork in forks],
        scene.redactor.conversation(operations.conversation(query.id), found),
        [scene.redactor.line(line, found) for line in operations.runs.logs(query.id, MOST_LINES)],
        [WHERE_REPLAY_AGREES, f"mainspring versions force {shlex.quote(found.id)}"] if found.stranded else [],
    )


@pages.action("/runs/cancel", lambda body: body.ids)
def cancel(scene: Scene, body: Chosen) -> Done:
    """Ask runs and their children to stop before their next step."""
    return _counted(scene, "cancelled", scene.operations.runs.cancel(body.ids, body.reason))


@pages.action("/runs/terminate", lambda body: body.ids)
def terminate(scene: Scene, body: Chosen) -> Done:
    """End runs and their children at once, wherever they are."""
    return _counted(scene, "terminated", scene.operations.runs.terminate(body.ids, body.reason))


@pages.action("/runs/retry", lambda body: body.ids)
def retry(scene: Scene, body: Chosen) -> Done:
    """Let failed runs go on from what they have achieved."""
    return _counted(scene, "queued again", scene.operations.runs.retry(body.ids), "had not failed")


@pages.action("/runs/resume", lambda body: body.ids)
def resume(scene: Scene, body: Chosen) -> Done:
    """Let cancelled runs, and those that were recovered too often, go on where they stopped."""
    return _counted(scene, "queued again", scene.operations.runs.resume(body.ids), "had nothing to resume")


@pages.action("/runs/complete", lambda body: body.ids)
def complete(scene: Scene, body: Completing) -> Done:
    """End runs that no worker owns, or that have failed, as if they had succeeded."""
    try:
        text = json.dumps(read_value(body.result, "the result"), ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise InvalidInput(f"the result is not JSON: {error}") from None
    done = scene.operations.runs.complete(body.ids, lambda _: text, body.reason)
    return _counted(scene, "completed", done, "had ended before, or is owned by a worker")


@pages.action("/runs/fail", lambda body: body.ids)
def fail(scene: Scene, body: Chosen) -> Done:
    """End runs that no worker owns as failed; mark those that have failed with the reason, as dealt with."""
    done = scene.operations.runs.fail(body.ids, body.reason)
    return _counted(scene, "marked as failed", done, "had ended before, or is owned by a worker")


@pages.action("/runs/reschedule", lambda body: body.ids)
def reschedule(scene: Scene, body: Rescheduling) -> Done:
    """Change when runs begin that have not begun, or are to be tried again; retry failed ones at that time."""
    if body.after is not None and body.at is not None:
        raise InvalidInput("give `after` or `at`, not both")
    at = None if body.at is None else to_micros(body.at)
    move = Move(scene.now + _micros(body.after or "0s") if at is None else at, body.priority)
    return _counted(
        scene, "rescheduled", scene.operations.runs.reschedule(body.ids, move), "has begun, or had ended before"
    )


@pages.action("/runs/fork", lambda body: body.ids)
def fork(scene: Scene, body: Forking) -> Done:
    """Make new runs that have done what these had done before a step, and go on from there."""
    operations = scene.operations.runs
    if body.step is None and not body.beginning:
        made = operations.fork_failed(body.ids, version=body.version)
    else:
        made = {each: operations.fork(each, body.step, version=body.version) for each in body.ids}
    listed = ", ".join(list(made.values())[:3])
    only = next(iter(made.values())) if len(made) == 1 else None
    return Done(f"forked: {listed}{' and more' if len(made) > 3 else ''}", dict(made), only)


@pages.action("/runs/delete", lambda body: body.ids, role="admin")
def delete(scene: Scene, body: Chosen) -> Done:
    """Delete ended runs with their children and all they recorded."""
    return _counted(scene, "deleted", scene.operations.runs.delete(body.ids), "did not exist")


def _micros(text: str) -> int:
    """A length of time as people write it: 1h30m, or a number of seconds."""
    number = text.isascii() and text.isdigit()
    return round(parse_duration(float(text) if number else text).total_seconds() * SECOND)


def _attributes(scene: Scene, query: RunQuery) -> dict[str, Any] | None:
    if query.attributes is None:
        return None
    found = read_value(query.attributes, "the filter for attributes")
    if not isinstance(found, dict):
        raise InvalidInput('attributes are a JSON object, such as {"tenant": "acme"}')
    given = cast("dict[str, Any]", found)
    if scene.redactor.hides and not (
        query.workflow and all(scene.redactor.may_filter(given, workflow) for workflow in query.workflow)
    ):
        raise InvalidInput(
            "this dashboard hides attributes; name the workflow beside the filter for them, one whose attributes it shows"
        )
    return given


def _counted(scene: Scene, what: str, answers: dict[str, bool], otherwise: str = "had ended before") -> Done:
    if not any(answers.values()):
        for each in answers:
            scene.operations.runs.get(each)  # a run that does not exist has not ended before
    done = sum(answers.values())
    result: dict[str, Any] = dict(answers)
    if len(answers) == 1:
        only = next(iter(answers))
        return Done(f"{only} is {what}" if done else f"{only} {otherwise}", result)
    rest = f"; {len(answers) - done} {otherwise}" if done < len(answers) else ""
    return Done(f"{done} run{'' if done == 1 else 's'} {what}{rest}", result)


assert set(State) == set(StateName.__args__)  # type: ignore[attr-defined]  # noqa: S101
