"""Stranded runs are counted by version and reason, and let go on: by any source, or by that of one version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mainspring.errors import NotFound
from mainspring.model.clock import SystemClock
from mainspring.operations.versions import Versions
from tests.store.build import NOW, claim, run, start, worker

if TYPE_CHECKING:
    from mainspring.store.protocol import Store


def test_stranded_runs_are_explained_and_forced(store: Store) -> None:
    store.register(worker("w1"))
    store.remember_version("v1", NOW)
    start(store, *(run(each, fingerprint="gone", version="v0") for each in "abc"))
    start(store, run("d", fingerprint="print-1", version="v1"))
    store.strand({"wf": "print-1"})
    versions = Versions(store, SystemClock())
    new, old = sorted(versions.list(), key=lambda each: each.version, reverse=True)
    assert (new.version, new.workers, new.live, new.stranded) == ("v1", 1, 1, {})
    assert (old.version, old.first_seen, old.live) == ("v0", None, 3)
    ((reason, count),) = old.stranded.items()
    assert (count, "has changed since this run began under version v0" in reason) == (3, True)
    assert [each.run.id for each in claim(store)] == ["d"]
    with pytest.raises(NotFound):
        versions.force(["a", "nobody"])
    assert versions.force(["a", "d"]) == {"a": True, "d": False}
    assert [each.run.id for each in claim(store)] == ["a"]
    assert versions.force(["b"], "v9") == {"b": True}
    assert claim(store) == []
    assert [each.run.id for each in claim(store, version="v9")] == ["b"]
