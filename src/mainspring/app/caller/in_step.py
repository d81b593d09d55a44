"""Verbs inside a step: they act at once. The runs and messages have ids that are the same in every attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.app.caller.outside import Outside
from mainspring.engine.replay.branches import ours
from mainspring.store.messages import Entry
from mainspring.store.writes import Send

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from mainspring.app.runtime import Runtime
    from mainspring.engine.replay.context import StepScope
    from mainspring.engine.replay.execution import Execution, Quota
    from mainspring.model.runs import StepKind
    from mainspring.store.messages import Post, Table


class InStep(Outside):
    """A step that is being executed."""

    __slots__ = ("_scope_of_step",)

    def __init__(self, runtime: Runtime, scope: StepScope) -> None:
        super().__init__(runtime)
        self._scope_of_step = scope

    @property
    def quota(self) -> Quota | None:
        return self._scope_of_step.quota

    @property
    def _step(self) -> StepScope | None:
        return self._scope_of_step

    @property
    def _execution(self) -> Execution | None:
        return self._scope_of_step.execution

    def _next_id(self, *, detached: bool) -> str | None:
        return self._scope_of_step.next_start(detached=detached)

    def _sign(self, posts: list[Post]) -> None:
        sign(self._scope_of_step, posts)

    def publish(self, verb: StepKind, table: Table, key: str, value: str | None) -> Coroutine[Any, Any, None]:
        del verb
        return self._publish(table, key, value)

    @ours
    async def _publish(self, table: Table, key: str, value: str | None) -> None:
        """Publish an entry at once. A retry of the step publishes it again."""
        ex = self._scope_of_step.execution
        entries = [entry_of(self._scope_of_step, table, key, value)]
        await ex.engine.committer.commit(Send(ex.id, list(entries), ex.engine.worker_id, ex.epoch))


def sign(step: StepScope, posts: list[Post]) -> None:
    """Set the sender and the keys of messages. The keys are the same in every attempt, so each message is sent once."""
    for post in posts:
        post.sender = step.execution.id
        post.key = post.key or step.next_key()


def entry_of(step: StepScope, table: Table, key: str, value: str | None) -> Entry:
    """Return an entry that a step publishes, as stored."""
    ex = step.execution
    return Entry(table, ex.id, key, value, ex.engine.clock.now(), step.position)
