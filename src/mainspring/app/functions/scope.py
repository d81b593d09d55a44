"""Registering functions: on an app, or on a blueprint that an app includes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from mainspring.app.caller.mistakes import warn_of_unresolved
from mainspring.app.declarations.alerts import Hooks
from mainspring.app.functions.functions import AsyncFn, SyncFn
from mainspring.app.resources import Resource
from mainspring.engine import registry
from mainspring.errors import InvalidInput, NotStarted
from mainspring.model.given import check_text
from mainspring.operations.queues import check_queue_name
from mainspring.store.external.other_database import OtherDatabase

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
    from contextlib import AbstractContextManager

    from mainspring.app.declarations.declared import DeclaredQueue
    from mainspring.app.declarations.schedules import Mode
    from mainspring.app.functions.options import Duration
    from mainspring.app.runtime import Runtime
    from mainspring.engine.registry import Function
    from mainspring.engine.retry import Retry
    from mainspring.model.schedules import Hook
    from mainspring.recurrence import Cron, Fold, Gap, Spec
    from mainspring.schedules.definition import Definition
    from mainspring.schedules.policy import Policy

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
F = TypeVar("F")
G = TypeVar("G")
"""The type of the first parameter of a transaction."""


class Decorator(Protocol):
    """The type of a decorator with options. It keeps the parameters and the result of the function."""

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncFn[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: Callable[P, R], /) -> SyncFn[P, R]: ...


class BatchDecorator(Protocol):
    """The decorator of a batch function, which is written for a list of inputs and called with one."""

    @overload
    def __call__(self, fn: Callable[[list[T]], Coroutine[Any, Any, Sequence[R | Exception]]], /) -> AsyncFn[[T], R]: ...
    @overload
    def __call__(self, fn: Callable[[list[T]], Sequence[R | Exception]], /) -> SyncFn[[T], R]: ...


class TransactionDecorator(Protocol):
    """The decorator of a transaction, whose first argument the library passes."""

    @overload
    def __call__(self, fn: Callable[Concatenate[G, P], Coroutine[Any, Any, R]], /) -> AsyncFn[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: Callable[Concatenate[G, P], R], /) -> SyncFn[P, R]: ...


class Scope(Hooks):
    """Registers workflows, steps, transactions and resources."""

    def __init__(self) -> None:
        self._resources: list[Resource[Any]] = []
        self._other_databases: dict[Any, OtherDatabase] = {}

    @property
    def _runtime(self) -> Runtime:
        """The runtime that executes the functions registered here."""
        raise NotImplementedError

    @property
    def _is_part_of_app(self) -> bool:
        return True

    def _add(self, function: Function) -> None:
        raise NotImplementedError

    def _full_name(self, name: str) -> str:
        return name

    def _schedule(self, definition: Definition) -> None:
        raise NotImplementedError

    # -- decorators ----------------------------------------------------------------------------------------------------
    @overload
    def workflow(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncFn[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def workflow(self, fn: Callable[P, R], /) -> SyncFn[P, R]: ...
    @overload
    def workflow(
        self,
        /,
        *,
        name: str | None = None,
        timeout: Duration | None = None,
        queue: str | DeclaredQueue | None = None,
        retry: Retry | int | None = None,
        at_most_once: bool = False,
        retention: Duration | None = None,
        keep_last: int | None = None,
        max_recoveries: int | None = None,
    ) -> Decorator: ...
    def workflow(
        self,
        fn: Any = None,
        /,
        *,
        name: str | None = None,
        timeout: Duration | None = None,
        queue: str | DeclaredQueue | None = None,
        retry: Retry | int | None = None,
        at_most_once: bool = False,
        retention: Duration | None = None,
        keep_last: int | None = None,
        max_recoveries: int | None = None,
    ) -> Any:
        """Register a workflow: a durable function whose recorded steps are not executed again after a crash.

            @app.workflow(timeout="1h")
            async def checkout(order: str) -> str:
                receipt = await charge(order)
                await run.sleep("3d")
                return receipt

        `queue` is the queue of its runs, unless `options(queue=…)` names another. `retry` is the retry policy of runs that fail; a retry
        keeps the recorded steps. `timeout` limits a run from its first claim to its end. `retention` is how long ended runs are kept
        ("forever" is possible), `keep_last` how many of the latest, `max_recoveries` how often a run may lose its worker before it
        fails; each overrides the setting. With `at_most_once` a run that a crash interrupted fails with `Interrupted` instead of
        continuing. `name` is the stored name (default: the name of the function). Raises `AlreadyRegistered` if it is taken.
        """
        queue_name = None if queue is None else check_queue_name(getattr(queue, "name", queue))

        def decorate(fn: Any) -> Any:
            return self._register(
                fn,
                "workflow",
                name,
                retry=retry,
                timeout=timeout,
                queue=queue_name,
                at_most_once=at_most_once,
                retention=retention,
                keep_last=keep_last,
                max_recoveries=max_recoveries,
            )

        return decorate if fn is None else decorate(fn)

    @overload
    def step(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncFn[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def step(self, fn: Callable[P, R], /) -> SyncFn[P, R]: ...
    @overload
    def step(
        self,
        /,
        *,
        name: str | None = None,
        retry: Retry | int | None = None,
        timeout: Duration | None = None,
        at_most_once: bool = False,
        interruptible: bool = False,
    ) -> Decorator: ...
    @overload
    def step(
        self,
        /,
        *,
        batch: int,
        name: str | None = None,
        retry: Retry | int | None = None,
        timeout: Duration | None = None,
        at_most_once: bool = False,
    ) -> BatchDecorator: ...
    def step(
        self,
        fn: Any = None,
        /,
        *,
        name: str | None = None,
        retry: Retry | int | None = None,
        timeout: Duration | None = None,
        at_most_once: bool = False,
        interruptible: bool = False,
        batch: int | None = None,
    ) -> Any:
        """Register a step: a call inside a workflow whose outcome is recorded once. Outside workflows it is a plain function.

            @app.step(retry=Retry(5, first="1s"), timeout=30)
            async def charge(order: str) -> str: ...

        `retry` is the retry policy, `timeout` the limit of each attempt. With `at_most_once` the start is recorded first: a step that a
        crash interrupted raises `Interrupted` in the workflow and is not executed again. `interruptible`: cancelling the run cancels an
        `async def` step while it executes; other steps finish first. `name` is the stored name (default: the name of the function).
        Raises `AlreadyRegistered` if it is taken.

        `batch` is for a function that takes a list of up to that many inputs and returns a list with one outcome for each, a value or
        an exception. Callers pass one input; the inputs that are ready at the same time are one call. Each is a step or run of
        its own.
        """

        def decorate(fn: Any) -> Any:
            return self._register(
                fn,
                "step",
                name,
                retry=retry,
                timeout=timeout,
                at_most_once=at_most_once,
                interruptible=interruptible,
                batch=batch,
            )

        return decorate if fn is None else decorate(fn)

    def scheduled(
        self,
        when: str | Cron | Spec,
        *,
        timezone: str | None = None,
        gap: Gap = "after",
        fold: Fold = "first",
        mode: Mode | None = None,
        policy: Policy | None = None,
        args: tuple[Any, ...] | None = None,
        id: str | None = None,  # noqa: A002
        note: str | None = None,
    ) -> Callable[[F], F]:
        """Schedule the decorated workflow: `@app.scheduled("*/30 * * * * *")`, with seconds first if there are six fields.

        The workflow is called with (scheduled_at, started_at), without arguments, or with `args`. By default each time starts exactly
        one run, and times that passed without a worker are caught up; mode "exactly_once_per_interval_when_active" catches up none.
        """
        if callable(when) or isinstance(when, (classmethod, staticmethod)):
            raise InvalidInput('@app.scheduled takes a time: write @app.scheduled("0 2 * * *") above the function')

        from mainspring.app.declarations import schedules  # noqa: PLC0415  (not every app has schedules, which are slow to import)

        def decorate(fn: F) -> F:
            made: Any = registry.inside(fn)
            if not isinstance(made, (AsyncFn, SyncFn)):
                raise InvalidInput(
                    f"@scheduled goes above @workflow, and {fn!r} is not a workflow yet; write @app.workflow between the two"
                )
            function: Function = made._function  # noqa: SLF001  (its other half)
            self._schedule(
                schedules.scheduled(
                    function,
                    when,
                    timezone=timezone,
                    gap=gap,
                    fold=fold,
                    mode=mode,
                    policy=policy,
                    args=args,
                    schedule=id,
                    note=note,
                )
            )
            return fn

        return decorate

    @overload
    def transaction(self, fn: Callable[Concatenate[G, P], Coroutine[Any, Any, R]], /) -> AsyncFn[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def transaction(self, fn: Callable[Concatenate[G, P], R], /) -> SyncFn[P, R]: ...
    @overload
    def transaction(
        self, /, *, name: str | None = None, isolation: str | None = None, database: Any = None
    ) -> TransactionDecorator: ...
    @overload
    def transaction(
        self, /, *, within: Callable[[], AbstractContextManager[Any]], name: str | None = None
    ) -> Decorator: ...
    def transaction(
        self,
        fn: Any = None,
        /,
        *,
        name: str | None = None,
        isolation: str | None = None,
        database: Any = None,
        within: Callable[[], AbstractContextManager[Any]] | None = None,
    ) -> Any:
        """Register a transaction: a step whose outcome commits together with the rows that its function writes, exactly once.

        The annotation of its first parameter decides what the library passes: `Tx`, `sqlite3.Connection`, `psycopg.Connection` (or
        `AsyncConnection`, for `async def`), or a SQLAlchemy `Connection` or `Session`. Runs that it starts, schedules or cancels are
        part of the transaction. `isolation` is "read committed", "repeatable read" or "serializable". `database` is the database of
        your tables, if that is not the app's: a URL, or a SQLAlchemy engine (an AsyncEngine for `async def`).

        `within` is for code that manages connections itself, such as an ORM: a function that returns a context manager. It opens a
        transaction on a connection to the app's database, yields that connection, and commits at the end, or rolls back after an
        exception. The library passes no first argument then.
        """
        other = None if database is None else self._other_database(database)

        def decorate(fn: Any) -> Any:
            return self._register(
                fn,
                "transaction",
                name,
                retry=None,
                timeout=None,
                isolation=isolation,
                database=other,
                within=within,
            )

        return decorate if fn is None else decorate(fn)

    @overload
    def resource(self, open_: Callable[[], AsyncGenerator[T]], /) -> Resource[T]: ...
    @overload
    def resource(self, open_: Callable[[], Generator[T]], /) -> Resource[T]: ...
    def resource(self, open_: Any, /) -> Any:
        """Register a generator that yields a resource of steps, such as an HTTP client. A worker opens it once, and closes it when it stops."""
        made: Resource[Any] = Resource(open_)
        self._resources.append(made)
        return made

    def _other_database(self, database: Any) -> OtherDatabase:
        key = database if isinstance(database, str) else id(database)
        if key not in self._other_databases:
            self._other_databases[key] = OtherDatabase(database)
        return self._other_databases[key]

    def _register(self, fn: Any, kind: str, name: str | None, **how: Any) -> Any:
        if isinstance(there := registry.inside(fn), (AsyncFn, SyncFn)):
            raise InvalidInput(f"{there!r} is registered already; use one decorator")
        function = registry.make(fn, kind, name=name, full_name=self._full_name, **how)
        self._add(function)
        warn_of_unresolved(function)
        make: Any = AsyncFn if function.is_async else SyncFn
        return make(self, function)


class Blueprint(Scope):
    """Functions of one module, for an app to include. Their names begin with the name of the blueprint."""

    def __init__(self, name: str) -> None:
        super().__init__()
        if not check_text("the name of a blueprint", name).strip():
            raise InvalidInput("a blueprint needs a name")
        self.name = name
        self._functions: list[Function] = []
        self._schedules: list[Definition] = []
        self._hooks: list[Hook] = []
        self._home: Scope | None = None

    @property
    def _runtime(self) -> Runtime:
        if self._home is None:
            raise NotStarted(
                f"the blueprint {self.name!r} is not part of any app yet; app.include({self.name}) makes it so"
            )
        return self._home._runtime  # noqa: SLF001

    @property
    def _is_part_of_app(self) -> bool:
        return self._home is not None and self._home._is_part_of_app  # noqa: SLF001

    def _full_name(self, name: str) -> str:
        return f"{self.name}.{name}"

    def _add(self, function: Function) -> None:
        self._functions.append(function)
        if self._home is not None:
            self._home._add(function)  # noqa: SLF001

    def _schedule(self, definition: Definition) -> None:
        self._schedules.append(definition)
        if self._home is not None:
            self._home._schedule(definition)  # noqa: SLF001

    def _hook(self, hook: Hook) -> None:
        self._hooks.append(hook)
        if self._home is not None:
            self._home._hook(hook)  # noqa: SLF001

    def _join(self, home: Scope) -> None:
        """Become part of an app."""
        if self._home is not None and self._home is not home:
            raise InvalidInput(f"the blueprint {self.name!r} is part of another app already")
        self._home = home
        for function in self._functions:
            home._add(function)  # noqa: SLF001
        for definition in self._schedules:
            home._schedule(definition)  # noqa: SLF001
        for hook in self._hooks:
            home._hook(hook)  # noqa: SLF001
        home._resources.extend(resource for resource in self._resources if resource not in home._resources)  # noqa: SLF001
