"""Starting runs, sending messages and answering questions from the dashboard, its API and the command line."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import httpx
import pytest
from click.testing import CliRunner

from mainspring import App, Client, Question, Topic, run
from mainspring.cli.main import main
from mainspring.testing import world
from mainspring.web import dashboard
from tests.web.conftest import form

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable


@dataclass
class Decision:
    approved: bool
    by: str
    level: Literal["low", "high"] = "low"


decided = Topic("decided", Decision)
limit = Question("limit", int, int)


def office(url: str) -> App:
    app = App(url, name="office")

    @app.workflow(queue=None)
    async def vacation(days: int, who: str = "ada", tags: list[str] | None = None) -> str:
        """A request for days off."""
        doubled: list[int] = []

        def double(most: int) -> int:
            doubled.append(most)
            return 2 * most

        run.answer(limit, double)
        decision = await run.receive(decided, timeout="3d")
        note = await run.receive("note")
        return f"{who} {days} {tags} {decision and decision.approved} {decision and decision.level} {note} {doubled}"

    return app


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[tuple[App, Any, httpx.AsyncClient]]:
    app = office(url)
    async with world(app, url=url) as made:
        transport = httpx.ASGITransport(dashboard(app), client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as asking:
            yield app, made, asking


async def test_a_run_is_started_by_form_and_by_json_and_again_with_its_input(store_url: str) -> None:
    async with opened(store_url) as (app, made, asking):
        page = (await asking.get("/workflows/vacation")).text
        for field in ('name="input:json:days"', 'name="input:text:who" value="ada"', 'name="input:json:tags"'):
            assert field in page, field
        fields = {"input:object:": "1", "input:json:days": "5", "input:text:who": "", "input:json:tags": '["x"]'}
        await form(asking, "/runs/start", workflow="vacation", id="first", **fields)
        started = await asking.post(
            "/api/runs/start", json={"workflow": "vacation", "input": {"days": 3}, "id": "second", "after": "1h"}
        )
        assert started.json() == {"message": "second is started", "result": {"run": "second"}, "run": "second"}
        await made.advance("1s")
        assert (await app.runs.get("first")).state == "waiting"
        assert (await app.runs.get("first")).input == {"days": 5, "tags": ["x"]}
        assert (await app.runs.get("second")).state == "scheduled"
        again = (await asking.get("/workflows/vacation?again=first")).text
        assert 'name="input:json:days" value="5"' in again
        assert "with the input of" in again


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"workflow": "vacation", "input": {}}, 400, "needs days"),
        ({"workflow": "vacation", "input": {"days": "five"}}, 400, "days is a whole number"),
        ({"workflow": "vacation", "input": {"days": 1, "who": 3}}, 400, "who is a text"),
        ({"workflow": "vacation", "input": {"days": 1, "when": "now"}}, 400, "has no when"),
        ({"workflow": "nothing", "input": {}}, 404, "no worker has registered"),
        ({"workflow": "vacation", "input": {"days": 1}, "after": "1h", "at": "2030-01-01T00:00:00Z"}, 400, "not both"),
    ],
)
async def test_what_a_function_does_not_take_is_refused(
    sqlite_url: str, body: dict[str, Any], status: int, words: str
) -> None:
    async with opened(sqlite_url) as (app, _, asking):
        answer = await asking.post("/api/runs/start", json=body)
        assert (answer.status_code, words in answer.json()["error"]) == (status, True), answer.text
        assert not (await app.runs.list()).runs


async def test_an_id_that_is_taken_starts_nothing(sqlite_url: str) -> None:
    async with opened(sqlite_url) as (_, _made, asking):
        body = {"workflow": "vacation", "input": {"days": 1}, "id": "one"}
        assert (await asking.post("/api/runs/start", json=body)).status_code == 200
        assert (await asking.post("/api/runs/start", json=body)).status_code == 409


async def test_a_run_says_what_it_waits_for_and_gets_it(store_url: str) -> None:
    async with opened(store_url) as (app, made, asking):
        await asking.post("/api/runs/start", json={"workflow": "vacation", "input": {"days": 1}, "id": "v"})
        await made.advance("1s")
        found = (await asking.get("/api/runs/v")).json()
        waits = {each["name"]: each for each in found["waits"]}
        assert {name: each["kind"] for name, each in waits.items()} == {"limit": "question", "decided": "receive"}
        assert waits["decided"]["expects"]["required"] == ["approved", "by"]
        assert waits["decided"]["due"] is not None
        page = (await asking.get("/runs/v")).text
        for words in ("Waits for the message <b>decided</b>", 'name="value:json:approved"', 'name="value:text:by"'):
            assert words in page, words
        wrong = await asking.post("/api/runs/send", json={"id": "v", "topic": "decided", "value": {"approved": "yes"}})
        assert (wrong.status_code, "needs by" in wrong.json()["error"]) == (400, True)
        await form(asking, "/runs/answer", id="v", question="limit", **{"value:json:": "21"})
        fields = {
            "value:object:": "1",
            "value:json:approved": "true",
            "value:text:by": "grace",
            "value:json:level": '"high"',
        }
        await form(asking, "/runs/send", id="v", topic="decided", **fields)
        await made.advance("1s")
        talk = (await asking.get("/api/runs/v")).json()["conversation"]["messages"]
        assert {each["topic"]: each["answer"] for each in talk} == {"limit": 42, "decided": None}
        sent = await asking.post(
            "/api/runs/send", json={"id": "v", "topic": "note", "value": "fine", "reason": "by phone"}
        )
        assert sent.json()["message"] == "note is sent to v"
        assert await app.handle("v").result() == "ada 1 None True high fine [21]"
        late = await asking.post("/api/runs/send", json={"id": "v", "topic": "note", "value": 1})
        assert (late.status_code, "has succeeded" in late.json()["error"]) == (409, True)
        assert (await asking.post("/api/runs/send", json={"id": "none", "topic": "a"})).status_code == 404
        entries = (await asking.get("/api/audit")).json()["entries"]
        assert [entry["action"] for entry in entries if "error" not in entry["outcome"]] == [
            "runs.send",
            "runs.send",
            "runs.answer",
            "runs.start",
        ]


async def test_runs_that_wait_for_a_message_are_listed_until_they_have_it(store_url: str) -> None:
    async with opened(store_url) as (app, made, asking):
        assert "No run waits for a message" in (await asking.get("/waits")).text
        assert "Waiting for a message" not in (await asking.get("/")).text
        for number in range(3):
            body = {"workflow": "vacation", "input": {"days": number}, "id": f"v-{number}"}
            await asking.post("/api/runs/start", json=body)
            await made.advance("1m")
        await app.runs.cancel("v-2")
        await asking.post(
            "/api/runs/send", json={"id": "v-1", "topic": "decided", "value": {"approved": True, "by": "x"}}
        )
        await made.advance("1s")
        found = (await asking.get("/api/waits")).json()
        assert [(each["run"], each["topic"], each["until"] is None) for each in found["waits"]] == [
            ("v-0", "decided", False),
            ("v-1", "note", True),
        ]
        assert found["groups"][0]["count"] == 1
        assert (await asking.get("/api/waits?topic=note")).json()["waits"][0]["run"] == "v-1"
        for words in ("v-0", "v-1", "never", "vacation: note 1"):
            assert words in (await asking.get("/waits")).text, words
        overview = (await asking.get("/")).text
        assert "Waiting for a message" in overview
        assert 'href="/runs/v-0"' in overview


async def eventually_async(look: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(60):
        while not await look():  # noqa: ASYNC110  (there is nothing to wait on)
            await asyncio.sleep(0.05)


async def test_messages_are_sent_and_questions_answered_from_a_terminal(store_url: str) -> None:
    app = office(store_url)

    async def shell(*words: str) -> Any:
        return await asyncio.to_thread(CliRunner().invoke, main, [*words, "--url", store_url])

    async with app:
        with Client(store_url) as client:
            await client.options(id="v").start("vacation", 2)
        await eventually_async(lambda: app.runs.steps("v"))
        asked = await shell("answer", "v", "limit", "4", "--reason", "to know")
        assert (asked.exit_code, asked.stdout) == (0, "8\n"), asked.output
        for words, code in (
            (("send", "v", "decided", "{"), 2),
            (("send", "v", "decided", '{"approved": true}'), 2),
            (("send", "none", "decided", "1"), 4),
            (("answer", "none", "limit", "1"), 4),
        ):
            refused = await shell(*words)
            assert refused.exit_code == code, (words, refused.output)
        sent = await shell("send", "v", "decided", json.dumps({"approved": False, "by": "ada"}))
        assert (sent.exit_code, sent.stdout) == (0, ""), sent.output
        assert (await shell("send", "v", "note", '"x"', "--key", "k")).exit_code == 0
        assert await app.handle("v").result() == "ada 2 None False low x [4]"
        assert (await shell("send", "v", "note", '"x"')).exit_code == 1
