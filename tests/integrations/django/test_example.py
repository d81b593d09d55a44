"""The example project: its own tests, its server, its worker, its commands."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.support.processes import PROJECT, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.processes


class Shop:
    """A copy of the example, on a database of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder / "django_shop"
        shutil.copytree(PROJECT / "examples" / "django_shop", self.folder, ignore=shutil.ignore_patterns("*.sqlite3*"))
        parts = urlsplit(url)
        self.env = {
            name: value for name, value in os.environ.items() if not name.startswith(("DJANGO_", "MAINSPRING_"))
        }
        if parts.scheme != "sqlite":
            self.env |= {"SHOP_PG_NAME": parts.path[1:], "SHOP_PG_HOST": parse_qs(parts.query)["host"][0]}
        self._started: list[subprocess.Popen[bytes]] = []

    def manage(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def start(self, *arguments: str, **more: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"said-{len(self._started)}").open("wb") as said:
            process = subprocess.Popen(
                [sys.executable, *arguments], cwd=self.folder, env={**self.env, **more}, stdout=said, stderr=said
            )
        self._started.append(process)
        return process

    def said(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("said-*")))

    def stop(self) -> None:
        for process in self._started:
            process.terminate()
        for process in self._started:
            process.wait(60)


@pytest.fixture
def shop(tmp_path: Path, store_url: str) -> Iterator[Shop]:
    made = Shop(tmp_path, store_url)
    yield made
    made.stop()


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        found: int = free.getsockname()[1]
        return found


def _answers(ask: Callable[[], Any]) -> bool:
    try:
        return bool(ask())
    except (httpx.HTTPError, KeyError):
        return False


def test_the_examples_own_tests_pass(shop: Shop) -> None:
    assert "Ran 2 tests" in shop.manage("test", "--noinput")
    assert "no issues" in shop.manage("check")
    assert "No changes" in shop.manage("makemigrations", "--check", "--dry-run")


@pytest.mark.parametrize("server", ["wsgi", "asgi"])
def test_an_order_survives_a_worker_that_is_killed(shop: Shop, port: int, server: str) -> None:
    shop.manage("migrate")
    place = f"http://127.0.0.1:{port}"
    if server == "wsgi":
        shop.start("manage.py", "runserver", "--noreload", str(port))
    else:
        shop.start("-m", "uvicorn", "project.asgi:application", "--port", str(port))
    eventually(
        lambda: _answers(lambda: httpx.get(f"{place}/ops/", timeout=30, verify=False).status_code == 302),
        "it serves",
        120,
    )
    assert httpx.post(f"{place}/orders/", data={"what": ""}, timeout=60, verify=False).status_code == 500
    order = httpx.post(f"{place}/orders/", data={"what": "clock"}, timeout=60, verify=False).json()["order"]
    worker = shop.start("manage.py", "mainspring", "worker")
    said = {"state": "paid", "mails": ["your clock is paid"]}
    eventually(
        lambda: _answers(lambda: httpx.get(f"{place}/orders/{order}/", timeout=60, verify=False).json() == said),
        "it is paid",
        120,
    )
    worker.kill()
    worker.wait()
    runs = json.loads(shop.manage("mainspring", "runs", "list", "-o", "json"))["runs"]
    assert sorted(run["workflow"] for run in runs) == ["fulfil", "shop.tasks.send_mail"]
    assert f"order-{order}" in [run["id"] for run in runs]
    assert httpx.get(f"{place}/ops/api/runs", timeout=60, verify=False).status_code == 302


def test_commands_know_the_projects_app_and_database(shop: Shop) -> None:
    shop.manage("migrate")
    assert '"Order' not in shop.manage("mainspring", "run", "mark", "--help")
    code = "from shop.models import Order; print('made', Order.objects.create(what='lamp').pk)"
    pk = shop.manage("shell", "-c", code).split("made ")[1].split()[0]
    shop.manage("mainspring", "run", "mark", "--args", json.dumps({"order_id": int(pk), "state": "lost"}))
    said = shop.manage("mainspring", "worker", "--once", "--queues", "mail,default")
    assert "shop.tasks.send_mail" in said
    assert "ready" in said
    code = "from shop.models import Mail; print('mails', [mail.text for mail in Mail.objects.all()])"
    assert "mails ['your lamp is lost']" in shop.manage("shell", "-c", code)
    assert "up to date" in shop.manage("mainspring", "db", "migrate")
    assert "mail" in shop.manage("mainspring", "queues", "list")


def test_dev_executes_and_loads_changed_code(shop: Shop, port: int) -> None:
    shop.manage("migrate")
    shop.start("manage.py", "mainspring", "dev", "--port", str(port))
    api = f"http://127.0.0.1:{port}/api/workers"
    eventually(
        lambda: _answers(lambda: httpx.get(api, timeout=30, verify=False).json()["workers"]), "the worker is there", 120
    )
    tasks = shop.folder / "shop" / "tasks.py"
    tasks.write_text(tasks.read_text().replace('"2d"', '"3d"'))
    eventually(lambda: "reloaded" in shop.said(), "it is loaded again", 120)
