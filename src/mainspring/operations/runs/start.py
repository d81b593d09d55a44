"""Start runs and send them messages as an operator: by name and as JSON, without the code of the functions.

Workers describe the functions that they execute. Arguments are checked against the descriptions, so that a typing error is refused at
the call and does not fail a run.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from mainspring.codec.json_schema import find_fault
from mainspring.errors import Conflict, InvalidInput, NotFound, StoreUnavailable
from mainspring.model.ids import check_run_id
from mainspring.model.runs import NewRun
from mainspring.model.states import State
from mainspring.operations.actions import Actions, Answer
from mainspring.operations.filters import attributes_text, text
from mainspring.operations.retention import kept
from mainspring.operations.runs.actions import not_found
from mainspring.operations.runs.info import step_info
from mainspring.store.bad_rows import readable
from mainspring.store.messages import Post
from mainspring.store.writes import Recorded, Send, Start, Started, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainspring.engine.registry import Registry
    from mainspring.model.clock import Clock
    from mainspring.model.ids import IdMaker
    from mainspring.operations.runs.info import StepInfo
    from mainspring.store.protocol import Store
    from mainspring.store.verbs.prune import Keep
    from mainspring.store.writes import Op

START_ACTIONS = Actions("runs")
_TRIES = 100
_PAUSE = 0.05
_LONGEST_TOPIC = 512


@dataclass(frozen=True, slots=True)
class FunctionInfo:
    """A function of which runs can be started, as workers describe it."""

    name: str
    kind: str
    input: dict[str, Any]
    """The JSON schema of the arguments, by parameter name."""
    documentation: str | None
    queue: str | None
    """The default queue of its runs."""
    timeout: int | None
    retry: str | None
    known: bool = True
    """Whether a live worker has the function. If not, a run waits until one does."""


_DESCRIBED = {each.name for each in fields(FunctionInfo)} - {"name", "known"}


def described(registry: Registry, keep: Keep) -> dict[str, str]:
    """Return the descriptions of a worker's functions, by name, as JSON."""
    from mainspring.engine.registry import Bound  # noqa: PLC0415  (queries need no engine)
    from mainspring.engine.retry import stored  # noqa: PLC0415

    found: dict[str, str] = {}
    for each in registry:
        if each.bound is not Bound.NOT:
            continue
        workflow = each.kind == "workflow"
        data = {
            "kind": each.kind,
            "input": each.codec.schema(),
            "documentation": (each.fn.__doc__ or "").strip().partition("\n\n")[0] or None,
            "queue": each.queue,
            "timeout": each.timeout if workflow else None,
            "retry": stored(each.retry, of_function=True) if workflow and each.retry.attempts > 1 else None,
            "kept": kept(keep, each.name),
        }
        found[each.name] = json.dumps(data)
    return found


class Starting:
    """The verbs. All of them block."""

    def __init__(self, store: Store, clock: Clock, ids: IdMaker) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids

    def functions(self) -> list[FunctionInfo]:
        """Return the functions that workers have described, by name."""
        live = {
            name
            for names in readable("workers", self._store.workers(), lambda each: json.loads(each.functions), lambda each: each.id)
            for name in names
        }  # fmt: skip
        texts = self._store.declared_functions.list()
        return [_function(name, texts[name], known=name in live) for name in sorted(texts)]

    def function(self, name: str) -> FunctionInfo:
        """Return one function by its name. Raises `NotFound`."""
        for each in self.functions():
            if each.name == name:
                return each
        raise NotFound(f"no worker has registered a function {name!r}; start a worker that has it")

    @START_ACTIONS(lambda _, started: Answer(f"{started} is started", {"run": started}, started))
    def start(
        self,
        workflow: str,
        given: Mapping[str, Any],
        *,
        id: str | None = None,  # noqa: A002  (as in options)
        queue: str | None = None,
        priority: int = 0,
        at: int | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> str:
        """Start a run of a function, with arguments by name, which workers execute.

        Returns the id of the run. Raises `NotFound` for an unknown function, `InvalidInput` for arguments that do not fit, and `Conflict`
        for an id that is taken.
        """
        function = self.function(workflow)
        wrong = find_fault(function.input, given, "the input")
        if wrong is not None:
            raise InvalidInput(f"{workflow} cannot be started like this: {wrong}")
        now, uid = self._clock.now(), self._ids.new()
        due = now if at is None else max(at, now)
        new = NewRun(
            id=uid if id is None else check_run_id(id),
            uid=uid,
            workflow=workflow,
            kind=function.kind,
            input=_json(given, "the input"),
            state=State.SCHEDULED if due > now else State.QUEUED,
            due=due,
            created=now,
            timeout=function.timeout,
            attributes=attributes_text(attributes or {}),
            queue=queue or function.queue,
            priority=priority,
            retry=function.retry,
        )
        started = _commit(self._store, Start(new), now)
        assert isinstance(started, Started)  # noqa: S101
        if not started.created:
            raise Conflict(f"there is a run {new.id!r} already; give another id, or none")
        return new.id

    @START_ACTIONS(lambda run, topic: Answer(f"{topic} is sent to {run}", {"topic": topic}, run))
    def send(self, run: str, topic: str, value: Any, key: str | None = None) -> str:
        """Send a message to a run, as `app.send` does.

        With a key, a second message of the same key is not stored. Returns the topic. Raises `NotFound`, `Conflict` if
        the run has ended, and `InvalidInput` for a value that the run does not accept.
        """
        self._post(run, topic, value, key, question=False)
        return topic

    @START_ACTIONS(
        lambda run, key: Answer(f"{run} is asked; its answer is among its events and messages", {"key": key}, run)
    )
    def answer(self, run: str, question: str, value: Any, key: str | None = None) -> str:
        """Ask a run the question that its `run.answer` waits for, as `app.ask` does.

        Returns the key of the question. Raises the errors of `send`.
        """
        made = key or self._ids.new()
        self._post(run, question, value, made, question=True)
        return made

    def waits(self, run: str) -> list[StepInfo]:
        """Return the waits of a run that a message or a question of an operator can end."""
        return [step for each in self._store.steps(run) if (step := step_info(each)).awaited]

    def _post(self, run: str, topic: str, value: Any, key: str | None, *, question: bool) -> None:
        if not topic.strip() or len(topic) > _LONGEST_TOPIC or "\0" in topic:
            raise InvalidInput(f"the name of a topic is a text of 1 to {_LONGEST_TOPIC} characters, not {topic!r}")
        found = self._store.run(run)
        if found is None:
            raise NotFound(not_found(run))
        if found.state.ended:
            raise Conflict(f"{run} has {found.state}; nothing that is sent to it would be received")
        kind = "question" if question else "receive"
        for each in self.waits(run):
            if each.kind == kind and each.name == topic and (wrong := find_fault(each.expects, value, "the message")):
                raise InvalidInput(f"{topic} is not sent to {run}: {wrong}")
        body = _json(value, "the message")
        now = self._clock.now()
        post = Post(run, topic, body, now, text("key", key), question=question)
        answer = _commit(self._store, Send(run, [post]), now)
        if isinstance(answer, Recorded) and answer.verdict is Verdict.UNKNOWN:
            raise NotFound(not_found(run))


def _function(name: str, text: str, *, known: bool) -> FunctionInfo:
    """Return the description that a worker stored, without unknown fields, which newer workers may add."""
    given: dict[str, Any] = json.loads(text)
    return FunctionInfo(name=name, known=known, **{part: given[part] for part in given if part in _DESCRIBED})


def _json(value: Any, what: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{what} is not JSON: {error}") from None


def _commit(store: Store, op: Op, now: int) -> Any:
    """Commit one write. Waits a little if another transaction holds the row of the run."""
    for _ in range(_TRIES):
        (result,) = store.apply([op], now)
        if isinstance(result, Exception):
            raise result
        if result is not Verdict.HELD:
            return result
        time.sleep(_PAUSE)
    raise StoreUnavailable("another transaction holds the run; nothing was done, try again in a moment")
