"""Verbs in code of a Django project: the runs they start are part of the transaction that Django has open on the thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from django.db import transaction

from mainspring.app.caller.current import CALLERS, current_caller
from mainspring.app.caller.in_run import InRun
from mainspring.app.caller.outside import InStep, Outside
from mainspring.engine.replay.branches import ours
from mainspring.engine.replay.context import Branch, StepScope
from mainspring.integrations.django import atomic

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from mainspring.app.caller.protocol import Args, Caller, Kwargs, StartedRun
    from mainspring.app.functions.invocation import Invocation
    from mainspring.app.functions.options import Options
    from mainspring.app.runtime import Runtime
    from mainspring.engine.operations.transactions import TransactionCall
    from mainspring.engine.registry import Function
    from mainspring.integrations.django.orm_app import OrmApp

R = TypeVar("R")


def callers_of(app: OrmApp) -> dict[type, Callable[[Any, Any], Any]]:
    """Return the callers of a project's app, by the class of the place of the call."""
    return {
        **CALLERS,
        type(None): lambda runtime, _: DjangoOutside(app, runtime),
        StepScope: lambda runtime, scope: DjangoInStep(app, runtime, scope),
        Branch: lambda runtime, branch: DjangoInRun(app, runtime, branch),
    }


class _Joining(Outside):
    """Starts runs and executes transactions as part of the transaction that Django has open on this thread."""

    app: OrmApp

    def start(self, calls: Sequence[Invocation]) -> Coroutine[Any, Any, list[StartedRun]]:
        if not self.app.joins(f"{calls[0].name}.start" if len(calls) == 1 else "start_many"):
            return super().start(calls)
        return self._join(lambda inside: inside.start(calls))

    def start_later(self, call: Invocation, text: str, time: Callable[[int], int]) -> Coroutine[Any, Any, StartedRun]:
        if not self.app.joins(f"run_after or run_at of {call.name}"):
            return super().start_later(call, text, time)
        return self._join(lambda inside: inside.start_later(call, text, time))

    def _join(self, work: Callable[[Caller], Coroutine[Any, Any, R]]) -> Coroutine[Any, Any, R]:
        """Do `work` inside the transaction, at once and on this thread. Return a coroutine of the result."""
        transaction.on_commit(self.app.notify, using=self.app.alias)
        with self.app.joined():
            inside = current_caller(self.runtime)
            return _finished(inside.block(work(inside)))

    def _transact(self, call: TransactionCall) -> Any:
        alias = self.app.alias
        if alias is None or call.within is None or not atomic.open_on(alias):
            return super()._transact(call)
        with transaction.atomic(using=alias):
            return call.fn(*call.args, **call.kwargs)


class DjangoOutside(_Joining):
    """Plain code of the project: a view, a command, a shell."""

    def __init__(self, app: OrmApp, runtime: Runtime) -> None:
        super().__init__(runtime)
        self.app = app


class DjangoInStep(_Joining, InStep):
    """A step that is being executed."""

    def __init__(self, app: OrmApp, runtime: Runtime, scope: StepScope) -> None:
        InStep.__init__(self, runtime, scope)
        self.app = app


class DjangoInRun(InRun):
    """A workflow that is being executed. A `def` workflow calls no functions while a transaction of Django's is open.

    The run's record could not be committed before the transaction ends: on SQLite the commit would wait for ever.
    """

    def __init__(self, app: OrmApp, runtime: Runtime, branch: Branch) -> None:
        super().__init__(runtime, branch)
        self._app = app

    def call_blocking(self, function: Function, args: Args, kwargs: Kwargs, options: Options) -> Any:
        if self._app.alias is not None:
            atomic.refuse_open(self._app.alias)
        return super().call_blocking(function, args, kwargs, options)


@ours
async def _finished(value: R) -> R:
    return value
