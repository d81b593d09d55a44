"""Load the app of a target: `module:app` or a file."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from mainspring.app.app import App
from mainspring.errors import InvalidInput

if TYPE_CHECKING:
    from types import ModuleType

_OURS = str(Path(__file__).parents[1])


def load_app(target: str) -> App:
    """Return the app of a target: `module:app`, `path/file.py:app`, or without `:app` if there is only one.

    The current folder is importable, as for `python -m`. The modules in the app's `imports` are imported too. Raises `InvalidInput`.
    """
    place, _, attribute = target.partition(":")
    if not place:
        raise InvalidInput(f"{target!r} names no module; write module:app or path/file.py:app")
    _importable(Path.cwd())
    module = _import_file(Path(place)) if place.endswith(".py") or "/" in place else _import_module(place)
    app = _attribute(module, attribute, place) if attribute else _only_app(module, place)
    try:
        app._import_all()  # noqa: SLF001
    except Exception as error:
        raise InvalidInput(
            f"one of the modules that {target} lists in imports=… cannot be imported: {_cause(error)}"
        ) from error
    return app


def beside(target: str, name: str) -> Path | None:
    """Return the file of that name in the folder of a loaded target, or None."""
    place = target.partition(":")[0]
    is_file = place.endswith(".py") or "/" in place
    where = place if is_file else getattr(sys.modules.get(place), "__file__", None) or ""
    found = Path(where).parent / name
    return found if where and found.is_file() else None


def _importable(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _import_file(path: Path) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise InvalidInput(f"there is no file {path}; write path/file.py:app, or module:app for something importable")
    parts, folder = [path.stem], path.parent
    if path.stem == "__init__":
        parts = []
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    _importable(folder)
    name = ".".join(parts)
    module = _import_module(name)
    if Path(module.__file__ or "").resolve() != path:
        raise InvalidInput(
            f"{path} would be imported as {name!r}, but that is {module.__file__ or 'built in'}; rename the file"
        )
    return module


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise InvalidInput(f"{name} cannot be imported: {_cause(error)}") from error
        hint = "; for a file, write its path with .py" if not list(Path.cwd().glob("*.py")) else _files_here()
        raise InvalidInput(
            f"there is no module {error.name!r} in {Path.cwd()} or among the installed ones{hint}"
        ) from error
    except Exception as error:
        raise InvalidInput(f"{name} cannot be imported: {_cause(error)}") from error


def _files_here() -> str:
    names = sorted(path.stem for path in Path.cwd().glob("*.py") if path.stem.isidentifier())
    return f"; here there are {', '.join(names[:10])}" if names else ""


def _attribute(module: ModuleType, path: str, place: str) -> App:
    found: object = module
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise InvalidInput(f"{place} has no {path!r}; {_listed(module, place)}") from None
    if not isinstance(found, App):
        raise InvalidInput(f"{place}:{path} is not an App but {type(found).__name__}; {_listed(module, place)}")
    return found


def _only_app(module: ModuleType, place: str) -> App:
    apps = _apps(module)
    if len({id(app) for app in apps.values()}) != 1:
        raise InvalidInput(f"say which app: {_listed(module, place)}")
    return next(iter(apps.values()))


def _apps(module: ModuleType) -> dict[str, App]:
    return {name: value for name, value in vars(module).items() if isinstance(value, App)}


def _listed(module: ModuleType, place: str) -> str:
    apps = ", ".join(f"{place}:{name}" for name in _apps(module))
    return f"the apps there are {apps}" if apps else "there is no App in it; one is made with app = App(…)"


def _cause(error: BaseException) -> str:
    """Return the error in the user's own code, with its line."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}: {type(error).__name__}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [
        frame for frame in frames if "importlib" not in frame.filename and not frame.filename.startswith((_OURS, "<"))
    ]
    where = f"{theirs[-1].filename}, line {theirs[-1].lineno}: " if theirs else ""
    return f"{where}{type(error).__name__}: {error}"
