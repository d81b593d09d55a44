"""The functions of an app, by name, each with what the engine needs to execute it, and the named instances of their classes."""

from __future__ import annotations

import hashlib
import importlib
import inspect
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from mainspring.codec import CallCodec
from mainspring.codec.calls import for_single_input
from mainspring.engine.batch_outcomes import alone, alone_async
from mainspring.engine.retry import Retry
from mainspring.engine.source import source_of
from mainspring.engine.transaction_parameter import wanted
from mainspring.errors import AlreadyRegistered, InvalidInput, UnknownFunction
from mainspring.model.given import check_flag, check_text
from mainspring.recurrence.durations import micros
from mainspring.store.external.tx import ISOLATION, Wants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta

    from mainspring.store.external.other_database import OtherDatabase
    from mainspring.store.external.transactions import Within


FOR_EVER = 2**62


class Bound(Enum):
    """The kind of a function's first parameter."""

    NOT = "an argument like the others"
    INSTANCE = "the instance of a method"
    CLASS = "the class of a classmethod"


@dataclass(slots=True)
class Function:
    """A registered function. `bound` is the kind of its first parameter: a plain one, an instance or a class."""

    name: str
    kind: str
    fn: Callable[..., Any]
    is_async: bool
    codec: CallCodec
    source: str
    retry: Retry = field(default_factory=lambda: Retry(1))
    timeout: int | None = None
    queue: str | None = None
    """The queue of the function's runs, unless a start names another one."""
    at_most_once: bool = False
    interruptible: bool = False
    bound: Bound = Bound.NOT
    wants: Wants | None = None
    """The type of connection or session that a transaction's function receives as its first argument."""
    isolation: str | None = None
    database: OtherDatabase | None = None
    """The database of a transaction, if not the app's own."""
    within: Within | None = None
    """Opens the transaction, if it is executed on a connection of the user's."""
    retention: int | None = None
    """Retention of the function's ended runs, in microseconds; None: the setting."""
    keep_last: int | None = None
    """Number of the function's ended runs to keep; None: the setting."""

    max_recoveries: int | None = None
    """Most recoveries of a run before it fails; None: the setting."""
    batch: int | None = None
    """Most inputs of one call of a batch function; None: the function takes the arguments of one call."""

    asks_for_patches: bool = False
    """Whether the function calls `run.patched`, so that it may continue runs begun by older source. The fingerprint says so."""

    on_loop: bool = field(init=False)
    """Whether the function's runs are executed on the event loop: those of an `async def` or of a batch function."""
    fingerprint: str = field(init=False)
    """A hash of the function's name and source: equal for equal source on every machine."""

    def __post_init__(self) -> None:
        self.on_loop = self.is_async or self.batch is not None
        found = hashlib.sha256(f"{self.name}\n{self.source}".encode()).hexdigest()[:16]
        self.fingerprint = f"patched-{found}" if self.asks_for_patches else found

    def call_plainly(self, *args: Any, **kwargs: Any) -> Any:
        """Call a step outside of runs, as a plain function; a batch function with a batch of one."""
        if self.batch is None:
            return self.fn(*args, **kwargs)
        self.codec.bind_and_encode(args, kwargs)
        value = args[0] if args else next(iter(kwargs.values()))
        return alone_async(self.name, self.fn, value) if self.is_async else alone(self.name, self.fn, value)


class Registry:
    """Functions by name. Registering a name twice is an error, unless the source is the same, as after a reload, or was typed
    again at a prompt or in a notebook.
    """

    def __init__(self) -> None:
        self._functions: dict[str, Function] = {}

    def add(self, function: Function) -> None:
        self.known(function)
        self._functions[function.name] = function

    def get(self, name: str) -> Function:
        try:
            return self._functions[name]
        except KeyError:
            known = ", ".join(sorted(self._functions)) or "none"
            raise UnknownFunction(f"no function is registered as {name!r}; registered are: {known}") from None

    def find(self, name: str) -> Function | None:
        return self._functions.get(name)

    def known(self, function: Function) -> Function:
        """Return this registry's form of a function, if it has one (after a reload, in a simulated process), otherwise the function itself.

        Raises `AlreadyRegistered` if it has another function of that name, such as that of another app.
        """
        there = self._functions.get(function.name, function)
        if (
            there is not function
            and (there.kind, there.source) != (function.kind, function.source)
            and not (_is_from_prompt(there.fn) and _is_from_prompt(function.fn))
        ):
            raise AlreadyRegistered(
                f"two functions are called {function.name!r}: {_where(there.fn)} and {_where(function.fn)}; "
                "give one of them another name with name=…"
            )
        return there

    def __iter__(self) -> Iterator[Function]:
        return iter(self._functions.values())

    def recovery_limits(self) -> dict[str, int]:
        """Return `max_recoveries` of each function that sets it."""
        return {each.name: each.max_recoveries for each in self if each.max_recoveries is not None}

    def version(self, more: str = "") -> str:
        """A hash of all workflows and of the app's declarations: the app's version, unless one is given."""
        prints = sorted(function.fingerprint for function in self if function.kind == "workflow")
        prints += [more] if more else []
        return hashlib.sha256("\n".join(prints).encode()).hexdigest()[:12]


def make(
    fn: Callable[..., Any],
    kind: str,
    *,
    name: str | None,
    full_name: Callable[[str], str],
    retry: Retry | int | None,
    timeout: timedelta | float | str | None,
    queue: str | None = None,
    at_most_once: bool = False,
    interruptible: bool = False,
    isolation: str | None = None,
    database: OtherDatabase | None = None,
    within: Within | None = None,
    retention: timedelta | float | str | None = None,
    keep_last: int | None = None,
    batch: int | None = None,
    max_recoveries: int | None = None,
) -> Function:
    """Register a function: inspect it once, and raise an error for anything wrong with it."""
    is_class_method = isinstance(fn, classmethod)
    fn = inside(fn)
    if not (inspect.isfunction(fn) or inspect.ismethod(fn)):
        raise InvalidInput(
            f"{fn!r} is not a function that is written with `def` or `async def`, and cannot be a {kind}"
        )
    title = check_text("the name of a function", name) if name is not None else _own_name(fn)
    check_flag("at_most_once", at_most_once)
    check_flag("interruptible", interruptible)
    if not title.strip():
        raise InvalidInput(f"{fn!r} needs a name: give one with name=…")
    title = full_name(title)
    if not is_class_method and _first_of_method(fn) == "cls":
        raise InvalidInput(
            f"{title!r} takes cls and is not a classmethod here; write @classmethod below @app.{kind}, directly above the function"
        )
    bound = Bound.CLASS if is_class_method else Bound.INSTANCE if _first_of_method(fn) == "self" else Bound.NOT
    if at_most_once and Retry.of(retry).attempts > 1:
        raise InvalidInput(f"{title!r} is never started a second time (at_most_once), so it cannot be retried")
    if interruptible and not inspect.iscoroutinefunction(fn):
        raise InvalidInput(
            f"{title!r} is a `def` {kind}, which works on a thread and cannot be interrupted; write it as `async def`, or leave "
            "out interruptible"
        )
    if batch is not None:
        _check_batch(title, batch, bound, interruptible=interruptible)
    place = None if kind != "transaction" or within is not None else 0 if bound is Bound.NOT else 1
    if within is not None:
        _check_within(fn, title, isolation, database)
    if isolation is not None and isolation not in ISOLATION:
        raise InvalidInput(f"{title!r}: isolation is one of {', '.join(ISOLATION)}, not {isolation!r}")
    if database is not None and inspect.iscoroutinefunction(fn) and not database.can_be_awaited:
        raise InvalidInput(
            f"{title!r} is `async def`, which works with the URL of a PostgreSQL or an AsyncEngine; in {database!r} write it as `def` and call it "
            f"with `await {title}.aio(…)`"
        )
    source = source_of(fn)
    return Function(
        name=title,
        kind=kind,
        fn=fn,
        is_async=inspect.iscoroutinefunction(fn),
        codec=CallCodec(fn if batch is None else for_single_input(fn, title), name=title, skip=place),
        source=source.text,
        asks_for_patches=source.asks_for_patches,
        retry=Retry.of(retry),
        timeout=_positive(timeout, f"the timeout of {title!r}"),
        queue=queue,
        at_most_once=at_most_once,
        interruptible=interruptible,
        bound=bound,
        wants=Wants.NOTHING if within is not None else None if place is None else wanted(fn, place, title),
        isolation=isolation,
        database=database,
        within=within,
        retention=_retention(retention, title),
        keep_last=_at_least(1, keep_last, f"{title!r}: keep_last"),
        batch=batch,
        max_recoveries=_at_least(0, max_recoveries, f"{title!r}: max_recoveries"),
    )


def _at_least(low: int, number: int | None, what: str) -> int | None:
    if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < low):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"{what} is a whole number from {low}, not {number!r}")
    return number


def _check_batch(title: str, batch: int, bound: Bound, *, interruptible: bool) -> None:
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"{title!r}: batch is the largest number of inputs, 1 or more, not {batch!r}")
    if bound is not Bound.NOT:
        raise InvalidInput(f"{title!r} is a method; a batch function is a plain function")
    if interruptible:
        raise InvalidInput(f"{title!r}: a batch is shared by several runs, so one of them cannot interrupt it")


def _check_within(fn: Callable[..., Any], title: str, isolation: str | None, database: OtherDatabase | None) -> None:
    if inspect.iscoroutinefunction(fn):
        raise InvalidInput(
            f"{title!r} is `async def`, and within= opens a transaction on a connection that blocks; write it as `def` and call it "
            f"with `await {title}.aio(…)`"
        )
    if isolation is not None or database is not None:
        raise InvalidInput(
            f"{title!r}: within= opens the transaction, so the isolation level and the database are its own; leave out "
            "isolation= and database="
        )


def inside(fn: Any) -> Any:
    """Return the function inside a classmethod or staticmethod; any other object unchanged."""
    return fn.__func__ if isinstance(fn, (classmethod, staticmethod)) else fn  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def _own_name(fn: Callable[..., Any]) -> str:
    """Return the function's qualified name, without the function in which it was defined."""
    return fn.__qualname__.rpartition("<locals>.")[2]


def _positive(length: timedelta | float | str | None, what: str) -> int | None:
    if length is None:
        return None
    found = micros(length)
    if found <= 0:
        raise InvalidInput(f"{what} must be longer than zero, not {length!r}")
    return found


def _retention(length: timedelta | float | str | None, name: str) -> int | None:
    return FOR_EVER if length == "forever" else _positive(length, f"the retention of {name!r}")


def _first_of_method(fn: Callable[..., Any]) -> str:
    """Return the name of the first parameter if `fn` was written in a class body: a method's `self` is the instance."""
    scope = fn.__qualname__.rpartition(".")[0]
    in_class = bool(scope) and not scope.endswith("<locals>")
    return next(iter(inspect.signature(fn).parameters), "") if in_class else ""


def _is_from_prompt(fn: Callable[..., Any]) -> bool:
    """Whether a function was written at a prompt or in a notebook cell, where code is edited and executed again."""
    code = getattr(fn, "__code__", None)
    name = "" if code is None else code.co_filename
    return (
        name in {"<stdin>", "<console>"} or name.startswith(("<ipython-input", "<python-input")) or "ipykernel_" in name
    )


def _where(fn: Callable[..., Any]) -> str:
    code = getattr(fn, "__code__", None)
    return f"{fn.__module__}, line {code.co_firstlineno}" if code is not None else fn.__module__


class Instances:
    """Objects whose methods are workflows, by the names under which stored calls refer to them: `app.instance("name", obj)`."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._by_name: dict[str, Any] = {}

    def add(self, name: str, obj: Any) -> None:
        there = self._by_name.setdefault(name, obj)
        if there is not obj:
            raise InvalidInput(f"the instance name {name!r} is taken by {there!r}")

    def name_of(self, function: Function, receiver: Any) -> str:
        """The name under which a stored call refers to the instance or class that a method is called on."""
        if function.bound is Bound.CLASS:
            return _class_name(receiver)
        for name, instance in self._by_name.items():
            if instance is receiver:
                return name
        raise InvalidInput(
            f"{function.name!r} is a workflow and a method, so its instance must be findable after a restart: "
            'name it with app.instance("name", obj)'
        )

    def receiver(self, function: Function, name: Any) -> Any:
        """The instance or class that a stored call was made on."""
        if function.bound is Bound.CLASS:
            return _find_class(name)
        if name not in self._by_name:
            raise InvalidInput(
                f"{function.name!r} needs the instance {name!r}, which is not named here with app.instance(…)"
            )
        return self._by_name[name]

    def methods(self) -> dict[str, list[str]]:
        """By function that needs an instance: the names of the instances. Names belong to the app, not to a class."""
        names = sorted(self._by_name)
        return {each.name: names for each in self._registry if each.bound is Bound.INSTANCE}


def _class_name(cls: type) -> str:
    name = f"{cls.__module__}:{cls.__qualname__}"
    try:
        found = _find_class(name)
    except (ImportError, AttributeError):
        found = None
    if found is not cls:
        raise InvalidInput(
            f"{name} cannot be imported, so a run of its methods could not be continued; define it in a module"
        )
    return name


def _find_class(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found
