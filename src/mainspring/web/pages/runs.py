"""Runs, one run, and the actions on runs."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Annotated, Any, cast
from urllib.parse import parse_qsl

from msgspec import Meta, Struct, field

from mainspring.errors import InvalidInput, NotFound
from mainspring.model.clock import to_micros
from mainspring.model.runs import USER
from mainspring.operations.filters import TRAITS, RunFilters
from mainspring.operations.runs.actions import RUN_ACTIONS, Changed, not_found, result_text
from mainspring.operations.runs.bulk import Progress
from mainspring.operations.runs.info import Conversation, Runs
from mainspring.operations.runs.lists import RunSummary
from mainspring.operations.runs.start import START_ACTIONS
from mainspring.operations.versions import WHERE_REPLAY_AGREES
from mainspring.recurrence.durations import micros, typed_duration
from mainspring.store.verbs.dashboard import MOST
from mainspring.store.verbs.manage import Move
from mainspring.web.pages.timeline import MOST_CHILDREN, SomeSteps, StepQuery, some_steps
from mainspring.web.requests import read_pairs, read_value
from mainspring.web.views import After, Body, Done, Id, Moment, Pages, PageSize, Reason, Scene, done, query_of

pages = Pages()
Text = Annotated[str, Meta(max_length=600)]
Matching = Annotated[
    str, Meta(max_length=4_000, description="The query of a page of runs, such as state=failed&workflow=checkout.")
]
RunQuery = query_of("RunQuery", TRAITS, ("after", After | None, None), ("limit", PageSize, 50), doc="Which runs.")
"""The filters of runs as query parameters."""


class RunList(Struct):
    """A page of runs, newest first, without their values. Pass `next` as `after` for the next page; null is the last page."""

    runs: list[RunSummary]
    next: str | None
    further: bool = False
    """Whether the search stopped at its limit: this page may be short or empty, and the next page continues the search."""
    live: dict[str, int] = field(default_factory=dict[str, int])
    """The number of runs in each state that is not an end, each counted up to `most`."""
    most: int = MOST
    known: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """The names of existing functions, queues and schedules, to choose from."""


class RunAnswer(SomeSteps):
    """A run with its operations, messages, events and children."""

    forks: list[RunSummary]
    """The latest runs that were forked from this run."""
    conversation: Conversation
    helps: list[str]
    """For a stranded run: the commands that help, the most careful one first."""
    unserved: list[str] = field(default_factory=list[str])
    """Why no worker begins the run, and what helps: its queue does not exist, or no worker has the version that it is pinned to."""


class CountQuery(Struct):
    """A verb, and filters of runs."""

    verb: Annotated[str, Meta(max_length=40, description="Such as retry.")]
    matching: Matching


class Counted(Struct):
    """The number of runs that a verb would act on now."""

    count: int


class Chosen(Body):
    """Runs to act on, and the reason: some ids, or all that match filters.

    All that match are acted on in batches. With `most`, one request stops after that number of runs. Its answer has
    `result.next`, to pass as `next` of the request that continues; null: there are no more.
    """

    ids: Annotated[list[Id], Meta(max_length=500)] = field(default_factory=list[Id])
    matching: Matching | None = None
    most: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    next: After | None = None
    reason: Reason | None = None


class Completing(Chosen):
    """The result that the runs get."""

    result: Annotated[str, Meta(max_length=100_000, description="JSON; null if it is not given.")] = "null"


class Marking(Chosen, kw_only=True):
    """Attributes to set on the runs; null removes one."""

    attributes: Annotated[str, Meta(min_length=2, max_length=10_000, description="A JSON object.")]


class Resuming(Chosen):
    """The queue in which the runs wait from now on; without it, the queue they were in."""

    to_queue: Annotated[str, Meta(min_length=1, max_length=200, description="The name of a queue.")] | None = None


class Rescheduling(Chosen):
    """The new time at which the runs are due: a delay from now, or a time. Without either: now."""

    after: Annotated[str, Meta(max_length=100, description="Such as 1h30m, or a number of seconds.")] | None = None
    at: Moment | None = None
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] | None = None


class Forking(Body):
    """Where the new runs continue: at a step (its position or name), at the beginning, after the last step, or else at the
    operation that ended the old runs.
    """

    ids: Annotated[list[Id], Meta(min_length=1, max_length=500)]
    step: Text | None = None
    beginning: bool = False
    past_last: bool = False
    children: Annotated[dict[Id, Id], Meta(max_length=500, description="Runs that take the places of children.")] = (
        field(default_factory=dict[Id, Id])
    )
    version: Text | None = None
    reason: Reason | None = None


class Beginning(Body, kw_only=True):
    """A run to start: the function, its arguments by name, the time and the queue."""

    workflow: Text
    input: dict[str, Any] = field(default_factory=dict[str, Any])
    id: Id | None = None
    queue: Text | None = None
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] = 0
    after: Annotated[str, Meta(max_length=100, description="Such as 1h30m, or a number of seconds.")] | None = None
    at: Moment | None = None
    attributes: dict[str, Any] | None = None
    reason: Reason | None = None


class Sending(Body, kw_only=True):
    """A message for a run. A second message with the same key is not stored."""

    id: Id
    topic: Annotated[str, Meta(min_length=1, max_length=512)]
    value: Any = None
    key: Text | None = None
    reason: Reason | None = None


class Answering(Body, kw_only=True):
    """A question to a run: the name of the question, and the value that its handler receives."""

    id: Id
    question: Annotated[str, Meta(min_length=1, max_length=512)]
    value: Any = None
    reason: Reason | None = None


@pages.view("/runs", "runs.html", query=RunQuery)
def runs(scene: Scene, query: Any) -> RunList:
    """A page of runs, newest first."""
    operations = scene.operations
    found = operations.runs.summaries(after=query.after, limit=query.limit, **_filters(scene, query))
    shown = [scene.redactor.summary(run) for run in found.runs]
    return RunList(shown, found.next, found.further, operations.runs.live(), MOST, operations.runs.known())


@pages.view("/runs/count", "count.html")
def count(scene: Scene, query: CountQuery) -> Counted:
    """The number of runs that a verb would act on now. Changes nothing."""
    if query.verb not in RUN_ACTIONS:
        raise InvalidInput(f"there is no verb {query.verb!r}; there are {', '.join(RUN_ACTIONS)}")
    return Counted(scene.operations.runs.count(query.verb, _matching(scene, query.matching)))


@pages.view("/runs/{id:path}", "run.html")
def run(scene: Scene, query: StepQuery) -> RunAnswer:
    """One run: its operations, its messages and events, its children."""
    operations = scene.operations
    found = operations.runs.get(query.id)
    forks = operations.runs.summaries(forked_from=query.id, limit=MOST_CHILDREN).runs
    unserved = operations.why_unserved(found)
    helps = [WHERE_REPLAY_AGREES, f"mainspring versions force {shlex.quote(found.id)}"]
    return RunAnswer(
        **some_steps(scene, query),
        forks=[scene.redactor.summary(fork) for fork in forks],
        conversation=scene.redactor.conversation(operations.conversation(query.id), found),
        helps=helps if found.stranded else [],
        unserved=[] if unserved is None else [unserved.found, unserved.hint],
    )


def _ids(body: Chosen | Forking) -> list[str]:
    return body.ids


def _act(scene: Scene, verb: str, body: Chosen, act: Callable[[Runs, list[str], RunFilters], Changed]) -> Done:
    """Act on the runs that are named, or on all that match. Raise an error if none was changed because runs do not exist."""
    if bool(body.ids) == bool(body.matching):
        raise InvalidInput("which runs? Give ids, or matching, the query of a page of runs, such as state=failed")
    progress = Progress(place=body.next, most=body.most)
    filters: RunFilters = _matching(scene, body.matching) if body.matching else {}
    changed = act(scene.operations.runs_with(progress), body.ids, filters)
    answer = scene.operations.runs.answer(verb, changed)
    if body.matching:
        return Done(answer.message, {"changed": len(changed), "next": progress.place})
    if answer.missing and not answer.changed:
        raise NotFound(not_found(answer.missing[0]))
    return done(answer)


@pages.action(RUN_ACTIONS["cancel"], _ids)
def cancel(scene: Scene, body: Chosen) -> Done:
    return _act(scene, "cancel", body, lambda runs, ids, filters: runs.cancel(ids, body.reason, filters))


@pages.action(RUN_ACTIONS["terminate"], _ids)
def terminate(scene: Scene, body: Chosen) -> Done:
    return _act(scene, "terminate", body, lambda runs, ids, filters: runs.terminate(ids, body.reason, filters))


@pages.action(RUN_ACTIONS["retry"], _ids)
def retry(scene: Scene, body: Chosen) -> Done:
    return _act(scene, "retry", body, lambda runs, ids, filters: runs.retry(ids, filters))


@pages.action(RUN_ACTIONS["resume"], _ids)
def resume(scene: Scene, body: Resuming) -> Done:
    queue = body.to_queue
    return _act(scene, "resume", body, lambda runs, ids, filters: runs.resume(ids, filters, to_queue=queue))


@pages.action(RUN_ACTIONS["complete"], _ids)
def complete(scene: Scene, body: Completing) -> Done:
    text = result_text(body.result)
    return _act(
        scene, "complete", body, lambda runs, ids, filters: runs.complete(ids, lambda _: text, body.reason, filters)
    )


@pages.action(RUN_ACTIONS["fail"], _ids)
def fail(scene: Scene, body: Chosen) -> Done:
    return _act(scene, "fail", body, lambda runs, ids, filters: runs.fail(ids, body.reason, filters))


@pages.action(RUN_ACTIONS["reschedule"], _ids)
def reschedule(scene: Scene, body: Rescheduling) -> Done:
    due = _due(scene, body)
    move = Move(scene.now if due is None else due, body.priority)
    return _act(scene, "reschedule", body, lambda runs, ids, filters: runs.reschedule(ids, move, filters))


@pages.action(RUN_ACTIONS["set_attributes"], _ids)
def set_attributes(scene: Scene, body: Marking) -> Done:
    given = read_value(body.attributes, "attributes")
    return _act(scene, "set_attributes", body, lambda runs, ids, filters: runs.set_attributes(ids, given, filters))


@pages.action(RUN_ACTIONS["delete"], _ids)
def delete(scene: Scene, body: Chosen) -> Done:
    return _act(scene, "delete", body, lambda runs, ids, filters: runs.delete(ids, filters))


@pages.action(START_ACTIONS["start"], lambda body: [body.id] if body.id else [])
def start(scene: Scene, body: Beginning) -> str:
    return scene.operations.starting.start(
        body.workflow,
        body.input,
        id=body.id,
        queue=body.queue,
        priority=body.priority,
        at=_due(scene, body),
        attributes=body.attributes,
    )


@pages.action(START_ACTIONS["send"], lambda body: [body.id])
def send(scene: Scene, body: Sending) -> str:
    return scene.operations.starting.send(body.id, body.topic, body.value, body.key)


@pages.action(START_ACTIONS["answer"], lambda body: [body.id])
def answer(scene: Scene, body: Answering) -> str:
    return scene.operations.starting.answer(body.id, body.question, body.value)


@pages.action(RUN_ACTIONS["fork"], _ids)
def fork(scene: Scene, body: Forking) -> dict[str, str]:
    runs, version = scene.operations.runs, body.version
    if body.step is None and not (body.beginning or body.past_last or body.children):
        return runs.fork_failed(body.ids, version=version)
    return runs.fork(body.ids, body.step, version=version, past_last=body.past_last, children=body.children)


def _due(scene: Scene, body: Rescheduling | Beginning) -> int | None:
    """Return the time that a delay or a time names. None: neither is given."""
    if body.after is not None and body.at is not None:
        raise InvalidInput("give `after` or `at`, not both")
    if body.after:
        return scene.now + micros(typed_duration(body.after))
    return None if body.at is None else to_micros(body.at)


def _filters(scene: Scene, query: Any) -> RunFilters:
    """Return the filters of a query."""
    found = {name: getattr(query, name) for name in TRAITS}
    if found["attributes"] is not None:
        found["attributes"] = _attributes(scene, found["attributes"], found["workflow"])
    if found["user"]:
        _check_visible(scene, {USER: found["user"]}, found["workflow"])
    return cast("RunFilters", {name: value for name, value in found.items() if value not in (None, [])})


def _matching(scene: Scene, text: str) -> RunFilters:
    """Return the filters in the address of a page of runs."""
    pairs = parse_qsl(text, max_num_fields=200)
    unknown = [name for name, _ in pairs if name not in TRAITS and name not in {"after", "limit"}]
    if unknown:
        raise InvalidInput(f"runs have no filter {', '.join(unknown)}; there are {', '.join(TRAITS)}")
    found = _filters(scene, read_pairs(RunQuery, pairs))
    if not found:
        raise InvalidInput("matching: name at least one filter, such as state=failed")
    return found


def _attributes(scene: Scene, text: str, workflows: list[str]) -> dict[str, Any]:
    found = read_value(text, "the filter for attributes")
    if not isinstance(found, dict):
        raise InvalidInput('attributes are a JSON object, such as {"tenant": "acme"}')
    return _check_visible(scene, cast("dict[str, Any]", found), workflows)


def _check_visible(scene: Scene, given: dict[str, Any], workflows: list[str]) -> dict[str, Any]:
    """Return the attributes if runs may be filtered by them, else raise an error."""
    if scene.redactor.hides and not (
        workflows and all(scene.redactor.may_filter(given, workflow) for workflow in workflows)
    ):
        raise InvalidInput(
            "this dashboard hides attributes; name the workflow beside the filter for them, one whose attributes it shows"
        )
    return given
