"""Each operator verb is defined once: app, client, command line, dashboard and API say the same of it and go the same way."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, get_type_hints

import click
import pytest

from mainspring import App, Client, run
from mainspring.app.nouns.queues import QueueVerbs
from mainspring.app.nouns.runs import RunVerbs, VersionVerbs
from mainspring.app.nouns.scheduled_functions import FunctionVerbs
from mainspring.app.nouns.schedules import ScheduleVerbs
from mainspring.cli.main import main
from mainspring.errors import InvalidInput
from mainspring.operations.actions import summary_of
from mainspring.operations.filters import SCHEDULE_FILTERS, TRAITS, RunTraits, ScheduleFilters
from mainspring.operations.queues import QUEUE_ACTIONS
from mainspring.operations.runs.actions import RUN_ACTIONS, RunActions
from mainspring.operations.scheduled_functions import FUNCTION_ACTIONS
from mainspring.operations.schedules.actions import SCHEDULE_ACTIONS
from mainspring.operations.versions import VERSION_ACTIONS
from mainspring.testing import world
from mainspring.web.site import ACTIONS, VIEWS

if TYPE_CHECKING:
    from mainspring.operations.actions import Action

TABLES: dict[str, tuple[dict[str, Any], type]] = {
    "runs": (RUN_ACTIONS, RunVerbs),
    "schedules": (SCHEDULE_ACTIONS, ScheduleVerbs),
    "queues": (QUEUE_ACTIONS, QueueVerbs),
    "scheduled_functions": (FUNCTION_ACTIONS, FunctionVerbs),
    "versions": (VERSION_ACTIONS, VersionVerbs),
}
EVERY = [(noun, action) for noun, (table, _) in TABLES.items() for action in table.values()]
ELSEWHERE = {
    "runs force": "versions force",
    "schedules unskip": "schedules skip",
    "schedules stop_backfill": "schedules backfill",
}
"""Verbs that the command line has under another name."""
NOT_ON_A_PAGE = {"runs.force", "schedules.apply"}


def _command(noun: str, name: str) -> click.Command | None:
    words = ELSEWHERE.get(f"{noun} {name}", f"{noun} {name}").split()
    group = main.get_command(click.Context(main), words[0])
    return (
        group.get_command(click.Context(group), words[1].replace("_", "-")) if isinstance(group, click.Group) else None
    )


@pytest.mark.parametrize(("noun", "action"), EVERY, ids=lambda each: getattr(each, "name", each))
def test_every_surface_says_the_same_sentence_of_a_verb(noun: str, action: Action) -> None:
    verbs = VersionVerbs if action.name == "force" else TABLES[noun][1]
    assert summary_of(inspect.getattr_static(verbs, action.name)) == action.summary
    command = _command(noun, action.name)
    if command is not None and f"{noun} {action.name}" not in ELSEWHERE:
        assert (command.help or "").startswith(action.summary) or action.name == "set"
    if action.label not in NOT_ON_A_PAGE:
        (page,) = [each for each in ACTIONS if each.name == action.label]
        assert (page.summary, page.role) == (action.summary, action.role)


def test_every_verb_has_a_command() -> None:
    missing = [f"{noun} {action.name}" for noun, action in EVERY if _command(noun, action.name) is None]
    assert missing == ["scheduled_functions cancel_all"]  # that is `runs cancel --functions`


def test_keywords_options_and_query_parameters_follow_from_one_record() -> None:
    queries = {view.name: set(view.query.__struct_fields__) for view in VIEWS}
    for noun, filters, record in (("runs", TRAITS, RunTraits), ("schedules", SCHEDULE_FILTERS, ScheduleFilters)):
        assert list(filters) == list(get_type_hints(record))
        group = main.get_command(click.Context(main), noun)
        assert isinstance(group, click.Group)
        command = group.get_command(click.Context(group), "list")
        assert command is not None
        assert set(filters) <= {option.name for option in command.params}
        assert set(filters) - {"attributes"} <= queries[noun]
    retry = _command("runs", "retry")
    assert retry is not None
    assert set(TRAITS) <= {option.name for option in retry.params}


async def test_app_client_command_and_page_cancel_by_one_way(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner  # noqa: PLC0415

    app = App(store_url)
    asked: list[tuple[str, ...]] = []
    cancel = RunActions.cancel

    def noticed(self: RunActions, ids: Any, reason: str | None = None, filters: Any = None) -> Any:
        asked.append(tuple(ids))
        return cancel(self, ids, reason, filters)

    monkeypatch.setattr(RunActions, "cancel", noticed)

    @app.workflow
    async def waits() -> None:
        await run.sleep("1d")

    async with world(app, url=store_url):
        handles = [await waits.options(id=f"w{number}").start() for number in range(5)]
        assert await app.runs.cancel("w0") == {"w0": True}
        assert await handles[1].cancel()
        with Client(store_url) as client:
            assert await client.runs.cancel("w2") == {"w2": True}
        assert await app.runs.cancel(id_prefix="w3") == {"w3": True}
        import asyncio  # noqa: PLC0415

        said = await asyncio.to_thread(CliRunner().invoke, main, ["runs", "cancel", "w4", "--url", store_url])
        assert said.exit_code == 0, said.output
    assert asked == [("w0",), ("w1",), ("w2",), ("w3",), ("w4",)]


async def test_attributes_of_runs_are_set_by_name(store_url: str) -> None:
    app = App(store_url)

    @app.workflow
    async def quick() -> None: ...

    async with world(app, url=store_url):
        await quick.options(id="a", attributes={"tenant": "acme", "old": 1}).start()
        await quick.options(id="b").start()
        assert await app.runs.set_attributes(["a", "nobody"], {"ticket": [4711], "old": None}) == {
            "a": True,
            "nobody": False,
        }
        assert (await app.runs.get("a")).attributes == {"tenant": "acme", "ticket": [4711]}
        assert await app.runs.set_attributes("b", {"ticket": [4711]})
        assert {each.id for each in await app.runs.list(attributes={"ticket": [4711]})} == {"a", "b"}
        for wrong in ({}, {1: 2}, "text", {"at": object()}):
            with pytest.raises(InvalidInput):
                await app.runs.set_attributes("a", wrong)  # type: ignore[arg-type]


async def test_ended_runs_are_deleted_by_filters_and_live_ones_stay(store_url: str) -> None:
    app = App(store_url)

    @app.workflow
    async def naps(long: bool) -> None:
        if long:
            await run.sleep("1d")

    async with world(app, url=store_url):
        for number in range(4):
            handle = await naps.options(id=f"n{number}").start(number == 0)
            if number:
                await handle.result()
        assert sorted(await app.runs.delete(workflow="naps")) == ["n1", "n2", "n3"]
        assert [each.id for each in await app.runs.list()] == ["n0"]


async def test_schedules_are_found_by_several_values_and_wrong_ones_are_refused(store_url: str) -> None:
    from mainspring import Spec  # noqa: PLC0415

    app = App(store_url)

    @app.workflow
    async def one() -> None: ...

    @app.workflow
    async def two() -> None: ...

    async with world(app, url=store_url):
        for name, what in (("a-1", one), ("b-1", two), ("c-1", one)):
            await app.schedules.create(name, what.bind(), Spec(cron=["0 2 * * *"]))
        listed = app.schedules.list
        assert [each.id for each in await listed(id_prefix=["a", "c"])] == ["a-1", "c-1"]
        assert [each.id for each in await listed(id_prefix="b")] == ["b-1"]
        assert [each.id for each in await listed(workflow={"one", "two"})] == ["a-1", "b-1", "c-1"]
        assert [each.id for each in await listed(workflow=["two"], id_prefix=["a", "b"])] == ["b-1"]
        wrongs: tuple[dict[str, Any], ...] = (
            {"workflow": 3},
            {"paused": "yes"},
            {"attributes": "x"},
            {"due_before": "soon"},
            {"owner": "me"},
        )
        for wrong in wrongs:
            with pytest.raises(InvalidInput, match=next(iter(wrong))):
                await listed(**wrong)
