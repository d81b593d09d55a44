"""Looking: pages of runs, filters, counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mainspring.model.runs import RunFilter
from mainspring.model.states import State
from tests.store.build import NOW, done, finish, owned, run, start, suspend

if TYPE_CHECKING:
    from mainspring.store.protocol import Store


def listed(store: Store, **wanted: object) -> list[str]:
    return [each.id for each in store.runs(RunFilter(**wanted))]  # type: ignore[arg-type]  # the test names the fields


def test_there_is_no_run_that_was_never_started(store: Store) -> None:
    assert store.run("nowhere") is None
    assert store.steps("nowhere") == []
    assert store.runs(RunFilter()) == []
    assert store.counts() == {}


def test_runs_are_listed_newest_first_page_by_page(store: Store) -> None:
    start(store, *(run(f"r{number}", uid=f"uid-{number}") for number in range(7)))
    first = store.runs(RunFilter(limit=3))
    assert [each.id for each in first] == ["r6", "r5", "r4"]
    second = store.runs(RunFilter(limit=3, before=first[-1].uid))
    assert [each.id for each in second] == ["r3", "r2", "r1"]
    assert listed(store, limit=3, before=second[-1].uid) == ["r0"]


def test_a_listed_run_is_the_run(store: Store) -> None:
    start(store, run("a", attributes='{"tenant": "acme"}'))
    assert store.runs(RunFilter()) == [store.run("a")]


def test_runs_are_found_by_state(store: Store) -> None:
    start(store, run("queued"), owned("running"), owned("ended"))
    done(store, finish("ended"))
    assert listed(store, states=["succeeded"]) == ["ended"]
    assert set(listed(store, states=[State.QUEUED, State.RUNNING])) == {"queued", "running"}


def test_runs_are_found_by_workflow_and_parent(store: Store) -> None:
    start(store, run("a"), run("b", workflow="other"), run("a/0", parent="a"))
    assert listed(store, workflow=["other"]) == ["b"]
    assert listed(store, parent=["a"]) == ["a/0"]
    assert listed(store, workflow=["other"], parent=["a"]) == []


@pytest.mark.parametrize("prefix", ["order-", "order_", "Ünïcode-", "50%-", "a'b-"])
def test_runs_are_found_by_the_beginning_of_their_id_literally(store: Store, prefix: str) -> None:
    start(store, run(f"{prefix}1"), run(f"{prefix}2"), run(f"x{prefix}"), run(prefix.upper() + "!"), run("order"))
    assert set(listed(store, id_prefix=[prefix])) == {f"{prefix}1", f"{prefix}2"} | (
        {prefix.upper() + "!"} if prefix.upper() == prefix else set()
    )


def test_ids_are_ordered_by_their_characters_in_no_language(store: Store) -> None:
    ids = ["B", "a", "A", "b", "Z", "ä", "_", "1"]
    start(store, *(run(each, uid=each) for each in ids))
    assert listed(store) == sorted(ids, reverse=True)


def test_stranded_runs_are_found(store: Store) -> None:
    start(store, run("a", fingerprint="old"), run("b"))
    store.strand({})
    assert (listed(store, stranded=True), listed(store, stranded=False)) == (["a"], ["b"])


def test_only_what_goes_on_is_counted(store: Store) -> None:
    start(
        store,
        run("a"),
        run("b", state=State.SCHEDULED),
        owned("c"),
        owned("d"),
        owned("e"),
        owned("f"),
        run("g"),
    )
    suspend(store, "d")
    done(store, finish("e"))
    store.cancel(["f"], None, NOW)
    assert store.counts() == {"queued": 2, "scheduled": 1, "running": 1, "waiting": 1, "cancelling": 1}
