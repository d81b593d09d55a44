"""Imports go one way: no two modules import each other, not even for type checkers, and not inside functions."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import mainspring

if TYPE_CHECKING:
    from collections.abc import Container

ROOT = Path(mainspring.__file__ or "").parent


def test_no_module_imports_one_that_imports_it() -> None:
    imports = _imports()
    assert len(imports) > 200
    assert _cycles(imports) == []


def _imports() -> dict[str, set[str]]:
    """All modules of the package, each with those that it imports: on top, under TYPE_CHECKING, or in a function."""
    files = {_name(file): file for file in ROOT.rglob("*.py")}
    return {name: _imported(name, file, files.keys()) for name, file in files.items()}


def _name(file: Path) -> str:
    parts = file.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(name: str, file: Path, modules: Container[str]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    # `from package import module` names both, and depends on the module alone.
    inner = {each for each in found if each in modules}
    packages = {each.rpartition(".")[0] for each in inner}
    return {each for each in inner if each not in packages or _is_used_itself(each, file)} - {name}


def _is_used_itself(package: str, file: Path) -> bool:
    """Whether a name is imported from a package that is no module of it."""
    folder = ROOT.parent.joinpath(*package.split("."))
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == package:
            names = {alias.name for alias in node.names}
            if any(not (folder / f"{name}.py").exists() and not (folder / name).is_dir() for name in names):
                return True
    return False


def _cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected parts with more than one module (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    cycles: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(graph[module]):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            part = [stack.pop()]
            while part[-1] != module:
                part.append(stack.pop())
            if len(part) > 1:
                cycles.append(sorted(part))

    for module in sorted(graph):
        if module not in index:
            visit(module)
    return cycles


def test_a_cycle_is_found() -> None:
    assert _cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
