"""The Grafana dashboard queries figures that there are, by labels that they have."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import State
from mainspring.integrations.grafana import dashboard
from mainspring.operations.metrics import Metrics
from tests.web.test_figures import written_down

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.web.conftest import Shop

_SELECTOR = re.compile(r"\b(?P<name>mainspring_\w+)(?:\{(?P<labels>[^}]*)\})?")
_MATCHER = re.compile(r'(\w+)(=~|=)"([^"]*)"')
_BY_SCRAPING = {"job"}
"""Labels that Prometheus adds."""
_OF_SERVERS = {
    "mainspring_database_connections",
    "mainspring_database_connections_allowed",
    "mainspring_database_dead_rows",
    "mainspring_database_oldest_snapshot_seconds",
}
"""Figures of PostgreSQL, which a SQLite file does not have."""


def queries() -> Iterator[str]:
    for panel in dashboard()["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


async def test_every_figure_and_label_of_the_dashboard_is_one_of_metrics(shop: Shop) -> None:
    written_down(shop)
    await shop.world.advance("1d")
    async with shop.asking() as asking:
        text = (await asking.get("/metrics")).text
    read: Any = pytest.importorskip("prometheus_client.openmetrics.parser").text_string_to_metric_families
    labels: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for family in read(text):
        for sample in family.samples:
            for name, value in sample.labels.items():
                labels[sample.name][name].add(value)
            labels[sample.name]["__name__"].add(sample.name)
    assert len(list(queries())) > 15
    for query in queries():
        found = list(_SELECTOR.finditer(query))
        assert found, query
        for selector in found:
            name = selector["name"]
            assert name in labels or name in _OF_SERVERS, f"{query} asks for {name}, which /metrics does not have"
            for label, how, value in _MATCHER.findall(selector["labels"] or ""):
                assert label in labels[name] or label in _BY_SCRAPING, f"{query}: {name} has no label {label}"
                if how == "=":
                    assert value in labels[name][label] | {str(state) for state in State}, query
        for grouped in re.findall(r"by \(([^)]*)\)", query):
            for label in grouped.split(", "):
                assert any(label in labels[selector["name"]] for selector in found), f"{query} groups by {label}"


def test_every_figure_of_the_fleet_is_on_the_dashboard() -> None:
    names = set(re.findall(r'"(mainspring_\w+)"', inspect.getsource(Metrics)))
    asked = {selector["name"] for query in queries() for selector in _SELECTOR.finditer(query)}
    assert {name for name in names if not any(each.startswith(name) for each in asked)} == set()


def test_panels_have_ids_and_places_of_their_own() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert all(x < 24 for x, _ in cells)


def test_it_is_printed_by_one_command() -> None:
    command = [sys.executable, "-m", "mainspring.integrations.grafana"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == dashboard()
