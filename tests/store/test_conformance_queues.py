"""Queues: who waits in them, who may begin, in which order, and what is remembered of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from mainspring.model.queues import Limits, Queue, Window
from mainspring.model.states import State
from tests.store.build import (
    NOW,
    SECOND,
    apply,
    claim,
    done,
    finish,
    get,
    owned,
    release,
    request,
    run,
    start,
    suspend,
)
from tests.support.samples import covering

if TYPE_CHECKING:
    from mainspring.model.runs import NewRun
    from mainspring.store.protocol import Claimed, Store
    from tests.store.conftest import OpenStore


def queued(number: int, queue: str = "q", **changes: Any) -> NewRun:
    return run(f"r{number}", uid=f"{number:04d}", queue=queue, **changes)


def take(store: Store, worker: str = "w1", limit: int = 10, **changes: Any) -> Claimed:
    return store.claim(request(worker, limit, **changes))


def ids(claimed: Claimed) -> list[str]:
    return [each.run.id for each in claimed.claims]


def make(store: Store, name: str = "q", **limits: Any) -> None:
    store.queues.set(Queue(name, Limits(**limits), created=NOW))


# -- order ---------------------------------------------------------------------------------------------------------------
def test_smaller_priorities_come_first_then_the_first_due_then_the_first_that_came(store: Store) -> None:
    make(store)
    start(
        store,
        queued(1),
        queued(2, due=NOW - 1),
        queued(3),
        queued(4, priority=-5),
        queued(5, priority=7, due=NOW - 9),
    )
    assert ids(take(store)) == ["r4", "r2", "r1", "r3", "r5"]


def test_runs_without_a_queue_have_priorities_too(store: Store) -> None:
    start(store, run("b", uid="1"), run("a", uid="2", priority=-1), run("c", uid="3", priority=1))
    assert [each.run.id for each in claim(store)] == ["a", "b", "c"]


def test_neither_runs_in_queues_nor_those_without_wait_for_all_of_the_others(store: Store) -> None:
    make(store)
    start(store, *(queued(number) for number in range(20)), *(run(f"p{number}") for number in range(20)))
    found = [each for _ in range(6) for each in ids(take(store, limit=2))]
    assert sum(each.startswith("r") for each in found) >= 4
    assert sum(each.startswith("p") for each in found) >= 4


def test_queues_that_a_worker_does_not_serve_take_none_of_its_room(store: Store) -> None:
    store.queues.set(Queue("q", created=NOW))
    start(store, *(run(f"q{n}", queue="q") for n in range(5)), *(run(f"p{n}") for n in range(30)))
    for _ in range(3):
        assert len(claim(store, limit=10, queues=frozenset({"another"}))) == 10


def test_claims_of_two_kinds_in_turns_serve_what_is_in_no_queue_and_all_queues(store: Store) -> None:
    """A worker with `def` and `async def` functions claims for all of them, and then once more for those without a thread."""
    make(store, "full", concurrency=1)
    make(store, "a")
    make(store, "b")
    start(store, queued(1, "full"), run("other", workflow="other"))
    assert ids(take(store, limit=1, functions={"wf": ""})) == ["r1"]
    start(
        store,
        queued(2, "full"),
        *(run(f"p{number}") for number in range(9)),
        *(queued(number, "a") for number in range(10, 20)),
        *(queued(number, "b") for number in range(20, 30)),
    )
    found: list[str] = []
    for _ in range(12):
        found += ids(take(store, limit=1))
        take(store, limit=1, functions={"unknown": ""})
    served = [get(store, each).queue for each in found]
    assert {queue: served.count(queue) > 1 for queue in (None, "a", "b")} == {None: True, "a": True, "b": True}


@pytest.mark.parametrize("limit", [1, 3])
def test_queues_take_turns(store: Store, limit: int) -> None:
    for name in ("x", "y", "z"):
        make(store, name)
        start(store, *(run(f"{name}{number}", queue=name, uid=f"{name}{number}") for number in range(6)))
    found = [each[0] for _ in range(9 // limit) for each in ids(take(store, limit=limit))]
    assert {name: found.count(name) for name in "xyz"} == {"x": 3, "y": 3, "z": 3}


# -- what may begin ------------------------------------------------------------------------------------------------------
def test_a_run_in_a_queue_that_does_not_exist_waits_until_it_does(store: Store) -> None:
    start(store, queued(1))
    assert ids(take(store)) == []
    assert store.queues.counts()["q"].ready == 1
    make(store)
    assert ids(take(store)) == ["r1"]


@pytest.mark.parametrize("limits", [{"concurrency": 3}, {"concurrency": 3, "partition_concurrency": 2}])
def test_a_limit_holds_back_no_runs_of_a_queue_that_is_empty(store: Store, limits: dict[str, Any]) -> None:
    make(store, **limits)
    start(store, queued(1), queued(2))
    found = take(store)
    assert (ids(found), found.held) == (["r1", "r2"], "partition_concurrency" in limits)
    start(store, queued(3), queued(4))
    found = take(store)
    assert (len(ids(found)), found.held) == (0 if "partition_concurrency" in limits else 1, True)


def test_a_run_keeps_its_place_until_it_has_ended_wherever_it_is(store: Store) -> None:
    make(store, concurrency=1)
    start(store, queued(1), queued(2))
    assert ids(take(store)) == ["r1"]
    blocked = take(store)
    assert (ids(blocked), blocked.held, blocked.more) == ([], True, False)
    suspend(store, "r1", due=NOW + SECOND)
    assert ids(take(store)) == []
    assert ids(take(store, now=NOW + SECOND)) == ["r1"]
    done(store, release("r1", epoch=2))
    assert ids(take(store)) == ["r1"]
    done(store, finish("r1", epoch=3))
    assert ids(take(store)) == ["r2"]


@pytest.mark.parametrize("how", ["cancel", "terminate"])
def test_a_run_that_is_stopped_gives_its_place_away(store: Store, how: str) -> None:
    make(store, concurrency=1)
    start(store, queued(1), queued(2))
    take(store)
    suspend(store, "r1")
    getattr(store, how)(["r1"], None, NOW)
    assert ids(take(store)) == ["r2"]


def test_a_lost_workers_run_keeps_its_place_and_comes_first(store: Store) -> None:
    make(store, concurrency=1)
    start(store, queued(1), queued(2, priority=-9))
    assert ids(take(store)) == ["r2"]
    store.retire("w1", NOW, None)
    assert ids(take(store, "w2")) == ["r2"]


def test_limits_hold_across_workers(store: Store, other: Store) -> None:
    make(store, concurrency=3, worker_concurrency=2)
    start(store, *(queued(number) for number in range(9)))
    assert len(ids(take(store, "w1"))) == 2
    assert ids(take(store, "w1", mine={"q": {"": 2}})) == []
    assert len(ids(take(other, "w2"))) == 1
    assert ids(take(other, "w2", mine={"q": {"": 1}})) == []


def test_a_worker_with_all_it_may_have_says_so(store: Store) -> None:
    make(store, worker_concurrency=1)
    start(store, queued(1), queued(2))
    found = take(store)
    assert (ids(found), found.short, found.held) == (["r1"], True, False)


def test_a_resumed_run_waits_for_a_place_in_the_worker(store: Store) -> None:
    make(store, worker_concurrency=1)
    start(store, queued(1), queued(2))
    take(store)
    done(store, release("r1"))
    found = take(store, mine={"q": {"": 1}})
    assert (ids(found), found.short) == ([], True)
    assert ids(take(store)) == ["r1"]


def test_partitions_have_limits_of_their_own_and_take_turns(store: Store) -> None:
    make(store, partition_concurrency=1)
    start(store, *(queued(number, partition="big") for number in range(5)), queued(7, partition="small"))
    assert sorted(ids(take(store))) == ["r0", "r7"]
    assert ids(take(store)) == []
    done(store, finish("r0"))
    assert ids(take(store)) == ["r1"]


def test_every_partition_gets_its_turn(store: Store) -> None:
    make(store)
    for name in "abcde":
        start(store, *(run(f"{name}{number}", queue="q", partition=name) for number in range(10)))
    found = [each[0] for _ in range(10) for each in ids(take(store, limit=1))]
    assert sorted(found) == sorted("abcde" * 2)


def test_many_partitions_at_their_limit_do_not_hide_the_one_that_is_not(store: Store) -> None:
    make(store, partition_concurrency=1)
    start(store, *(run(f"p{number:03d}", queue="q", partition=f"p{number:03d}") for number in range(60)))
    assert len(ids(take(store, limit=60))) == 60
    start(store, *(run(f"again{number:03d}", queue="q", partition=f"p{number:03d}") for number in range(60)))
    start(store, run("last", queue="q", partition="zz"))
    assert ids(take(store, limit=1)) == ["last"]


def test_a_partition_can_have_other_limits_than_the_rest(store: Store) -> None:
    make(store, partition_concurrency=1)
    store.queues.set_partition("q", "vip", Limits(partition_concurrency=3))
    start(
        store,
        *(queued(number, partition="vip") for number in range(5)),
        queued(8, partition="b"),
        queued(9, partition="b"),
    )
    assert sorted(ids(take(store))) == ["r0", "r1", "r2", "r8"]
    store.queues.set_partition("q", "vip", None)
    done(store, finish("r0"))
    assert ids(take(store)) == []


def test_a_rate_counts_over_a_rolling_window(store: Store, other: Store) -> None:
    make(store, rate=Window(2, 10 * SECOND))
    start(store, *(queued(number) for number in range(5)))
    assert ids(take(store)) == ["r0", "r1"]
    done(store, finish("r0"))
    blocked = take(other, "w2", now=NOW + SECOND)
    assert (ids(blocked), blocked.next_due) == ([], NOW + 10 * SECOND)
    assert ids(take(other, "w2", now=NOW + 10 * SECOND - 1)) == []
    assert ids(take(other, "w2", now=NOW + 10 * SECOND)) == ["r2", "r3"]


def test_a_rate_counts_from_the_moment_when_the_claim_had_its_locks(store: Store, other: Store) -> None:
    """The claim says what time it was when it was made. Until it may write, others may hold it up."""
    make(store, rate=Window(1, 10 * SECOND))
    start(store, *(queued(number) for number in range(3)))
    late = NOW + 2 * SECOND
    (first,) = take(store, clock=lambda: late).claims
    assert (first.run.started, first.run.attempt_started) == (late, late)
    claimed = take(other, "w2", now=NOW + 11 * SECOND)
    assert (ids(claimed), claimed.next_due) == ([], late + 10 * SECOND)
    assert len(ids(take(other, "w2", now=late + 10 * SECOND))) == 1


def test_a_claim_that_waited_for_long_does_not_take_later_starts_for_those_of_a_wrong_clock(
    store: Store, other: Store
) -> None:
    """It would set them back to the time of its request, and the next claim would not count them any more."""
    make(store, rate=Window(2, 2 * SECOND))
    start(store, *(queued(number) for number in range(5)))
    late = NOW + 3 * SECOND
    assert len(ids(take(store, now=late))) == 2
    assert ids(take(other, "w2", now=NOW, clock=lambda: late)) == []
    assert ids(take(other, "w2", now=late + SECOND)) == []
    assert len(ids(take(other, "w2", now=late + 2 * SECOND))) == 2


def test_a_rate_holds_between_clocks_that_differ_a_little(store: Store, other: Store) -> None:
    make(store, rate=Window(2, 10 * SECOND))
    start(store, *(queued(number) for number in range(4)))
    assert len(ids(take(store))) == 2
    assert len(ids(take(store, limit=1, now=NOW + 10_500_000))) == 1
    assert ids(take(other, "w2", now=NOW + 9_900_000)) == []


def test_a_rate_counts_from_the_start_of_a_run_that_a_clock_ahead_has_created(store: Store) -> None:
    make(store, rate=Window(1, 10 * SECOND))
    start(store, queued(1, created=NOW + SECOND // 2), queued(2))
    (first,) = take(store, now=NOW).claims
    assert first.run.started == NOW + SECOND // 2
    claimed = take(store, now=NOW + 10 * SECOND)
    assert (ids(claimed), claimed.next_due) == ([], NOW + SECOND // 2 + 10 * SECOND)


def test_a_rate_of_each_partition(store: Store) -> None:
    make(store, partition_rate=Window(1, 10 * SECOND))
    start(store, *(queued(number, partition="ab"[number % 2]) for number in range(4)))
    assert sorted(ids(take(store))) == ["r0", "r1"]
    assert ids(take(store, now=NOW + SECOND)) == []
    assert sorted(ids(take(store, now=NOW + 10 * SECOND))) == ["r2", "r3"]


def test_a_run_that_is_claimed_again_does_not_count_for_the_rate_again(store: Store) -> None:
    make(store, rate=Window(1, 10 * SECOND))
    start(store, queued(1))
    take(store)
    done(store, release("r1"))
    assert ids(take(store, now=NOW + SECOND)) == ["r1"]


def test_a_paused_queue_begins_nothing_new_and_goes_on_with_the_rest(store: Store) -> None:
    make(store)
    start(store, queued(1), queued(2))
    take(store, limit=1)
    assert store.queues.pause("q", paused=True)
    done(store, release("r1"))
    assert ids(take(store)) == ["r1"]
    store.queues.pause("q", paused=False)
    assert ids(take(store)) == ["r2"]


def test_a_worker_that_listens_to_some_queues_ignores_the_others(store: Store) -> None:
    make(store, "a")
    make(store, "b")
    start(store, queued(1, "a"), queued(2, "b"), run("plain"))
    assert sorted(ids(take(store, queues=frozenset({"a"})))) == ["plain", "r1"]
    done(store, release("r1"))
    assert ids(take(store, queues=frozenset({"b"}))) == ["r2"]
    assert ids(take(store, queues=frozenset({"a"}))) == ["r1"]


def test_limits_can_be_changed_while_runs_wait(store: Store) -> None:
    make(store, concurrency=1)
    start(store, *(queued(number) for number in range(4)))
    assert len(ids(take(store))) == 1
    make(store, concurrency=3)
    assert len(ids(take(store))) == 2
    make(store)
    assert len(ids(take(store))) == 1


def test_a_deleted_queue_keeps_its_runs_for_one_of_that_name(store: Store) -> None:
    make(store)
    start(store, queued(1))
    assert store.queues.delete("q")
    assert not store.queues.delete("q")
    assert ids(take(store)) == []
    make(store)
    assert ids(take(store)) == ["r1"]


def test_an_unclaimable_run_does_not_take_a_place(store: Store) -> None:
    make(store, concurrency=1)
    start(store, queued(1, workflow="unknown"), queued(2))
    assert ids(take(store)) == ["r2"]


def test_a_run_for_one_version_begins_on_that_version_only(store: Store) -> None:
    make(store)
    start(store, queued(1, version="v2"), run("plain", version="v2"))
    assert ids(take(store)) == []
    assert sorted(ids(take(store, version="v2"))) == ["plain", "r1"]


def test_a_run_that_began_goes_on_under_its_fingerprint_whatever_the_version(store: Store) -> None:
    start(store, owned("a", version="v0"))
    done(store, release("a"))
    assert [each.run.id for each in claim(store)] == ["a"]


def test_the_time_limit_of_a_queued_run_counts_from_its_claim(store: Store) -> None:
    make(store)
    start(store, queued(1, timeout=5 * SECOND))
    (taken,) = take(store, now=NOW + 60 * SECOND).claims
    assert (taken.run.deadline, taken.run.attempt_started) == (NOW + 65 * SECOND, NOW + 60 * SECOND)


def test_eight_who_claim_at_once_never_exceed_a_limit(store: Store, connect: OpenStore) -> None:
    make(store, concurrency=5, partition_concurrency=2)
    start(store, *(queued(number, partition=f"p{number % 4}") for number in range(120)))
    stores = [connect() for _ in range(8)]

    def work(number: int) -> list[str]:
        mine: list[str] = []
        for _ in range(300):
            taken = take(stores[number], f"w{number}", 3)
            for each in taken.claims:
                live = [one for one in stores[number].queues.partitions("q").values() if one.under_way]
                assert sum(one.under_way for one in live) <= 5
                assert all(one.under_way <= 2 for one in live)
                apply(stores[number], finish(each.run.id, f"w{number}", epoch=each.run.epoch))
                mine.append(each.run.id)
            if not stores[number].queues.counts():
                break
        return mine

    with ThreadPoolExecutor(8) as pool:
        shares = list(pool.map(work, range(8)))
    together = sorted(each for share in shares for each in share)
    assert together == sorted(f"r{number}" for number in range(120))


# -- what is kept of them ------------------------------------------------------------------------------------------------
def test_what_is_set_is_kept(store: Store) -> None:
    limits = Limits(concurrency=4, rate=Window(5, SECOND), partition_worker_concurrency=1)
    assert store.queues.set(Queue("q", limits, retry='{"attempts": 3}', created=NOW))
    assert not store.queues.set(Queue("q", limits, created=NOW + 1))
    found = store.queues.get("q")
    assert found is not None
    assert (found.limits, found.retry, found.paused, found.created) == (limits, None, False, NOW)
    assert store.queues.get("unknown") is None
    assert [each.name for each in store.queues.all()] == ["q"]


def test_setting_limits_does_not_resume_a_paused_queue(store: Store) -> None:
    make(store)
    store.queues.pause("q", paused=True)
    make(store, concurrency=2)
    found = store.queues.get("q")
    assert found is not None
    assert found.paused


def test_code_that_says_the_same_as_before_leaves_alone_what_was_changed_meanwhile(store: Store) -> None:
    said = Queue("q", Limits(concurrency=1), declared='{"concurrency": 1}', version="v1")
    assert store.queues.declare([said], NOW) == ["q"]
    make(store, concurrency=9)
    assert store.queues.declare([said], NOW) == []
    found = store.queues.get("q")
    assert found is not None
    assert found.limits == Limits(concurrency=9)


def test_of_two_versions_of_the_code_the_newer_one_says(store: Store) -> None:
    store.remember_version("v1", NOW)
    store.remember_version("v2", NOW + 1)
    old = Queue("q", Limits(concurrency=1), declared='{"concurrency": 1}', version="v1")
    new = Queue("q", Limits(concurrency=2), declared='{"concurrency": 2}', version="v2")
    assert store.queues.declare([old], NOW) == ["q"]
    assert store.queues.declare([new], NOW) == ["q"]
    assert store.queues.declare([old], NOW) == []
    found = store.queues.get("q")
    assert found is not None
    assert found.limits == Limits(concurrency=2)


def test_what_is_in_a_queue_is_counted(store: Store) -> None:
    make(store)
    start(store, queued(1), queued(2), queued(3, state=State.SCHEDULED, due=NOW + SECOND), queued(4, partition="p"))
    take(store, limit=1)
    counts = store.queues.counts()["q"]
    assert (counts.ready, counts.scheduled, counts.under_way) == (2, 1, 1)
    assert {name: each.ready for name, each in store.queues.partitions("q").items()} == {"": 2, "p": 0} or {
        name: each.ready for name, each in store.queues.partitions("q").items()
    } == {"": 1, "p": 1}


def test_a_queues_retries_come_with_its_runs(store: Store) -> None:
    store.queues.set(Queue("q", retry='{"attempts": 3}', created=NOW))
    start(store, queued(1), queued(2, retry='{"attempts": 9}'))
    take(store)
    assert (get(store, "r1").retry, get(store, "r2").retry) == ('{"attempts": 3}', '{"attempts": 9}')


# -- what this worker cannot take ------------------------------------------------------------------------------------------
UNSERVABLE: dict[str, dict[str, Any]] = {
    "another version": {"version": "v2"},
    "another source": {"fingerprint": "print-9"},
    "another instance": {"input": '{"self": "rome"}'},
    "another instance, by a client": {"input": '{"*": ["rome\\u0000", 1]}'},
    "another function": {"workflow": "stranger"},
}


@covering
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("why", UNSERVABLE)
@pytest.mark.parametrize("limits", [{"concurrency": 1}, {"partition_concurrency": 1}, {"worker_concurrency": 1}, {}])
def test_partitions_that_cannot_be_served_are_offered_no_place(
    store: Store, why: str, limits: dict[str, Any], *, beside: bool
) -> None:
    make(store, **limits)
    others = [queued(number, partition=f"p{number:02}", **UNSERVABLE[why]) for number in range(30)]
    start(store, *others, queued(98, **UNSERVABLE[why]), queued(99, partition="zz", input='{"self": "paris"}'))
    if beside:  # then it goes by the names of functions
        start(store, run("stranger", workflow="stranger"))
        take(store, limit=1, functions={})
    had: list[str] = []
    for number in (99, 100, 101):  # wherever the turn of the partitions stands
        (taken,) = take(store, limit=1, instances={"wf": ["paris"]}).claims
        had.append(taken.run.id)
        done(store, finish(taken.run.id))
        start(store, queued(number + 1, partition=f"z{number % 2}"))
    assert had == ["r99", "r100", "r101"]
    assert take(store, limit=1, instances={"wf": ["rome"]}, version="v2").claims


def test_thousands_of_partitions_that_cannot_be_served_are_passed_over_in_one_claim(store: Store) -> None:
    make(store, concurrency=1)
    start(store, *(queued(number, partition=f"p{number:04}", version="v2") for number in range(3_000)))
    start(store, queued(9_999, partition="zz"))
    assert ids(take(store, limit=1)) == ["r9999"]


def test_runs_that_there_is_no_place_for_do_not_hide_those_that_there_is_one_for(store: Store) -> None:
    make(store, worker_concurrency=1)
    make(store, "other", partition_worker_concurrency=1)
    begun = [queued(number, owner="w0", state=State.RUNNING, fingerprint="print-1") for number in range(40)]
    more = [
        queued(50 + n, "other", owner="w0", state=State.RUNNING, fingerprint="print-1", partition="p")
        for n in range(40)
    ]
    start(
        store, *begun, *more, queued(99, "other", owner="w0", state=State.RUNNING, fingerprint="print-1", partition="q")
    )
    store.retire("w0", NOW, None)
    taken = take(store, limit=3, mine={"q": {"": 1}, "other": {"p": 1}})
    assert (ids(taken), taken.short, taken.more) == (["r99"], True, False)
    taken = take(store, limit=3)
    assert (sorted(ids(taken)), taken.short) == (["r0", "r50"], True)
