"""What `redact` hides is nowhere: canaries in every value, looked for in every answer."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Retry, Settings, Spec, run
from mainspring.testing import world
from mainspring.web.site import VIEWS
from tests.web.conftest import BEGIN, Shop, form

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    import httpx

    from mainspring.web import About

CANARY = "canary-7c1e"
HTML = {"accept": "text/html"}
QUERIES = {
    "/runs/timeline": "?id=bad",
    "/runs/count": "?verb=retry&matching=state%3Dfailed",
    "/schedules/preview": '?spec={"cron":["0 9 * * *"]}&id=nightly',
    "/schedules/backfill-preview": "?id=nightly&start=2026-01-01T00:00:00Z&end=2026-01-02T00:00:00Z",
    "/functions": "?state=failed&state=pending&state=success",
}
KINDS = {
    *("input", "output", "error", "attributes", "step", "message", "event", "stream", "log"),
    *("reason", "note", "name", "partition", "key", "action"),
}


class Secretive(Shop):
    """A shop in which every value that can be is a canary."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.app.queue("secret")

    async def fill(self) -> None:
        app = self.app

        @app.step(name=f"step {CANARY}", retry=Retry(3, first=1))
        async def pay(text: str) -> str:
            if run.attempt == 1:
                raise ValueError(f"attempt {text}")
            return text

        @app.workflow
        async def payroll(text: str) -> str:
            await run.set_event(f"event {text}", text)
            await run.write_stream(f"stream {text}", text)
            await pay(text)
            if await run.receive(f"topic {text}") == "fail":
                raise ValueError(text)
            return text

        @app.workflow
        async def broken(text: str) -> str:
            raise ValueError(text)

        options: dict[str, Any] = {"attributes": {CANARY: CANARY}, "queue": "secret", "partition": CANARY}
        for name in ("good", "bad", "stopped", "waits"):
            started = payroll.options(id=name, key=f"{CANARY} {name}", **options)
            await started.start(CANARY)
        await app.send("good", f"topic {CANARY}", CANARY)
        await app.send("bad", f"topic {CANARY}", "fail")
        await self.world.advance("1m")
        await app.runs.cancel("stopped", reason=CANARY)
        await app.run_after("5d", payroll.bind(CANARY))
        await app.run_after(0, broken.bind(CANARY))
        spec = Spec(cron=["0 9 * * *"], timezone="Europe/Paris")
        await app.schedules.create("nightly", broken.bind(CANARY), spec, note=CANARY, attributes={CANARY: CANARY})
        await app.schedules.create("paused", payroll.bind(CANARY), spec)
        await app.schedules.pause("paused", CANARY)
        line = {"run": "good", "at": 1, "level": "INFO", "logger": "shop", "message": CANARY, "step": CANARY}
        line |= {"position": None, "attempt": None, "worker": "w"}
        app._runtime.connection().store.management.keep_logs([line], 1)
        await self.world.advance("2d")


@pytest.fixture
async def secretive(store_url: str) -> AsyncGenerator[Secretive]:
    made = Secretive(store_url)
    async with world(made.app, at=BEGIN, url=store_url) as made.world:
        await made.fill()
        yield made


async def _answers(asking: httpx.AsyncClient) -> list[tuple[str, httpx.Response]]:
    """Every page, its data and the first event of its stream, metrics, and what actions answer."""
    paths = [f"{view.path}{QUERIES.get(view.path, '')}" for view in VIEWS if "{" not in view.path]
    paths += [f"/runs/{each}" for each in ("good", "bad", "stopped")]
    paths += ["/schedules/nightly", "/schedules/paused", "/queues/secret", "/runs/none"]
    found = [(path, await asking.get(path, headers=HTML)) for path in paths]
    found += [(f"/api{path}", await asking.get(f"/api{path}")) for path in paths]
    found += [(path, await asking.get(path)) for path in ("/metrics", "/api/openapi.json", "/healthz", "/readyz")]
    return found


async def _act(asking: httpx.AsyncClient) -> list[tuple[str, httpx.Response]]:
    """Actions whose requests and outcomes have values in them, and the pages that tell of them."""
    asked: list[tuple[str, dict[str, Any]]] = [
        ("/runs/complete", {"ids": ["bad"], "result": f'"{CANARY}"', "reason": CANARY}),
        ("/runs/fail", {"ids": ["stopped"], "reason": CANARY}),
        ("/schedules/trigger", {"id": "nightly", "reason": CANARY}),
        ("/runs/retry", {"ids": [f"no run {CANARY[:3]}"], "reason": CANARY}),
    ]
    found = [(path, await asking.post(f"/api{path}", json=body)) for path, body in asked]
    found.append(("/schedules/pause", await form(asking, "/schedules/pause", id="nightly", reason=CANARY)))
    return [*found, ("/audit", await asking.get("/audit")), ("/api/audit", await asking.get("/api/audit"))]


async def test_what_is_hidden_is_in_no_page_answer_metric_or_log_line(
    secretive: Secretive, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "mainspring.web")
    seen: set[str] = set()

    def redact(value: Any, about: About) -> Any:
        seen.add(about.what)
        return f"[{about.what}]"

    async with secretive.asking() as open_to_all:
        shown = {path for path, answer in await _answers(open_to_all) if CANARY in answer.text}
    assert shown >= {
        "/",
        "/waits",
        "/runs",
        "/runs/good",
        "/runs/bad",
        "/schedules",
        "/schedules/nightly",
        "/queues/secret",
    }
    async with secretive.asking(redact=redact) as asking:
        for path, answer in [*await _answers(asking), *await _act(asking), *await _answers(asking)]:
            assert answer.status_code < 500, (path, answer.text)
            place = answer.text.find(CANARY)
            assert place < 0, (path, answer.text[max(0, place - 200) : place + 50])
            assert CANARY not in str(answer.headers), path
    assert seen == KINDS
    assert CANARY not in "".join(record.getMessage() for record in caplog.records if record.name == "mainspring.web")


def _raise(value: Any, about: About) -> Any:
    raise KeyError(value)


REPLACEMENTS: dict[str, Callable[[Any, About], Any]] = {
    "text": lambda _, __: "hidden",
    "none": lambda _, __: None,
    "number": lambda _, __: 7,
    "list": lambda _, __: [1, {"a": None}],
    "empty": lambda _, __: {},
    "other dict": lambda _, __: {"type": None, "message": ["x"], "traceback": 5, "get": 1, "items": 2},
    "not JSON": lambda _, __: object(),
    "not a number": lambda _, __: float("nan"),
    "the value": lambda value, _: value,
    "raises": _raise,
}


@pytest.mark.parametrize("how", REPLACEMENTS)
async def test_any_replacement_can_be_shown(sqlite_url: str, how: str, caplog: pytest.LogCaptureFixture) -> None:
    made = Secretive(sqlite_url)
    async with world(made.app, at=BEGIN, url=sqlite_url) as made.world:
        await made.fill()
        async with made.asking(redact=REPLACEMENTS[how]) as asking:
            for path, answer in [*await _answers(asking), *await _act(asking), *await _answers(asking)]:
                assert answer.status_code in {200, 303, 404}, (path, answer.text)
                assert how == "the value" or CANARY not in answer.text, path
            page = (await asking.get("/runs/bad")).text
    assert ("[hidden: redact raised KeyError]" in page) is (how == "raises")
    assert ("redact raised KeyError for the input of 'bad'" in caplog.text) is (how == "raises")


async def test_a_filter_by_attributes_tells_nothing_of_those_that_are_hidden(sqlite_url: str) -> None:
    app = App(sqlite_url, name="shop", settings=Settings(poll=0.05))

    @app.workflow
    async def payroll() -> None: ...

    @app.workflow
    async def orders() -> None: ...

    def redact(value: Any, about: About) -> Any:
        return "hidden" if about.workflow == "payroll" else value

    made = Shop.__new__(Shop)
    made.app = app
    async with world(app, at=BEGIN, url=sqlite_url):
        for function in (payroll, orders):
            await function.options(id=function.name, attributes={"tenant": "acme"})()
        async with made.asking(redact=redact) as asking:

            async def found(workflows: list[str]) -> Any:
                asked: dict[str, Any] = {"attributes": '{"tenant": "acme"}', "workflow": workflows}
                answer = await asking.get("/api/runs", params=asked)
                return (
                    [each["id"] for each in answer.json()["runs"]] if answer.status_code == 200 else answer.status_code
                )

            assert await found(["orders"]) == ["orders"]
            assert await found(["payroll"]) == 400
            assert await found(["orders", "payroll"]) == 400
            assert await found([]) == 400
