"""Who may begin: a decision about records and a time, without a database."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mainspring.model.queues import Limits, Queue, Window
from mainspring.queues.admission import Demand, admit

NOW = 1_000_000_000


def demand(limits: Limits, waiting: list[str], **changes: Any) -> Demand:
    queue = Queue("q", limits, exceptions=changes.pop("exceptions", {}), paused=changes.pop("paused", False))
    windows: dict[int, dict[str, tuple[int, int]]] = {per: {} for per in queue.windows}
    found: dict[str, Any] = {"placed": {}, "recent": windows, "mine": {}, "room": 100, "now": NOW} | changes
    return Demand(queue, waiting, **found)


def shares(made: Demand) -> dict[str, int]:
    return {share.partition: share.count for share in admit(made).shares}


def test_without_limits_the_room_is_the_limit() -> None:
    assert shares(demand(Limits(), [""], room=7)) == {"": 7}


def test_what_is_under_way_in_the_fleet_counts() -> None:
    decided = admit(demand(Limits(concurrency=5), ["a"], placed={"a": 2, "b": 2}))
    assert [(share.partition, share.count) for share in decided.shares] == [("a", 1)]
    assert (decided.open, decided.held, decided.short) == (False, True, False)


def test_what_is_in_the_worker_counts_for_the_worker_only() -> None:
    decided = admit(demand(Limits(worker_concurrency=2), [""], mine={"": 2}))
    assert decided.shares == []
    assert (decided.held, decided.short) == (False, True)


def test_one_partition_never_blocks_another() -> None:
    made = demand(Limits(partition_concurrency=2), ["full", "free"], placed={"full": 2})
    assert shares(made) == {"free": 2}


def test_places_are_shared_out_evenly_beginning_with_whose_turn_it_is() -> None:
    made = demand(Limits(concurrency=5), ["b", "c", "a"], placed={})
    assert shares(made) == {"b": 2, "c": 2, "a": 1}


def test_what_one_partition_may_not_have_goes_to_the_others() -> None:
    made = demand(Limits(partition_concurrency=3), ["a", "b"], placed={"a": 2}, room=4)
    assert shares(made) == {"a": 1, "b": 3}


def test_a_rate_counts_what_began_within_the_window_and_says_when_the_first_leaves_it() -> None:
    limits = Limits(rate=Window(10, 60))
    decided = admit(demand(limits, [""], recent={60: {"": (4, NOW - 50), "x": (3, NOW - 20)}}))
    assert [share.count for share in decided.shares] == [3]
    assert decided.again == NOW + 10


def test_a_rate_of_a_partition_is_its_own() -> None:
    limits = Limits(partition_rate=Window(2, 60))
    decided = admit(demand(limits, ["a", "b"], recent={60: {"a": (2, NOW - 5)}}))
    assert [(share.partition, share.count) for share in decided.shares] == [("b", 2)]
    assert decided.again == NOW + 55


def test_a_partition_can_have_limits_of_its_own() -> None:
    limits, own = Limits(partition_concurrency=1), {"vip": Limits(partition_concurrency=5)}
    assert shares(demand(limits, ["vip", "b"], exceptions=own)) == {"vip": 5, "b": 1}


def test_a_paused_queue_admits_nothing() -> None:
    assert shares(demand(Limits(), [""], paused=True)) == {}


@given(
    concurrency=st.one_of(st.none(), st.integers(1, 20)),
    each=st.one_of(st.none(), st.integers(1, 5)),
    rate=st.one_of(st.none(), st.integers(1, 20)),
    placed=st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 6)),
    started=st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 6)),
    waiting=st.lists(st.sampled_from("abcdef"), unique=True),
    room=st.integers(0, 30),
)
def test_no_limit_is_ever_exceeded_and_nothing_is_left_that_could_begin(
    *,
    concurrency: int | None,
    each: int | None,
    rate: int | None,
    placed: dict[str, int],
    started: dict[str, int],
    waiting: list[str],
    room: int,
) -> None:
    window = None if rate is None else Window(rate, 60)
    limits = Limits(concurrency=concurrency, partition_concurrency=each, rate=window)
    recent = {60: {name: (count, NOW - 1) for name, count in started.items()}} if window else {}
    given_out = shares(demand(limits, waiting, placed=placed, recent=recent, room=room))
    total = sum(given_out.values())
    under_way, begun = sum(placed.values()), sum(started.values())
    assert total <= room
    assert concurrency is None or total == 0 or under_way + total <= concurrency
    assert rate is None or total == 0 or begun + total <= rate
    open_ = [name for name in waiting if each is None or placed.get(name, 0) + given_out.get(name, 0) < each]
    for name, count in given_out.items():
        assert each is None or placed.get(name, 0) + count <= each
    exhausted = (
        total == room
        or (concurrency is not None and under_way + total >= concurrency)
        or (rate is not None and begun + total >= rate)
    )
    assert exhausted or not open_
