"""Lists of runs take the same short time however long the history is: by an index, near a time, or a bounded part of it per page."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

import pytest

from mainspring.model.clock import SECOND, to_datetime
from mainspring.model.ids import id_at
from mainspring.operations.connect import connect
from mainspring.operations.runs import lists
from mainspring.store.open import open_store
from tests.store.build import NOW, StoreSettings, owned, start
from tests.support.samples import covering
from tests.transactions import bank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainspring.operations.filters import RunFilters
    from mainspring.operations.runs.info import Runs

HOUR = 3_600 * SECOND
MANY = 200
_END = "UPDATE {runs} SET state = 'succeeded', owner = NULL, started = created, completed = created + 1000000, output = '1'"


@pytest.fixture(params=["chosen", "own", "both"])
def ids(request: pytest.FixtureRequest) -> str:
    """Whether ids are chosen by users or are the uids of their runs: two indexes."""
    return str(request.param)


@pytest.fixture
def runs(store_url: str, ids: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    """A run each hour, all ended, of which a page looks at twenty where no index helps."""
    monkeypatch.setattr(lists, "WITHIN", 20)
    monkeypatch.setattr(lists, "MOST", 10)
    with closing(open_store(store_url, StoreSettings())) as store:
        store.open()
        start(store, *(one(number, ids) for number in range(MANY)))
    bank.execute(store_url, _END.format(runs="mainspring_runs" if bank.is_sqlite(store_url) else "mainspring.runs"))
    with connect(store_url, StoreSettings()) as operations:
        yield operations.runs


def one(number: int, ids: str) -> Any:
    is_own = ids == "own" or (ids == "both" and number % 2 == 1)
    created = NOW + number * HOUR
    queue = "rare" if number == 3 else "usual"
    uid = f"{id_at(created)[:9]}{number:014}"
    return owned(uid if is_own else f"r{number}", uid=uid, created=created, due=created, queue=queue)


def named(run_id: str) -> str:
    """The name of a run, whatever its id is."""
    return run_id if run_id.startswith("r") else f"r{int(run_id[9:])}"


def pages(runs: Runs, **filters: Any) -> tuple[list[str], int]:
    """All runs that match, by following the pages, and how many pages that took."""
    found: list[str] = []
    after, count = None, 0
    while True:
        page = runs.list(after=after, limit=5, **filters)
        found += [named(run.id) for run in page.runs]
        count += 1
        after = page.next
        if after is None:
            return found, count


def test_without_an_index_a_page_looks_at_some_runs_and_the_next_one_goes_on(runs: Runs, ids: str) -> None:
    first = runs.list(queue="rare", limit=5)
    assert (first.runs, first.further) == ([], True)
    assert pages(runs, queue="rare") == (["r3"], MANY // (40 if ids == "both" else 20))
    assert not runs.list(limit=5).further


@covering
@pytest.mark.parametrize("index", ["state = 'failed'", "schedule = 'nightly'", "parent = 'mother'"])
def test_of_runs_that_an_index_finds_a_page_looks_at_some_if_there_is_another_filter(
    runs: Runs, store_url: str, index: str, ids: str
) -> None:
    if ids != "chosen" and index.startswith("parent"):
        pytest.skip("ids of children are not their uids")
    table = "mainspring_runs" if bank.is_sqlite(store_url) else "mainspring.runs"
    bank.execute(store_url, f"UPDATE {table} SET {index}")
    name, value = index.replace("'", "").split(" = ")
    of_index: dict[str, Any] = {name: value}
    assert not runs.list(limit=5, **of_index).further
    first = runs.list(limit=5, queue="rare", **of_index)
    assert (first.runs, first.further) == ([], True)
    assert pages(runs, queue="rare", **of_index) == (["r3"], -(-MANY // (20 // lists.SCATTERED + 1)))
    assert runs.aggregate("queue", filters=cast("RunFilters", {"queue": "rare", **of_index})) == []


@covering
@pytest.mark.parametrize("column", ["created", "started", "completed"])
def test_near_a_time_few_runs_are_looked_at(runs: Runs, column: str) -> None:
    span: dict[str, Any] = {
        f"{column}_after": to_datetime(NOW + 50 * HOUR),
        f"{column}_before": to_datetime(NOW + 53 * HOUR),
    }
    found, count = pages(runs, **span)
    assert found == ["r52", "r51", "r50"]
    assert count <= (
        3 if column == "started" else 1
    )  # from the time on backwards: nothing says when a run was created that started


def test_the_latest_ends_are_found_at_once(runs: Runs) -> None:
    page = runs.list(completed_after=to_datetime(NOW + (MANY - 2) * HOUR), limit=5)
    assert ([named(run.id) for run in page.runs], page.next) == ([f"r{MANY - 1}", f"r{MANY - 2}"], None)


def test_figures_of_a_time_are_those_of_runs_created_then(runs: Runs) -> None:
    figures = runs.aggregate((), None, {"created_after": to_datetime(NOW + 190 * HOUR)})
    assert [each.count for each in figures] == [10]


def test_pages_are_in_the_order_of_creation_whatever_the_ids_are(runs: Runs) -> None:
    assert pages(runs) == ([f"r{number}" for number in reversed(range(MANY))], MANY // 5)


def test_figures_without_a_time_are_those_of_the_newest_runs_and_say_so(runs: Runs, ids: str) -> None:
    (figures,) = runs.aggregate("state")
    assert (figures.count, figures.newest) == (39 if ids == "both" else 20, 20)
    assert runs.aggregate("state", filters={"queue": "rare"}) == []
    (figures,) = runs.aggregate("queue", filters={"created_after": to_datetime(NOW + 4 * HOUR)})
    assert (figures.count, figures.newest) == (MANY - 4, None)


def test_figures_of_runs_that_an_index_finds_are_those_of_the_newest_ones(runs: Runs, store_url: str) -> None:
    table = "mainspring_runs" if bank.is_sqlite(store_url) else "mainspring.runs"
    bank.execute(store_url, f"UPDATE {table} SET state = 'failed' WHERE created < {NOW + 30 * HOUR}")
    (figures,) = runs.aggregate("state", filters={"state": "failed"})
    assert (figures.count, figures.newest) == (20, 20)
    bank.execute(store_url, f"UPDATE {table} SET state = 'succeeded' WHERE created >= {NOW + 3 * HOUR}")
    (figures,) = runs.aggregate("state", filters={"state": "failed"})
    assert (figures.count, figures.newest) == (3, None)


def test_children_and_their_parent_are_on_pages_in_the_order_of_creation(store_url: str) -> None:
    """Ids of children begin with that of their parent, which is a uid: the index of ids has them beside it."""
    parent = f"{id_at(NOW)[:9]}{0:014}"
    children = [
        owned(f"{parent}/{number}", uid=f"{id_at(NOW)[:9]}{number + 1:014}", parent=parent) for number in range(30)
    ]
    with closing(open_store(store_url, StoreSettings())) as store:
        store.open()
        start(store, owned(parent, uid=parent), *children)
    with connect(store_url, StoreSettings()) as operations:
        found, after = list[str](), None
        while page := operations.runs.list(limit=7, after=after):
            found += [run.id for run in page.runs]
            if (after := page.next) is None:
                break
        assert found == [f"{parent}/{number}" for number in reversed(range(30))] + [parent]
        listed = operations.runs.list(parent=parent, limit=50)
        assert [run.id for run in listed.runs] == found[:-1]
