"""An extension of Griffe: verbs are shown as users write them.

The library writes a verb once, as a method that returns a coroutine or as an object with `__call__`; users write
`await app.send(…)` or `app.send.sync(…)`. The reference shows one function with its parameters and its result. The verbs of
`app.runs`, `app.schedules` and the other nouns are shown below the attribute they belong to.
"""

from __future__ import annotations

from typing import Any

import griffe

NOUNS = ("queues", "runs", "scheduled_functions", "schedules", "versions", "workers")
"""Attributes of an app that have verbs of their own."""

GIVEN = ("AsyncFn", "Call", "Handle", "Resource", "SyncFn", "Tx", "testing.World")
"""Classes whose objects users are given and do not make: their constructors are not shown."""

_WAITS = "await or .sync"


class Verbs(griffe.Extension):
    """Shows verbs as functions, and nouns as attributes with verbs."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Change what was collected from the package, once all of it is there."""
        classes = [found for found in _all_classes(pkg) if not found.name.startswith("__")]
        for found in classes:
            for name, member in list(found.members.items()):
                _show_verb(pkg, found, name, member)
        for name in GIVEN:
            _hide_constructor(pkg[name].final_target)
        _add_nouns(pkg)


def _hide_constructor(kind: griffe.Class) -> None:
    for each in (kind, *kind.mro()):
        each.members.pop("__init__", None)


def _all_classes(module: griffe.Module) -> list[griffe.Class]:
    found: list[griffe.Class] = []
    for member in module.members.values():
        if member.is_alias:
            continue
        if member.is_module:
            found += _all_classes(member)  # type: ignore[arg-type]
        elif member.is_class:
            found.append(member)  # type: ignore[arg-type]
    return found


def _show_verb(pkg: griffe.Module, owner: griffe.Class, name: str, member: griffe.Object | griffe.Alias) -> None:
    if member.is_alias:
        return
    if member.is_function:
        if any(str(each.value).rsplit(".", 1)[-1] == "dual" for each in member.decorators):
            member.returns = _awaited(member.returns)
            member.parameters = _without_self(member.parameters)
            member.labels.add(_WAITS)
        elif str(member.returns).startswith("Coroutine["):
            member.returns = _awaited(member.returns)
            member.labels.add("await")
        if any(str(each.annotation) == "P.args" for each in member.parameters):
            member.parameters = _without_self(member.parameters)
        return
    if not member.is_attribute or name.startswith("_"):
        return
    kind = _class_named(pkg, member)
    call = None if kind is None else kind.members.get("__call__")
    if call is None or not call.is_function:
        return
    shown = griffe.Function(
        name,
        lineno=member.lineno,
        endlineno=member.endlineno,
        parameters=_without_self(call.parameters),
        returns=_last_argument(member.annotation) or _awaited(call.returns),
        docstring=member.docstring or kind.docstring,
        parent=owner,
    )
    if "sync" in kind.members:
        shown.labels.add(_WAITS)
    owner.members[name] = shown


def _class_named(pkg: griffe.Module, member: Any) -> griffe.Class | None:
    """The class of an attribute: of a property by its annotation, of another by what is called to make it."""
    declared = member.annotation if member.annotation is not None else getattr(member.value, "function", None)
    if declared is None:
        return None
    base = getattr(declared, "left", declared)  # Dual[P, R] is a subscript
    path = getattr(base, "canonical_path", None)
    if not path or not str(path).startswith(f"{pkg.name}."):
        return None
    try:
        found = pkg[str(path).removeprefix(f"{pkg.name}.")]
    except (KeyError, griffe.AliasResolutionError):
        return None
    found = found.final_target if found.is_alias else found
    return found if found.is_class else None  # type: ignore[return-value]


def _last_argument(annotation: Any) -> Any:
    """R of Dual[P, R]."""
    inside = getattr(annotation, "slice", None)
    return inside.elements[-1] if isinstance(inside, griffe.ExprTuple) else None


def _awaited(returns: Any) -> Any:
    """R of Coroutine[Any, Any, R]."""
    if isinstance(returns, griffe.ExprSubscript) and str(returns.left).rsplit(".", 1)[-1] in {"Coroutine", "Future"}:
        inside = returns.slice
        return inside.elements[-1] if isinstance(inside, griffe.ExprTuple) else inside
    return returns


def _without_self(parameters: griffe.Parameters) -> griffe.Parameters:
    kept = [each for each in parameters if each.name != "self"]
    for each in kept:
        if str(each.annotation) in {"P.args", "P.kwargs"}:  # the parameters of the user's function
            each.annotation = None
        if each.kind is griffe.ParameterKind.positional_only and each.name != "name":
            each.kind = griffe.ParameterKind.positional_or_keyword
    return griffe.Parameters(*kept)


def _add_nouns(pkg: griffe.Module) -> None:
    from mainspring import App, run  # noqa: PLC0415  (the package that is documented)

    app = App("sqlite://")
    owner = pkg["App"].final_target
    for noun in NOUNS:
        target = _collected(pkg, type(getattr(app, noun)))
        _hide_constructor(target)
        owner.members[noun] = griffe.Alias(noun, target, parent=owner)
    pkg.members["run"] = griffe.Alias("run", _collected(pkg, type(run)), parent=pkg)


def _collected(pkg: griffe.Module, kind: type[Any]) -> griffe.Object:
    return pkg[f"{kind.__module__}.{kind.__qualname__}".removeprefix(f"{pkg.name}.")]
