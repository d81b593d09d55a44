"""`module:app` or a file: finding the app, and saying what is wrong when there is none."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from mainspring.cli.target import load_app
from mainspring.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], Path]]:
    """Writes a file below the current folder, which is a fresh one; what is imported from there is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


ONE = "from mainspring import App\napp = App(name='one')\n"


@pytest.mark.parametrize("target", ["target_a:app", "target_a", "target_a.py:app", "target_a.py", "./target_a.py"])
def test_an_app_is_found_in_the_current_folder(write: Callable[[str, str], Path], target: str) -> None:
    write("target_a.py", ONE)
    assert load_app(target).name == "one"


def test_a_file_in_a_package_is_imported_as_part_of_it(write: Callable[[str, str], Path]) -> None:
    write("target_b/__init__.py", "")
    write("target_b/inner.py", "name = 'one'")
    path = write("target_b/tasks.py", "from mainspring import App\nfrom .inner import name\napp = App(name=name)\n")
    assert load_app(str(path)).name == "one"
    assert "target_b.tasks" in sys.modules


def test_a_file_elsewhere_finds_its_neighbours(write: Callable[[str, str], Path]) -> None:
    write("elsewhere/neighbour.py", "name = 'one'")
    write("elsewhere/target_c.py", "from mainspring import App\nfrom neighbour import name\napp = App(name=name)\n")
    assert load_app("elsewhere/target_c.py").name == "one"


def test_an_app_in_an_object_is_found(write: Callable[[str, str], Path]) -> None:
    write("target_d.py", "from mainspring import App\nclass Shop:\n    app = App(name='one')\n")
    assert load_app("target_d:Shop.app").name == "one"


def test_the_modules_an_app_names_are_imported(write: Callable[[str, str], Path]) -> None:
    write("target_e.py", "from mainspring import App\napp = App(imports=['target_e_tasks'])\n")
    write("target_e_tasks.py", "from target_e import app\n@app.workflow\nasync def far_away() -> None: ...\n")
    assert [function.name for function in load_app("target_e")._runtime.registry] == ["far_away"]


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nowhere:app", "no module 'nowhere'.*here there are broken, several"),
        ("nowhere.py", "no file .*nowhere.py"),
        ("several", "the apps there are several:one, several:two"),
        ("several:three", "several has no 'three'; the apps there are several:one, several:two"),
        ("several:number", "several:number is not an App but int"),
        ("broken", r"broken.py, line 2: ModuleNotFoundError: No module named 'not_installed'"),
        ("broken_syntax.py", r"broken_syntax.py, line 1: SyntaxError"),
        ("empty", "there is no App in it"),
        ("lost_imports", "imports=… cannot be imported: ModuleNotFoundError: No module named 'not_there'"),
        ("wrong_settings", r"wrong_settings.py, line 2: InvalidSettings"),
        (":app", "names no module"),
    ],
)
def test_a_target_that_is_none_is_an_error_that_helps(
    write: Callable[[str, str], Path], target: str, words: str
) -> None:
    write("several.py", "from mainspring import App\none, two, number = App(), App(), 3\n")
    write("broken.py", "\nimport not_installed\n")
    if target == "broken_syntax.py":
        write("broken_syntax.py", "def\n")
    if target == "empty":
        write("empty.py", "")
    if target == "wrong_settings":
        write("wrong_settings.py", "from mainspring import App, Settings\napp = App(settings=Settings(lease=-1))\n")
    if target == "lost_imports":
        write("lost_imports.py", "from mainspring import App\napp = App(imports=['not_there'])\n")
    with pytest.raises(InvalidInput, match=words):
        load_app(target)


def test_a_file_whose_name_is_taken_is_an_error(write: Callable[[str, str], Path]) -> None:
    write("json.py", ONE)
    with pytest.raises(InvalidInput, match="rename the file"):
        load_app("json.py")
