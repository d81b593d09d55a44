"""Taking runs: in order, as many as there is room for, only what one can execute."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from mainspring.model.queues import Limits, Queue
from mainspring.model.states import State
from tests.store.build import (
    FUNCTIONS,
    NOW,
    SECOND,
    claim,
    done,
    get,
    owned,
    release,
    request,
    run,
    start,
    state,
    step,
    write,
)

if TYPE_CHECKING:
    from mainspring.store.protocol import Store
    from tests.store.conftest import OpenStore


def test_a_claimed_run_is_running_owned_and_in_a_new_epoch(store: Store) -> None:
    start(store, run("a"))
    (taken,) = claim(store, "w1", now=NOW + 5)
    assert (taken.run.state, taken.run.owner, taken.run.epoch) == (State.RUNNING, "w1", 1)
    assert (taken.run.started, taken.run.version, taken.run.fingerprint) == (NOW + 5, "v1", "print-1")
    assert not taken.steps
    assert get(store) == taken.run


def test_a_run_has_not_started_before_it_was_created(store: Store) -> None:
    """The time of a claim is read before the claim: a run may come in between, also from a machine whose clock is ahead."""
    store.queues.set(Queue("q", Limits(concurrency=5), created=NOW))
    names = {"wf": "print-1"}
    start(
        store, run("plain", created=NOW + 3), run("queued", queue="q", created=NOW + 3), run("other", workflow="other")
    )
    taken = store.claim(request(functions=names, now=NOW)).claims
    taken += store.claim(request(functions=names, now=NOW)).claims  # by names, now that it knows of others
    assert {each.run.id: each.run.started for each in taken} == {"plain": NOW + 3, "queued": NOW + 3}


def test_nobody_claims_what_is_taken(store: Store, other: Store) -> None:
    start(store, run("a"))
    assert len(claim(store, "w1")) == 1
    assert claim(other, "w2") == []


def test_first_due_comes_first_and_older_ones_first_among_equals(store: Store) -> None:
    start(store, run("late", due=NOW - 1), run("b", uid="2"), run("a", uid="1"), run("early", due=NOW - 2))
    assert [each.run.id for each in claim(store)] == ["early", "late", "a", "b"]


def test_no_more_than_asked_for_are_taken(store: Store) -> None:
    start(store, *(run(f"r{number}", uid=f"{number}") for number in range(5)))
    first = store.claim(request(limit=3))
    assert ([each.run.id for each in first.claims], first.more) == (["r0", "r1", "r2"], True)
    second = store.claim(request(limit=3))
    assert ([each.run.id for each in second.claims], second.more) == (["r3", "r4"], False)


def test_exactly_as_many_as_there_are_leaves_no_more(store: Store) -> None:
    start(store, run("a"), run("b"))
    assert not store.claim(request(limit=2)).more


def test_without_room_nothing_is_taken_but_what_there_is_is_told(store: Store) -> None:
    assert not store.claim(request(limit=0)).more
    start(store, run("a"))
    nothing = store.claim(request(limit=0))
    assert (nothing.claims, nothing.more) == ([], True)


def test_a_function_that_the_worker_does_not_know_is_left_alone(store: Store) -> None:
    start(store, run("a", workflow="unknown"), run("b", workflow="other"))
    assert [each.run.id for each in claim(store)] == ["b"]
    assert claim(store, functions={}) == []


def test_a_run_goes_on_only_under_the_fingerprint_it_began_with(store: Store) -> None:
    start(store, run("a", fingerprint="older"), run("b", fingerprint="print-1"))
    assert [each.run.id for each in claim(store)] == ["b"]
    (older,) = claim(store, functions={"wf": "older"})
    assert older.run.fingerprint == "older"


def test_the_fingerprint_of_another_function_does_not_count(store: Store) -> None:
    start(store, run("a", fingerprint=FUNCTIONS["other"]))
    assert claim(store) == []


def test_a_compatible_worker_takes_other_fingerprints_too_and_leaves_them_as_they_are(store: Store) -> None:
    start(store, run("a", fingerprint="older", version="v0"))
    (taken,) = claim(store, compatible=True)
    assert (taken.run.fingerprint, taken.run.version) == ("older", "v0")


def test_a_run_that_this_version_could_not_follow_is_not_offered_to_it_again(store: Store) -> None:
    start(store, owned("a", fingerprint="older"))
    done(store, release("a", blocked='{"versions": ["v1"], "reason": "differs"}'))
    assert claim(store, compatible=True) == []
    (taken,) = claim(store, compatible=True, version="v2")
    assert json.loads(taken.run.blocked or "")["versions"] == ["v1"]
    done(store, release("a", epoch=taken.run.epoch, blocked='{"versions": ["v1", "v2"], "reason": "differs"}'))
    assert claim(store, compatible=True) == claim(store, compatible=True, version="v2") == []
    assert len(claim(store, compatible=True, version="v3")) == 1


def test_a_scheduled_run_is_claimed_when_it_is_due(store: Store) -> None:
    start(store, run("a", state=State.SCHEDULED, due=NOW + SECOND))
    before = store.claim(request(now=NOW + SECOND - 1))
    assert (before.claims, before.next_due) == ([], NOW + SECOND)
    assert len(claim(store, now=NOW + SECOND)) == 1


def test_what_is_due_is_queued_even_if_there_is_no_room_for_it(store: Store) -> None:
    start(store, run("a", state=State.SCHEDULED, due=NOW - 1), run("b", state=State.SCHEDULED, due=NOW + 1))
    claim(store, limit=0)
    assert (state(store, "a"), state(store, "b")) == (State.QUEUED, State.SCHEDULED)


def test_the_timeout_runs_from_the_first_claim(store: Store) -> None:
    start(store, run("a", timeout=60 * SECOND))
    (first,) = claim(store, now=NOW + SECOND)
    assert first.run.deadline == NOW + 61 * SECOND
    done(store, release("a"))
    (second,) = claim(store, now=NOW + 30 * SECOND)
    assert (second.run.deadline, second.run.started) == (NOW + 61 * SECOND, NOW + SECOND)


def test_the_sooner_of_two_deadlines_counts(store: Store) -> None:
    start(store, run("a", timeout=60 * SECOND, deadline=NOW + 5), run("b", timeout=5, deadline=NOW + 60 * SECOND))
    assert {each.run.id: each.run.deadline for each in claim(store)} == {"a": NOW + 5, "b": NOW + 5}


def test_a_run_that_had_an_owner_before_comes_with_its_steps(store: Store) -> None:
    start(store, owned("a"), owned("b"))
    made = [step("a", str(number), seq=number) for number in range(3)]
    for each in made:
        write(store, each)
    store.retire("w1", NOW, None)
    found = {each.run.id: list(each.steps) for each in claim(store, "w2")}
    assert found == {"a": made, "b": []}


def test_many_who_claim_at_once_share_without_overlap(store: Store, connect: OpenStore) -> None:
    start(store, *(run(f"r{number:03d}") for number in range(200)))
    stores = [connect() for _ in range(4)]

    def take(number: int) -> list[str]:
        mine: list[str] = []
        for _ in range(200):
            taken = stores[number].claim(request(f"w{number}", limit=7))
            mine += [each.run.id for each in taken.claims]
            if not taken.claims and sum(stores[number].counts().values()) == stores[number].counts().get("running"):
                break
        return mine

    with ThreadPoolExecutor(4) as pool:
        shares = list(pool.map(take, range(4)))
    together = [each for share in shares for each in share]
    assert sorted(together) == [f"r{number:03d}" for number in range(200)]
