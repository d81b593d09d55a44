"""The dashboard behind Django's own login, under WSGI and ASGI."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.test import AsyncClient, Client

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.integrations.django import DjangoApp
    from mainspring.operations.actions import Role


@pytest.fixture
def tasks(bank: DjangoApp) -> Any:
    from tests.integrations.django.bank import tasks  # noqa: PLC0415

    return tasks


@pytest.fixture
def signed_in(bank: DjangoApp, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Client]:
    from mainspring.integrations.django import dashboard  # noqa: PLC0415

    monkeypatch.setattr(dashboard, "_dashboards", {})

    def make(name: str, **rights: Any) -> Client:
        user = User.objects.create_user(name, password="a password", **rights)
        client = Client()
        client.force_login(user)
        return client

    return make


def _cancel(client: Client, run: str) -> int:
    page = client.get(f"/ops/runs/{run}", headers={"accept": "text/html"})
    csrf = re.search(r'name="csrf"\s+value="([^"]+)"', page.content.decode())
    data = {"csrf": csrf[1] if csrf else "", "ids": run, "id": run, "back": "/", "reason": "a test"}
    form = "application/x-www-form-urlencoded"
    return client.post("/ops/runs/cancel", urlencode(data), content_type=form).status_code


def test_nobody_but_staff_sees_it(signed_in: Callable[..., Client]) -> None:
    answer = Client().get("/ops/runs?state=failed")
    assert (answer.status_code, answer.headers["location"]) == (302, "/admin/login/?next=/ops/runs%3Fstate%3Dfailed")
    assert signed_in("guest").get("/ops/").status_code == 403
    page = signed_in("ada", is_staff=True).get("/ops/", headers={"accept": "text/html"})
    assert page.status_code == 200
    assert "/ops/static/" in page.content.decode()
    assert "ada" in page.content.decode()


def test_pages_data_and_assets_are_below_the_prefix(tasks: Any, signed_in: Callable[..., Client]) -> None:
    result = tasks.add.enqueue(1, 2)
    ada = signed_in("ada", is_staff=True)
    assert ada.get(f"/ops/api/runs/{result.id}").json()["run"]["id"] == result.id
    page = ada.get("/ops/runs", headers={"accept": "text/html"}).content.decode()
    assert "tests.integrations.django.bank.tasks.add" in page
    style = re.search(r'href="(/ops/static/[^"]+\.css[^"]*)"', page)
    assert style is not None
    answer = ada.get(style[1])
    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, "text/css")
    assert ada.get("/ops/nothing", headers={"accept": "text/html"}).status_code == 404


@pytest.mark.parametrize(
    ("rights", "role", "status"),
    [
        ({"is_staff": True}, "operator", 200),
        ({"is_staff": True}, "viewer", 403),
        ({"is_staff": True, "is_superuser": True}, "viewer", 200),
    ],
)
def test_roles_say_who_may_act(
    bank: DjangoApp,
    tasks: Any,
    signed_in: Callable[..., Client],
    monkeypatch: pytest.MonkeyPatch,
    rights: dict[str, bool],
    role: Role,
    status: int,
) -> None:
    from dataclasses import replace  # noqa: PLC0415

    monkeypatch.setattr(bank, "configuration", replace(bank.configuration, staff_role=role))
    result = tasks.add.enqueue(1, 2)
    ada = signed_in("ada", **rights)
    answer = ada.post("/ops/api/runs/cancel", {"ids": [result.id], "reason": "a test"}, content_type="application/json")
    assert answer.status_code == status
    foreign = ada.post(
        "/ops/api/runs/cancel",
        {"ids": [result.id]},
        content_type="application/json",
        headers={"origin": "https://evil.example"},
    )
    assert foreign.status_code == 403
    if status == 200:
        (entry,) = ada.get("/ops/api/audit").json()["entries"]
        assert (entry["who"], entry["reason"]) == ("ada", "a test")


def test_a_form_works_with_djangos_middleware_around_it(
    bank: DjangoApp, tasks: Any, signed_in: Callable[..., Client]
) -> None:
    result = tasks.add.enqueue(1, 2)
    ada = signed_in("ada", is_staff=True)
    assert _cancel(ada, result.id) == 303
    assert bank.runs.get.sync(result.id).state == "cancelled"


def test_under_wsgi_an_open_page_asks_again_and_holds_no_thread(signed_in: Callable[..., Client]) -> None:
    answer = signed_in("ada", is_staff=True).get("/ops/live?page=/runs")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert b"event: fresh" in answer.content


def test_under_asgi_an_open_page_is_told(bank: DjangoApp, tasks: Any, signed_in: Callable[..., Client]) -> None:
    user = User.objects.create_user("ada", is_staff=True)
    client = AsyncClient()
    client.force_login(user)

    async def changed() -> bool:
        """Whether a stream that has shown a page tells that it has changed. One that comes to its end before is asked for again."""
        answer = cast("Any", await client.get("/ops/live?page=/runs"))
        stream = answer.streaming_content.__aiter__()
        assert b"retry" in await anext(stream)
        assert b"event: fresh" in await anext(stream)
        await tasks.add.aenqueue(1, 2)
        try:
            return b"event: changed" in await anext(stream, b"")
        finally:
            await stream.aclose()

    async def notified() -> bool:
        async with asyncio.timeout(200):
            for _ in range(5):
                if await changed():
                    return True
        return False

    assert asyncio.run(notified())
