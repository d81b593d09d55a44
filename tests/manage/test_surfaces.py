"""One operator verb, asked for through each surface: the same change, the same words, and the status that belongs to them."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, get_args

import httpx
import psycopg
import pytest
from click.testing import CliRunner

from mainspring import App, Client, Policy, Settings, Spec
from mainspring.cli.commands import FAILED, MISUSED, NOT_FOUND
from mainspring.cli.main import main
from mainspring.errors import Conflict, MainspringError, NotFound
from mainspring.operations.queues import QUEUE_ACTIONS
from mainspring.operations.runs.actions import RUN_ACTIONS, not_found
from mainspring.operations.schedules.actions import SCHEDULE_ACTIONS
from mainspring.operations.schedules.info import ScheduleState
from mainspring.store.open import sqlite_path
from mainspring.store.sql.dialect import prefixed
from mainspring.web import dashboard

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from click.testing import Result

SURFACES = ("app", "client", "command", "api")


@dataclass(frozen=True)
class Case:
    """A verb about runs: the state in which it changes a run and the one in which it leaves it, and what it is given besides the id."""

    changes: str
    leaves: str | None = None
    given: dict[str, Any] = field(default_factory=dict[str, Any])
    """Keywords of app and client."""
    options: tuple[str, ...] = ()
    body: dict[str, Any] = field(default_factory=dict[str, Any])
    refused_by_unknown_id: bool = False
    """Whether an id that is not there is an error for app and client, too, and nothing is done."""


RUNS = {
    "cancel": Case("queued", "cancelled"),
    "terminate": Case("queued", "cancelled"),
    "resume": Case("cancelled", "queued", refused_by_unknown_id=True),
    "retry": Case("failed", "queued", refused_by_unknown_id=True),
    "complete": Case("queued", "succeeded", {"result": 3}, ("--result", "3"), {"result": "3"}),
    "fail": Case("queued", "succeeded"),
    "reschedule": Case("queued", "succeeded", {"after": "1h"}, ("--after", "1h"), {"after": "1h"}),
    "set_attributes": Case(
        "queued", None, {"attributes": {"ticket": 7}}, ("--set", "ticket=7"), {"attributes": '{"ticket": 7}'}
    ),
    "delete": Case("cancelled", None, {}, ("--yes",)),
}
ELSEWHERE = {
    "fork": "answers with new ids: test_a_fork_is_made_through_each_surface",
    "force": "is about stranded runs, and not on a page: tests/cli/test_versions.py",
}


@dataclass
class Surfaces:
    """The ways to one database. There is no worker, so runs stay in the states that they are put into."""

    url: str
    app: App
    client: Client
    pages: httpx.AsyncClient

    async def command(self, *words: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, main, [*words, "--url", self.url])

    async def post(self, path: str, **body: Any) -> tuple[int, str]:
        """The status of an answer, and its words."""
        answer = await self.pages.post(f"/api/{path}", json=body)
        said = answer.json()
        return answer.status_code, said["message"] if answer.is_success else said["error"]

    async def put(self, run_id: str, state: str) -> str:
        """A run that is in a state."""
        await self.app.options(id=run_id).start("works")
        match state:
            case "cancelled":
                assert await self.app.runs.cancel(run_id)
            case "failed":
                assert await self.app.runs.fail(run_id)
            case "succeeded":
                assert await self.app.runs.complete(run_id, result=1)
            case _:
                assert state == "queued"
        return run_id

    async def ask(self, surface: str, verb: str, run_id: str) -> Any:
        """What a surface answers with: a dict or an exception, a result of a command, or a status with words."""
        case = RUNS[verb]
        if surface == "command":
            return await self.command("runs", verb.replace("_", "-"), run_id, *case.options)
        if surface == "api":
            return await self.post(f"runs/{verb.replace('_', '-')}", ids=[run_id], **case.body)
        noun = self.app.runs if surface == "app" else self.client.runs
        try:
            return await getattr(noun, verb)(run_id, **case.given)
        except MainspringError as error:
            return error


@pytest.fixture
async def surfaces(store_url: str) -> AsyncGenerator[Surfaces]:
    async with _surfaces(store_url) as made:
        yield made


@asynccontextmanager
async def _surfaces(url: str) -> AsyncGenerator[Surfaces]:
    app = App(url, settings=Settings(work=False))

    @app.workflow
    async def works() -> int:
        return 1

    async with app:
        transport = httpx.ASGITransport(dashboard(app), client=("127.0.0.1", 1234))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as pages, Client(url) as client:
            yield Surfaces(url, app, client, pages)


def test_every_verb_about_runs_is_asked_for_here() -> None:
    assert {*RUNS, *ELSEWHERE} == {*RUN_ACTIONS}


@pytest.mark.parametrize("verb", RUNS)
async def test_a_run_is_changed_alike_by_every_surface(surfaces: Surfaces, verb: str) -> None:
    ids = {surface: await surfaces.put(surface, RUNS[verb].changes) for surface in SURFACES}
    answers = {surface: await surfaces.ask(surface, verb, run_id) for surface, run_id in ids.items()}
    assert answers["app"] == {"app": True}
    assert answers["client"] == {"client": True}
    command = answers["command"]
    assert (command.exit_code, command.stdout.split("\t")[0].strip()) == (0, "command"), command.output
    assert answers["api"] == (200, f"api is {RUN_ACTIONS[verb].done}")
    if verb != "delete":
        found = [await surfaces.app.runs.get(run_id) for run_id in ids.values()]
        assert len({(each.state, each.reason, str(each.output), str(each.attributes)) for each in found}) == 1
    else:
        assert [each.id for each in await surfaces.app.runs.list()] == []


@pytest.mark.parametrize("verb", [verb for verb, case in RUNS.items() if case.leaves])
async def test_a_run_that_a_verb_does_not_fit_is_left_alone_with_the_same_words(surfaces: Surfaces, verb: str) -> None:
    for surface in SURFACES:
        await surfaces.put(surface, RUNS[verb].leaves or "")
    answers = {surface: await surfaces.ask(surface, verb, surface) for surface in SURFACES}
    assert answers["app"] == {"app": False}
    assert answers["client"] == {"client": False}
    otherwise = RUN_ACTIONS[verb].otherwise
    assert (answers["command"].exit_code, answers["command"].stdout) == (FAILED, "")
    assert f"command {otherwise}" in answers["command"].stderr
    assert answers["api"] == (200, f"api {otherwise}")
    assert {(await surfaces.app.runs.get(surface)).state for surface in SURFACES} == {RUNS[verb].leaves}


@pytest.mark.parametrize("verb", RUNS)
async def test_a_run_that_is_not_there_is_missed_with_the_same_words(surfaces: Surfaces, verb: str) -> None:
    words = not_found("nobody")
    if RUNS[verb].refused_by_unknown_id:
        words += "; nothing was done"
    for surface in ("app", "client"):
        answer = await surfaces.ask(surface, verb, "nobody")
        if RUNS[verb].refused_by_unknown_id:
            assert isinstance(answer, NotFound)
            assert str(answer) == words
        else:
            assert answer == {"nobody": False}
    command = await surfaces.ask("command", verb, "nobody")
    assert (command.exit_code, command.stdout) == (NOT_FOUND, "")
    assert words in command.stderr
    assert await surfaces.ask("api", verb, "nobody") == (404, words)


@pytest.mark.parametrize("result", ["{", "NaN", "[" * 100_000])
async def test_a_result_that_is_not_json_is_refused_with_the_same_words(surfaces: Surfaces, result: str) -> None:
    await surfaces.put("a", "queued")
    status, words = await surfaces.post("runs/complete", ids=["a"], result=result)
    assert (status, words.startswith("the result is not JSON: ")) == (400, True)
    command = await surfaces.command("runs", "complete", "a", "--result", result)
    assert command.exit_code == MISUSED, command.output
    assert words in command.stderr


async def test_a_run_that_has_not_ended_is_deleted_by_none(surfaces: Surfaces) -> None:
    await surfaces.put("a", "queued")
    said = [await surfaces.ask(surface, "delete", "a") for surface in SURFACES]
    assert all(isinstance(error, Conflict) for error in said[:2])
    words = str(said[0])
    assert str(said[1]) == words
    assert said[2].exit_code == FAILED
    assert words in said[2].stderr
    assert said[3] == (409, words)


async def test_a_fork_is_made_through_each_surface(surfaces: Surfaces) -> None:
    await surfaces.put("a", "failed")
    assert (await surfaces.app.runs.fork("a", id="by-app")).id == "by-app"
    assert (await surfaces.client.runs.fork("a", id="by-client")).id == "by-client"
    assert (await surfaces.command("runs", "fork", "a", "--id", "by-command")).stdout == "by-command\n"
    status, words = await surfaces.post("runs/fork", ids=["a"], beginning=True)
    assert (status, words.startswith("forked: ")) == (200, True)
    assert len((await surfaces.app.runs.list(forked_from="a")).runs) == 4
    for noun in (surfaces.app.runs, surfaces.client.runs):
        with pytest.raises(NotFound, match="nobody"):
            await noun.fork("nobody")
    assert (await surfaces.command("runs", "fork", "nobody")).exit_code == NOT_FOUND
    assert (await surfaces.post("runs/fork", ids=["nobody"], beginning=True))[0] == 404


SCHEDULES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "pause": ({}, ()),
    "resume": ({}, ()),
    "trigger": ({}, ()),
    "skip": ({}, ()),
    "delete": ({}, ("--yes",)),
}
"""Verbs about a schedule that take no more than its id, with the options of their commands."""


@pytest.mark.parametrize("verb", SCHEDULES)
async def test_a_schedule_is_changed_alike_by_every_surface(surfaces: Surfaces, verb: str) -> None:
    given, options = SCHEDULES[verb]
    action = SCHEDULE_ACTIONS[verb]
    for surface in SURFACES:
        call = surfaces.app.bind("works")
        await surfaces.app.schedules.create(surface, call, Spec(intervals=[timedelta(days=1)]))
    await getattr(surfaces.app.schedules, verb)("app", **given)
    await getattr(surfaces.client.schedules, verb)("client", **given)
    command = await surfaces.command("schedules", verb, "command", *options)
    assert command.exit_code == 0, command.output
    status, words = await surfaces.post(f"schedules/{verb}", id="api", **given)
    assert (status, words.startswith("api ")) == (200, True), words
    listed = await surfaces.app.schedules.list()
    if verb == "delete":
        assert listed.schedules == []
    else:
        assert len({(each.paused, each.note) for each in listed}) == 1
    missing: list[str] = []
    for noun in (surfaces.app.schedules, surfaces.client.schedules):
        with pytest.raises(NotFound) as caught:
            await getattr(noun, verb)("nothing", **given)
        missing.append(str(caught.value))
    command = await surfaces.command("schedules", verb, "nothing", *options)
    assert command.exit_code == NOT_FOUND, command.output
    assert missing[0] in command.stderr
    assert await surfaces.post(f"schedules/{verb}", id="nothing", **given) == (404, missing[0])
    assert missing[1] == missing[0]
    assert action.label == f"schedules.{verb}"


def _store_column(url: str, schedule: str, column: str) -> None:
    statement = f"UPDATE schedules SET {column} = 'because' WHERE id = '{schedule}'"
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(sqlite_path(url), isolation_level=None)) as file:
            file.execute(prefixed(statement))
    else:
        with psycopg.connect(url) as session:
            session.execute(f"SET search_path TO mainspring; {statement}".encode())


async def test_the_state_of_a_schedule_is_the_same_word_on_every_surface(surfaces: Surfaces) -> None:
    schedules = surfaces.app.schedules
    for state in get_args(ScheduleState):
        policy = Policy(limit=0 if state == "exhausted" else None)
        await schedules.create(state, surfaces.app.bind("works"), Spec(intervals=[timedelta(days=1)]), policy)
    for state in ("paused", "stopped", "failed"):  # a schedule that is also paused is first of all what else it is
        await schedules.pause(state)
    _store_column(surfaces.url, "stopped", "stopped")
    _store_column(surfaces.url, "failed", "stopped")
    _store_column(surfaces.url, "failed", "fault")

    listed = await schedules.list()
    assert {each.id: each.state for each in listed} == {state: state for state in get_args(ScheduleState)}
    counted = (await surfaces.command("schedules", "count", "-o", "json")).stdout
    assert json.loads(counted) == dict.fromkeys(get_args(ScheduleState), 1) | {"failing": 0}
    rows = (await surfaces.command("schedules", "list")).stdout.splitlines()[1:]
    assert len(rows) == len(listed)
    for row in rows:
        assert row.split()[0] == row.split()[2], row
    cards = (await surfaces.pages.get("/api/schedules")).json()["schedules"]
    assert all(card["info"]["state"] == card["info"]["id"] for card in cards)
    page = (await surfaces.pages.get("/schedules")).text
    for each in listed:
        badge = rf'<span class="state o-\w+">{each.state}</span>'
        assert (await schedules.describe(each.id)).state == each.state
        assert f"  {each.state}\n" in (await surfaces.command("schedules", "show", each.id)).stdout
        assert len(re.findall(rf"{each.id}</a></h2>\s+{badge}", page)) == (each.state != "active"), each.state
        assert re.search(rf">{each.id}</h1>\s+{badge}", (await surfaces.pages.get(f"/schedules/{each.id}")).text)


QUEUES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "pause": ({}, ()),
    "resume": ({}, ()),
    "set": ({"concurrency": 3}, ("--concurrency", "3")),
    "delete": ({}, ("--yes",)),
}
"""Verbs about a queue, with their keywords and options."""


@pytest.mark.parametrize("verb", QUEUES)
async def test_a_queue_is_changed_alike_by_every_surface(surfaces: Surfaces, verb: str) -> None:
    given, options = QUEUES[verb]
    for surface in SURFACES:
        await surfaces.app.queues.set(surface, concurrency=1)
    await getattr(surfaces.app.queues, verb)("app", **given)
    await getattr(surfaces.client.queues, verb)("client", **given)
    command = await surfaces.command("queues", verb, "command", *options)
    assert command.exit_code == 0, command.output
    words = QUEUE_ACTIONS[verb].answer("api", None).message
    assert await surfaces.post(f"queues/{verb}", name="api", **given) == (200, words)
    found = await surfaces.app.queues.list()
    assert len({(each.paused, each.limits.concurrency) for each in found}) == (0 if verb == "delete" else 1)


@pytest.mark.parametrize("verb", ["pause", "resume", "delete"])
async def test_a_queue_that_is_not_there_is_missed_with_the_same_words(surfaces: Surfaces, verb: str) -> None:
    words = "there is no queue 'nothing'"
    for noun in (surfaces.app.queues, surfaces.client.queues):
        if verb == "delete":  # what is to be gone is gone
            assert await noun.delete("nothing") is False
        else:
            with pytest.raises(NotFound, match=words):
                await getattr(noun, verb)("nothing")
    command = await surfaces.command("queues", verb, "nothing", *QUEUES[verb][1])
    assert command.exit_code == NOT_FOUND, command.output
    assert words in command.stderr
    assert await surfaces.post(f"queues/{verb}", name="nothing") == (404, words)


def test_every_verb_about_schedules_and_queues_is_known_to_this_file() -> None:
    more = {"create", "update", "reset", "apply", "unskip", "backfill", "stop_backfill"}  # see tests/cli and tests/web
    assert {*SCHEDULES, *more} == {*SCHEDULE_ACTIONS}
    assert {*QUEUES} == {*QUEUE_ACTIONS}
