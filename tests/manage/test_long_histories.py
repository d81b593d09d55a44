"""Lists of runs take the same short time however long the history is: by an index, near a time, or a bounded part of it per page."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from mainspring.model.clock import SECOND, to_datetime
from mainspring.model.ids import id_at
from mainspring.operations.connect import connect
from mainspring.operations.runs import lists
from mainspring.store.open import open_store
from tests.store.build import NOW, StoreSettings, owned, start
from tests.transactions import bank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainspring.operations.runs.info import Runs

HOUR = 3_600 * SECOND
MANY = 200
_END = "UPDATE {runs} SET state = 'succeeded', owner = NULL, started = created, completed = created + 1000000, output = '1'"


@pytest.fixture
def runs(store_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    """A run each hour, all ended, of which a page looks at twenty where no index helps."""
    monkeypatch.setattr(lists, "WITHIN", 20)
    monkeypatch.setattr(lists, "MOST", 10)
    with closing(open_store(store_url, StoreSettings())) as store:
        store.open()
        start(store, *(one(number) for number in range(MANY)))
    bank.execute(store_url, _END.format(runs="mainspring_runs" if bank.is_sqlite(store_url) else "mainspring.runs"))
    with connect(store_url, StoreSettings()) as operations:
        yield operations.runs


def one(number: int) -> Any:
    created = NOW + number * HOUR
    queue = "rare" if number == 3 else "usual"
    return owned(f"r{number}", uid=f"{id_at(created)[:9]}{number:015}", created=created, due=created, queue=queue)


def pages(runs: Runs, **filters: Any) -> tuple[list[str], int]:
    """All runs that match, by following the pages, and how many pages that took."""
    found: list[str] = []
    after, count = None, 0
    while True:
        page = runs.list(after=after, limit=5, **filters)
        found += [run.id for run in page.runs]
        count += 1
        after = page.next
        if after is None:
            return found, count


def test_without_an_index_a_page_looks_at_some_runs_and_the_next_one_goes_on(runs: Runs) -> None:
    first = runs.list(queue="rare", limit=5)
    assert (first.runs, first.further) == ([], True)
    assert pages(runs, queue="rare") == (["r3"], MANY // 20)
    assert not runs.list(limit=5).further


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
    assert ([run.id for run in page.runs], page.next) == ([f"r{MANY - 1}", f"r{MANY - 2}"], None)


def test_figures_of_a_time_are_those_of_runs_created_then(runs: Runs) -> None:
    figures = runs.aggregate((), None, {"created_after": to_datetime(NOW + 190 * HOUR)})
    assert [each.count for each in figures] == [10]
