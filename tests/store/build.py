"""Short ways to say what the tests of the store say often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from mainspring.model.runs import NewRun, Step, Worker
from mainspring.model.states import State
from mainspring.queues.fairness import FAIR
from mainspring.store.protocol import ClaimRequest
from mainspring.store.writes import Finish, Recorded, RecordStep, Release, Start, Started, Suspend, Verdict

if TYPE_CHECKING:
    from mainspring.model.runs import Claim, Run
    from mainspring.store.protocol import Store
    from mainspring.store.writes import Op, Result

NOW = 1_790_000_000_000_000
SECOND = 1_000_000
FUNCTIONS = {"wf": "print-1", "other": "print-2"}


@dataclass(frozen=True)
class StoreSettings:
    """What `open_store` wants to know."""

    synchronous: str = "OFF"
    schema: str = "mainspring"
    lease: float = 15.0
    connections: int = 8
    notify: bool = True
    payloads: str = "none"


def run(run_id: str = "a", **changes: Any) -> NewRun:
    """A run that is ready to be claimed."""
    made = NewRun(run_id, f"uid-{run_id}", "wf", "workflow", '{"x": 1}', State.QUEUED, NOW, NOW)
    return replace(made, **changes)


def owned(run_id: str = "a", worker: str = "w1", **changes: Any) -> NewRun:
    """A run that begins in a worker's hand."""
    return run(
        run_id, **{"state": State.RUNNING, "owner": worker, "fingerprint": "print-1", "version": "v1", **changes}
    )


def step(run_id: str = "a", position: str = "0", **changes: Any) -> Step:
    """A step that has succeeded, in the first epoch of its run."""
    seq = int(position) if position.isdigit() else 0
    made = Step(run_id, position, "step", "charge", seq, '{"ok": true}', None, NOW, NOW + 1, 1, 1)
    return replace(made, **changes)


def wait_for(child: str, run_id: str = "a", position: str = "0", **changes: Any) -> Step:
    """A step that has begun to wait for another run."""
    return replace(Step(run_id, position, "result", child, started=NOW, epoch=1, child=child), **changes)


def sleep(run_id: str = "a", due: int = NOW + SECOND, position: str = "0", **changes: Any) -> Step:
    """A step that has begun to wait for a time."""
    return replace(Step(run_id, position, "sleep", "sleep", started=NOW, epoch=1, due=due), **changes)


def receive(run_id: str = "a", position: str = "0", **changes: Any) -> Step:
    """A step that has begun to wait for a message."""
    return replace(Step(run_id, position, "receive", "news", started=NOW, epoch=1, child=run_id), **changes)


def worker(worker_id: str = "w1", **changes: Any) -> Worker:
    made = Worker(worker_id, "host", "boot", 7, 70, "v1", '{"wf": "print-1", "other": "print-2"}', NOW, 0, NOW)
    return replace(made, **changes)


def finish(run_id: str = "a", owner: str = "w1", **changes: Any) -> Finish:
    return replace(Finish(owner, run_id, 1, State.SUCCEEDED, NOW + SECOND, output="42"), **changes)


def rest(run_id: str = "a", owner: str = "w1", **changes: Any) -> Suspend:
    return replace(Suspend(owner, run_id, 1, park=True), **changes)


def release(run_id: str = "a", owner: str = "w1", **changes: Any) -> Release:
    return replace(Release(owner, run_id, 1), **changes)


def apply(store: Store, op: Op, now: int = NOW) -> Result:
    """The answer to one operation."""
    (answer,) = store.apply([op], now)
    assert not isinstance(answer, Exception), answer
    return answer


def write(store: Store, made: Step, owner: str = "w1", **more: Any) -> Recorded:
    return cast("Recorded", apply(store, RecordStep(owner, made, **more)))


def start(store: Store, *runs: NewRun) -> None:
    """Store runs that must be new."""
    answers = store.apply([Start(each) for each in runs], NOW)
    assert all(isinstance(answer, Started) and answer.created for answer in answers), answers


def done(store: Store, op: Op, now: int = NOW) -> None:
    """Apply an operation that must be accepted."""
    answer = apply(store, op, now)
    assert answer is Verdict.DONE or (isinstance(answer, Recorded) and answer.verdict is Verdict.DONE), answer


def suspend(
    store: Store, run_id: str = "a", owner: str = "w1", *, due: int | None = None, park: bool = True, epoch: int = 1
) -> None:
    """Have a run wait for a time, or else for a message, and park it."""
    wait = receive(run_id, "wait", epoch=epoch) if due is None else sleep(run_id, due, "wait", epoch=epoch)
    write(store, wait, owner=owner)
    done(store, rest(run_id, owner, park=park, epoch=epoch))


def request(worker_id: str = "w1", limit: int = 10, **changes: Any) -> ClaimRequest:
    return replace(ClaimRequest(worker_id, "v1", FUNCTIONS, limit, NOW, FAIR), **changes)


def claim(store: Store, worker_id: str = "w1", limit: int = 10, **changes: Any) -> list[Claim]:
    return store.claim(request(worker_id, limit, **changes)).claims


def get(store: Store, run_id: str = "a") -> Run:
    found = store.run(run_id)
    assert found is not None
    return found


def state(store: Store, run_id: str = "a") -> State:
    return get(store, run_id).state
