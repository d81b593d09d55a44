"""`mainspring dev` and `mainspring ui`, as processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.conftest import Mainspring

pytestmark = pytest.mark.processes

CODE = """
from mainspring import App, Spec

app = App("sqlite:///dev.db", name="devshop")
app.queue("slow")

@app.workflow
async def greet() -> str:
    return "{word}"

app.schedule("hello", greet.bind(), Spec(intervals=["1s"]))
app.schedule("yearly", greet.bind(), Spec(cron=["0 0 1 1 *"]))
"""


class Running:
    """A command at work, and what it has said."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._said = folder / "said"
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mainspring", *arguments], cwd=folder, stdout=said, stderr=said
            )

    @property
    def said(self) -> str:
        return self._said.read_text()

    def says(self, words: str) -> None:
        eventually(lambda: words in self.said or self.process.poll() is not None, f"it says {words!r}")
        assert words in self.said, self.said

    def get(self, path: str) -> Any:
        place = re.search(r"(http://\S+:\d+)/", self.said)
        assert place is not None
        return httpx.get(place[1] + path, timeout=20, verify=False)

    def results(self) -> set[str]:
        ended = self.get("/api/runs?state=succeeded").json()["runs"]
        return {self.get(f"/api/runs/{run['id']}").json()["run"]["output"] for run in ended}

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(30)


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Running]:
    (tmp_path / "shop.py").write_text(CODE.format(word="first"))
    made = Running(tmp_path, "dev", "shop.py", "--port", "0")
    yield made
    made.process.terminate()
    made.process.wait(30)


def test_one_command_executes_shows_and_reloads_and_broken_code_stops_nothing(dev: Running, tmp_path: Path) -> None:
    dev.says("files are watched")
    assert re.search(r"workflows +greet", dev.said)
    assert re.search(r"schedule +hello: Every second; next \d{4}-", dev.said)
    assert re.search(r"queues +slow", dev.said)
    eventually(lambda: "first" in dev.results(), "the schedule has started a run")
    dev.says("succeeded  greet  hello-")
    assert "devshop" in dev.get("/").text

    (tmp_path / "shop.py").write_text(CODE.format(word="broken") + "\ndef broken(:\n")
    dev.says("the old code continues")
    assert 'shop.py", line' in dev.said
    assert "SyntaxError" in dev.get("/").text
    before = len(dev.get("/api/runs?limit=500").json()["runs"])
    eventually(lambda: len(dev.get("/api/runs?limit=500").json()["runs"]) > before, "the old code goes on")

    (tmp_path / "shop.py").write_text(CODE.format(word="second"))
    dev.says("reloaded, version")
    eventually(lambda: "second" in dev.results(), "the new code is at work")
    assert "SyntaxError" not in dev.get("/").text
    assert "broken" not in dev.results()
    assert dev.stop() == 0


SLOW = """
import os, pathlib, time
from mainspring import App, Spec

app = App("sqlite:///dev.db", name="devshop")

@app.step
def long() -> None:
    pathlib.Path("step").write_text(str(os.getpid()))
    time.sleep(3_600)

@app.workflow
async def wait() -> None:
    await long.aio()

app.schedule("hello", wait.bind(), Spec(intervals=["1s"]))
"""


def test_a_second_interrupt_ends_the_worker_before_the_prompt_comes_back(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SLOW)
    dev = Running(tmp_path, "dev", "shop.py", "--port", "0")
    try:
        written = tmp_path / "step"
        eventually(lambda: written.exists() and bool(written.read_text()), "a step is under way")
        worker = int(written.read_text())
        dev.process.send_signal(signal.SIGINT)
        dev.says("stopping")
        dev.process.send_signal(signal.SIGINT)
        assert dev.process.wait(30) == 130
        eventually(lambda: not _is_there(worker), "the kernel has ended the worker", within=2)
    finally:
        dev.process.kill()
        dev.process.wait(30)


def test_the_dashboard_is_left_without_a_traceback_while_a_page_is_open(tmp_path: Path, mainspring: Mainspring) -> None:
    url = f"sqlite:///{tmp_path / 'some.db'}"
    assert mainspring("db", "migrate", "--url", url).exit_code == 0
    ui = Running(tmp_path, "ui", "--url", url, "--port", "0")
    try:
        ui.says("stops it")
        place = re.search(r"(http://\S+:\d+)/", ui.said)
        assert place is not None
        with httpx.stream("GET", f"{place[1]}/live?page=/runs", timeout=20) as page:
            lines = page.iter_lines()
            while next(lines) != "event: fresh":
                pass
            assert ui.stop() == 0
        assert "Traceback" not in ui.said
        assert ui.said.splitlines()[-1].endswith("stops it")
    finally:
        ui.process.kill()
        ui.process.wait(30)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGHUP], ids=["killed", "terminal-closed"])
def test_no_worker_is_left_behind(dev: Running, tmp_path: Path, mainspring: Mainspring, how: signal.Signals) -> None:
    dev.says("succeeded  greet  hello-")
    dev.process.send_signal(how)
    dev.process.wait(30)
    url = f"sqlite:///{tmp_path / 'dev.db'}"

    def workers() -> list[str]:
        listed = mainspring("workers", "list", "-o", "ids", "--url", url)
        assert listed.exit_code == 0, listed.stderr
        return listed.stdout.split()

    eventually(lambda: workers() == [], "the worker has gone in order")


def test_who_removes_the_database_begins_anew(dev: Running, tmp_path: Path) -> None:
    dev.says("succeeded  greet  hello-")
    first = dev.get("/api/runs?limit=500").json()["runs"][-1]["id"]
    for file in tmp_path.glob("dev.db*"):
        file.unlink()
    dev.says("the database was removed or replaced")
    eventually(
        lambda: dev.get("/readyz").status_code == 200 and bool(dev.get("/api/runs").json()["runs"]),
        "runs of the new database are shown",
    )
    assert dev.get(f"/api/runs/{first}").status_code == 404
    assert dev.stop() == 0


def test_code_that_does_not_load_is_refused_at_the_start(mainspring: Mainspring, tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text("import nonsense_that_is_not_there\n")
    result = mainspring("dev", str(tmp_path / "wrong.py"))
    assert result.exit_code == 1
    assert "nonsense_that_is_not_there" in result.stderr


def test_a_file_that_is_not_there_is_told_without_where_that_was_found_out(
    mainspring: Mainspring, tmp_path: Path
) -> None:
    refused = mainspring("dev", str(tmp_path / "none.py"))
    assert refused.exit_code == 1
    assert refused.stderr.splitlines()[1].startswith(f"there is no file {tmp_path / 'none.py'}; write path/file.py:app")


def test_the_dashboard_of_a_database_needs_no_code(tmp_path: Path, mainspring: Mainspring) -> None:
    url = f"sqlite:///{tmp_path / 'some.db'}"
    assert mainspring("db", "migrate", "--url", url).exit_code == 0
    ui = Running(tmp_path, "ui", "--url", url, "--port", "0", "--token", "a-long-secret-of-ours")
    try:
        ui.says("open")
        assert ui.get("/api/runs").status_code == 401
        assert ui.get("/healthz").json() == {"status": "ok"}
        assert ui.get("/readyz").json() == {"status": "ok"}
        assert ui.stop() == 0
    finally:
        ui.process.kill()
        ui.process.wait(30)


def test_a_program_that_runs_when_it_is_imported_is_told_where_to_do_so(tmp_path: Path) -> None:
    endless = "\nimport os, pathlib, time\npathlib.Path('loading').write_text(str(os.getpid()))\ntime.sleep(3_600)\n"
    (tmp_path / "shop.py").write_text(CODE.format(word="first") + endless)
    loading = Running(tmp_path, "dev", "shop.py", "--port", "0")
    try:
        loading.says("still being loaded")
        assert '`if __name__ == "__main__":`' in loading.said
    finally:
        loading.stop()
    child = int((tmp_path / "loading").read_text())
    eventually(lambda: not _is_there(child), "what was loading it is gone")


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _not_there(name: str) -> None:
    """What find_spec says of a package that is not installed."""


@pytest.mark.parametrize("command", ["dev", "ui"])
def test_a_dashboard_without_its_extra_says_what_to_install(
    command: str, mainspring: Mainspring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.cli.ui.find_spec", _not_there)
    said = mainspring(command, *(["shop.py"] if command == "dev" else []))
    assert (said.exit_code, "pip install 'mainspring[web]'" in said.stderr) == (1, True)


def test_a_database_that_is_not_there_is_told_beside_those_that_are(
    mainspring: Mainspring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mainspring("db", "migrate", "--url", "sqlite:///orders.db")
    said = mainspring("runs", "list")
    assert (said.exit_code, "there is orders.db" in said.stderr) == (1, True)


def test_others_are_not_let_in_by_accident(mainspring: Mainspring, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'some.db'}"
    missing = mainspring("ui", "--url", url)
    assert (missing.exit_code, "there is no database file" in missing.stderr) == (1, True)
    mainspring("db", "migrate", "--url", url)
    open_to_all = mainspring("ui", "--url", url, "--host", "0.0.0.0", "--port", "0")
    assert (open_to_all.exit_code, "--token" in open_to_all.stderr) == (2, True)
