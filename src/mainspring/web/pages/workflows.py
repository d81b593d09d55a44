"""Functions: a form to start each, generated from its parameters, and figures of its runs."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from mainspring.errors import NotFound
from mainspring.operations.figures import FunctionFigures, StepFigures
from mainspring.operations.runs.lists import RunSummary
from mainspring.operations.runs.start import FunctionInfo
from mainspring.web.views import Id, NoQuery, Pages, Scene

pages = Pages()
_LATEST = 20


class WorkflowRow(Struct):
    """A function that workers have, or that has runs."""

    name: str
    function: FunctionInfo | None
    """The description by its workers; null: no worker has described the function."""
    figures: FunctionFigures | None
    """Null if no run of the function has ended."""


class WorkflowList(Struct):
    """All functions, by name."""

    workflows: list[WorkflowRow]


class WorkflowQuery(Struct):
    """The name of a function. `again`: a run whose input to use again."""

    name: Id
    again: Id | None = None


class WorkflowAnswer(Struct):
    """One function, its figures and its latest runs."""

    workflow: WorkflowRow
    runs: list[RunSummary]
    steps: list[StepFigures]
    """Figures of the steps of the latest ended runs."""
    given: dict[str, Any] | None
    """The input of the run to start again, by parameter name."""
    again: str | None


@pages.view("/workflows", "workflows.html")
def workflows(scene: Scene, query: NoQuery) -> WorkflowList:
    """All functions that can be started, with the failure rate and duration of their runs."""
    del query
    described = {each.name: each for each in scene.operations.starting.functions()}
    figures = scene.operations.watch.function_figures()
    names = sorted({*described, *figures})
    return WorkflowList([WorkflowRow(name, described.get(name), figures.get(name)) for name in names])


@pages.view("/workflows/{name:path}", "workflow.html")
def workflow(scene: Scene, query: WorkflowQuery) -> WorkflowAnswer:
    """One function: its parameters, figures of its runs, the latest runs."""
    operations = scene.operations
    described = {each.name: each for each in operations.starting.functions()}
    figures = operations.watch.function_figures()
    runs = operations.runs.summaries(workflow=query.name, limit=_LATEST).runs
    if query.name not in {*described, *figures} and not runs:
        raise NotFound(f"there is no function {query.name!r}: no worker has described it, and it has no runs")
    given = None
    if query.again is not None:
        given = scene.redactor.run(operations.runs.get(query.again)).input
    return WorkflowAnswer(
        WorkflowRow(query.name, described.get(query.name), figures.get(query.name)),
        [scene.redactor.summary(run) for run in runs],
        [scene.redactor.step_figures(each, query.name) for each in operations.runs.step_figures(query.name)],
        given if isinstance(given, dict) else None,
        query.again,
    )
