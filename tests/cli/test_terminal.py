"""What reaches a terminal: no control of it by others' texts, tables that fit, exit codes that scripts can go by."""

from __future__ import annotations

import json
import logging
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mainspring import App, Settings, Spec
from mainspring.cli import display
from mainspring.cli.terminal import SafeFormatter
from mainspring.cli.worker import print_runs
from tests.cli import shop

if TYPE_CHECKING:
    from tests.cli.conftest import Mainspring

EVIL = "\x1b[2J\x1b[H\x1b]0;HACKED\x07\x1b]52;c;cHduZWQ=\x07\x9b31m\r\x08\x7f\u202egnp\u2066\u2028<end>"
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]")
STYLE = re.compile("\x1b\\[[0-9;]*m")


@pytest.fixture
async def hostile(sqlite_url: str) -> str:
    """A database in which everything that somebody else may write is hostile."""
    app = App(sqlite_url, name="hostile", settings=Settings(poll=0.05))

    @app.step(name="say")
    async def say(text: str) -> str:
        return text

    @app.workflow
    async def doomed(text: str) -> None:
        await say(text)
        raise ValueError(f"no such article:\n{text}")

    async with app:
        with pytest.raises(ValueError, match="article"):
            await doomed.options(id="bad-1", attributes={"text": EVIL})(EVIL)
        await app.schedules.create("nightly", doomed.bind(EVIL), Spec(cron=["0 9 * * *"]), note=EVIL)
        await app.schedules.pause("nightly", EVIL)
        line = {"run": "bad-1", "at": 1, "level": "INFO", "logger": EVIL, "message": EVIL, "step": EVIL}
        line |= {"position": None, "attempt": None, "worker": "w"}
        app._runtime.connection().store.management.keep_logs([line], 1)
    return sqlite_url


COMMANDS = [
    ("runs", "list"),
    ("runs", "show", "bad-1"),
    ("runs", "list", "-o", "json"),
    ("runs", "show", "bad-1", "-o", "json"),
    ("runs", "show", f"none{EVIL}".replace("\x00", "")),
    ("schedules", "list"),
    ("schedules", "show", "nightly"),
    ("schedules", "show", "nightly", "-o", "json"),
    ("schedules", "preview", EVIL),
    ("runs", "count", "--by", "workflow"),
    ("-v", "runs", "show", EVIL),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command)[:30].split("\x1b")[0])
def test_no_text_of_others_controls_what_reads_the_output(
    hostile: str, mainspring: Mainspring, command: tuple[str, ...]
) -> None:
    url = ["--url", hostile] if "preview" not in command else []
    result = mainspring(*command, *url)
    for written in (result.stdout, result.stderr):
        assert not CONTROLS.search(written), written
    if result.exit_code == 0 and command[-1] == "json":
        assert "<end>" in str(json.loads(result.stdout))


def on_a_terminal(*arguments: str, columns: int = 80) -> str:
    """What a command writes to a terminal."""
    main, secondary = pty.openpty()
    environment = os.environ | {"COLUMNS": str(columns), "TERM": "xterm", "LINES": "50"}
    command = [sys.executable, "-m", "mainspring", *arguments]
    with subprocess.Popen(command, stdin=secondary, stdout=secondary, stderr=secondary, env=environment) as process:
        os.close(secondary)
        written = b""
        while True:
            try:
                chunk = os.read(main, 65_536)
            except OSError:  # the other end is closed
                break
            written += chunk
        process.wait(30)
    os.close(main)
    return written.decode().replace("\r\n", "\n")


@pytest.mark.processes
def test_a_terminal_gets_our_styles_and_no_other_control(hostile: str) -> None:
    written = on_a_terminal("runs", "show", "bad-1", "--url", hostile)
    assert STYLE.search(written)
    assert not CONTROLS.search(STYLE.sub("", written))
    assert "\\x1b[2J" in written
    assert "\\u202e" in written
    listed = on_a_terminal("runs", "list", "--url", hostile)
    assert max(len(line) for line in STYLE.sub("", listed).splitlines()) <= 80
    assert re.search(r"^bad-1 ", STYLE.sub("", listed), re.MULTILINE)


async def test_what_dev_and_worker_say_of_runs_controls_no_terminal(
    sqlite_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    app = App(sqlite_url, name="hostile", settings=Settings(poll=0.05))

    @app.workflow
    async def doomed(text: str) -> None:
        raise ValueError(f"no such article:\n{text}")

    print_runs(app)
    async with app:
        with pytest.raises(ValueError, match="article"):
            await doomed.options(id="bad-1")(EVIL)
    (line,) = capsys.readouterr().err.splitlines()  # a line that a message has in it would look like another run's
    assert not CONTROLS.search(line)
    assert "<end>" in line
    record = logging.LogRecord("mainspring", logging.ERROR, __file__, 1, "failed: %s", (EVIL,), None)
    assert not CONTROLS.search(SafeFormatter("%(message)s").format(record))


ROWS = [
    ("nightly-2026-03-28T08:00:00.123456Z", "import_all", "succeeded", "11 min ago", "1 min 5 s", ""),
    ("1kmqbtvv0tys9ypgs2mfav9", "checkout", "failed", "2 d ago", "300 ms", f"ConnectionError: {'no answer ' * 8}"),
    ("日本語-order", "ship", "cancelled", "3 h ago", "", "by hand"),
]


@pytest.mark.parametrize("columns", [40, 60, 80, 120, 200])
def test_a_table_fits_the_terminal_and_breaks_no_word(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(display, "is_terminal", lambda: True)
    display.table(("ID", "WORKFLOW", "STATE", "CREATED", "TOOK", "NOTE"), ROWS)
    written = capsys.readouterr().out
    assert max(display.cell_len(line) for line in written.splitlines()) <= columns
    words = set(written.split())
    for row in ROWS:
        for cell in row:
            assert set(cell.split()) <= words
    if columns >= 120:
        assert written.splitlines()[1].split()[:3] == list(ROWS[0][:3])


def test_a_table_elsewhere_is_one_line_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    display.table(("ID", "NOTE"), [("a", "word " * 100), ("b", "two\nlines")])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["ID", "a", "b"]


@pytest.mark.parametrize("verb", [("complete",), ("fail",), ("resume",), ("retry",), ("reschedule", "--after", "1h")])
async def test_exit_codes_tell_what_was_not_there_from_what_was_not_done(
    history: str, mainspring: Mainspring, verb: tuple[str, ...]
) -> None:
    name, *options = verb
    missing = mainspring("runs", name, "nope", *options, "--url", history)
    assert missing.exit_code == 4
    assert missing.stdout == ""
    assert "run 'nope' not found" in missing.stderr
    ended = mainspring("runs", name, "order-1", *options, "--url", history)
    assert (ended.exit_code, ended.stdout) == (1, "")


async def test_a_queue_that_is_not_there_cannot_be_deleted(history: str, mainspring: Mainspring) -> None:
    result = mainspring("queues", "delete", "nope", "--url", history)
    assert (result.exit_code, "no queue 'nope'" in result.stderr) == (4, True)


async def test_a_cursor_that_no_page_gave_is_refused(history: str, mainspring: Mainspring) -> None:
    result = mainspring("runs", "list", "--after", "nonsense", "--url", history)
    assert (result.exit_code, result.stdout) == (2, "")
    first = mainspring("runs", "list", "--limit", "1", "-o", "json", "--url", history)
    after = json.loads(first.stdout)["next"]
    assert mainspring("runs", "list", "--after", after, "--url", history).exit_code == 0


@pytest.mark.processes
@pytest.mark.parametrize(
    "command",
    [("runs", "list"), ("runs", "list", "-o", "jsonl"), ("runs", "show", "order-1"), ("runs", "watch", "order-1")],
    ids=" ".join,
)
def test_a_reader_that_has_left_is_no_error(history: str, command: tuple[str, ...]) -> None:
    """As in `mainspring runs list | head`."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "mainspring", *command],
        env=os.environ | {"MAINSPRING_URL": history},
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing)
    assert done.stderr == b""


@pytest.mark.processes
def test_a_closed_stdout_is_no_error(hostile: str) -> None:
    closed = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -m mainspring runs list --url {hostile} >&-'],
        check=False,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert (closed.returncode, closed.stderr) == (0, "")


async def test_a_run_in_a_queue_that_does_not_exist_is_a_finding(
    client: App, store_url: str, mainspring: Mainspring
) -> None:
    await shop.ship.options(id="lost", queue="nowhere").start(1)
    found = mainspring("doctor", "--url", store_url)
    assert found.exit_code == 1
    assert re.search(r"wrong +queue +queue 'nowhere' does not exist, and 1 run waits for it", found.stdout)


async def test_one_is_one(history: str, mainspring: Mainspring, tmp_path: Path) -> None:
    exported = mainspring("runs", "export", "bad-1", "--url", history).stdout
    file = tmp_path / "bad.jsonl"
    file.write_text(exported)
    url = f"sqlite:///{tmp_path / 'other.db'}"
    mainspring("db", "migrate", "--url", url)
    assert mainspring("runs", "load", str(file), "--url", url).stderr == "1 run loaded\n"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("words", "at", "expected"),
    [
        ("mainspring ru", 1, {"plain,run", "plain,runs"}),
        ("mainspring runs re", 2, {"plain,resume", "plain,retry", "plain,reschedule"}),
        ("mainspring runs list --sta", 3, {"plain,--state", "plain,--started-after"}),
        ("mainspring runs list --state fa", 4, {"plain,failed"}),
    ],
    ids=["a noun", "a verb", "an option", "a value"],
)
def test_a_shell_completes_nouns_verbs_options_and_values(words: str, at: int, expected: set[str]) -> None:
    program = Path(sys.executable).parent / "mainspring"
    environment = os.environ | {"_MAINSPRING_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(at)}
    found = subprocess.run([program], env=environment, check=False, capture_output=True, text=True).stdout
    assert expected <= set(found.split()), found
    for shell in ("bash", "zsh", "fish"):
        environment = os.environ | {"_MAINSPRING_COMPLETE": f"{shell}_source"}
        script = subprocess.run([program], env=environment, check=False, capture_output=True, text=True)
        assert (script.returncode, "mainspring" in script.stdout) == (0, True)
