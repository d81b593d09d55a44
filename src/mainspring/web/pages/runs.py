"""Runs, one run, and what can be done to them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from mainspring.model.states import State
from mainspring.operations.runs import RunInfo, StepInfo
from mainspring.operations.talk import Conversation
from mainspring.web.views import After, Body, Done, Id, Pages, PageSize, Reason, Scene

pages = Pages()
MOST_CHILDREN = 50
StateName = Literal[
    "scheduled", "queued", "running", "waiting", "cancelling", "succeeded", "failed", "cancelled"
]  # as in State; a literal describes itself in the API


class RunQuery(Struct):
    """Which runs."""

    state: list[StateName] = field(default_factory=list[StateName])
    workflow: Annotated[str, Meta(max_length=600)] | None = None
    id_prefix: Annotated[str, Meta(max_length=600)] | None = None
    parent: Id | None = None
    stranded: bool | None = None
    after: After | None = None
    limit: PageSize = 50


class RunList(Struct):
    """A page of runs, newest first. Hand `next` back as `after`; null is the last page."""

    runs: list[RunInfo]
    next: str | None


class RunId(Struct):
    """Which run."""

    id: Id


class RunAnswer(Struct):
    """All there is to know of a run."""

    run: RunInfo
    steps: list[StepInfo]
    children: list[RunInfo]
    """Its latest children."""
    conversation: Conversation
    helps: str | None
    """If it is stranded: the command that helps."""


class Chosen(Body):
    """Runs to act on, and why."""

    ids: Annotated[list[Id], Meta(min_length=1, max_length=500)]
    reason: Reason | None = None


@pages.view("/runs", "runs.html")
def runs(scene: Scene, query: RunQuery) -> RunList:
    """A page of runs, newest first."""
    found = scene.operations.runs.list(
        state=tuple(query.state),
        workflow=query.workflow,
        id_prefix=query.id_prefix,
        parent=query.parent,
        stranded=query.stranded,
        after=query.after,
        limit=query.limit,
    )
    return RunList([scene.redactor.run(run) for run in found.runs], found.next)


@pages.view("/runs/{id:path}", "run.html")
def run(scene: Scene, query: RunId) -> RunAnswer:
    """One run: its steps, what it was told and has said, its children."""
    operations = scene.operations
    found = operations.runs.get(query.id)
    children = operations.runs.list(parent=query.id, limit=MOST_CHILDREN).runs
    return RunAnswer(
        scene.redactor.run(found),
        [scene.redactor.step(step, found) for step in operations.runs.steps(query.id)],
        [scene.redactor.run(child) for child in children],
        scene.redactor.conversation(operations.conversation(query.id), found),
        "MAINSPRING_CONTINUE_ON=compatible mainspring worker MODULE:APP" if found.stranded else None,
    )


@pages.action("/runs/cancel", lambda body: body.ids)
def cancel(scene: Scene, body: Chosen) -> Done:
    """Ask runs and their children to stop before their next step."""
    return _counted("cancelled", scene.operations.runs.cancel(body.ids, body.reason))


@pages.action("/runs/terminate", lambda body: body.ids)
def terminate(scene: Scene, body: Chosen) -> Done:
    """End runs and their children at once, wherever they are."""
    return _counted("terminated", scene.operations.runs.terminate(body.ids, body.reason))


def _counted(what: str, answers: dict[str, bool]) -> Done:
    done = sum(answers.values())
    result: dict[str, Any] = dict(answers)
    if len(answers) == 1:
        only = next(iter(answers))
        return Done(f"{only} is {what}" if done else f"{only} had ended before", result)
    rest = f"; {len(answers) - done} had ended before" if done < len(answers) else ""
    return Done(f"{done} run{'' if done == 1 else 's'} {what}{rest}", result)


assert set(State) == set(StateName.__args__)  # type: ignore[attr-defined]  # noqa: S101
