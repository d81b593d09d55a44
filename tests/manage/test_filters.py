"""Filters take one text or several, in every way to ask; what no database could compare is refused with words."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from mainspring import Client
from mainspring.cli.main import main
from mainspring.errors import InvalidInput
from mainspring.operations.filters import MOST_VALUES
from tests.support.samples import covering

if TYPE_CHECKING:
    from collections.abc import Iterator

OPTIONS = ("queue", "key", "version")
COLUMNS = ("kind", "parent", "schedule", "forked_from")
TEXTS = ("id_prefix", "workflow", "state", "ids", *OPTIONS, *COLUMNS)
KINDS = {"a": "workflow", "b": "step", "c": "transaction"}
STATES = {"a": "queued", "b": "scheduled", "c": "failed"}


@pytest.fixture
def client(store_url: str) -> Iterator[Client]:
    """Three runs, a-1, b-1 and c-1, that differ in whatever runs can be found by. Nobody executes them."""
    with Client(store_url) as client:
        lines = [json.dumps({"mainspring": "runs", "format": 1})]
        for name in "abc":
            options: Any = {option: f"{option}-{name}" for option in OPTIONS}
            client.options(id=f"{name}-1", **options).start.sync(f"workflow-{name}")
            _, line = client.runs.export.sync(f"{name}-1")
            record = json.loads(line) | {column: f"{column}-{name}" for column in COLUMNS}
            lines.append(json.dumps(record | {"kind": KINDS[name], "state": STATES[name], "completed": 1}))
        client.runs.terminate.sync("a-1", "b-1", "c-1")
        client.runs.delete.sync("a-1", "b-1", "c-1")
        client.runs.load.sync(lines)
        yield client


def value(name: str, of: str) -> str:
    if name in {"id_prefix", "ids"}:
        return f"{of}-" if name == "id_prefix" else f"{of}-1"
    return KINDS[of] if name == "kind" else STATES[of] if name == "state" else f"{name}-{of}"


def found(client: Client, **filters: Any) -> set[str]:
    return {run.id for run in client.runs.list.sync(**filters).runs}


@pytest.mark.parametrize("name", TEXTS)
def test_of_several_values_one_has_to_fit(client: Client, name: str) -> None:
    a, b = value(name, "a"), value(name, "b")
    assert found(client, **{name: a}) == {"a-1"}
    for several in ([a, b], (a, b), {a, b}, frozenset({a, b}), {a: 1, b: 2}.keys()):
        assert found(client, **{name: several}) == {"a-1", "b-1"}
    assert found(client, **{name: [a, "nothing", a] if name not in {"state", "kind"} else [a, a]}) == {"a-1"}
    assert found(client, **{name: None}) == found(client, **{name: []}) == {"a-1", "b-1", "c-1"}
    several_of_it: Any = {name: [a, b]}
    figures = client.runs.aggregate.sync("workflow", **several_of_it)
    assert {each.group["workflow"]: each.count for each in figures} == {"workflow-a": 1, "workflow-b": 1}


@covering
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize(
    "wrong", [3, 3.5, True, b"text", [1], ["a", None], {"a": 1}, datetime.now(UTC), "zero\0", "\ud800"]
)
def test_a_value_that_is_no_text_is_refused(client: Client, name: str, wrong: Any) -> None:
    with pytest.raises(InvalidInput, match=rf"^{name} is "):
        client.runs.list.sync(**{name: wrong})
    with pytest.raises(InvalidInput, match=rf"^{name} is "):
        client.runs.aggregate.sync(**{name: wrong})
    if name != "ids":
        for verb in ("cancel", "terminate", "resume", "retry", "complete", "fail", "reschedule"):
            with pytest.raises(InvalidInput, match=rf"^{name} is "):
                getattr(client.runs, verb).sync(**{name: wrong})


def test_other_values_that_make_no_sense_are_refused(client: Client) -> None:
    for filters, words in (
        ({"stranded": "yes"}, "stranded is True or False"),
        ({"attributes": "tenant"}, "attributes is a dict"),
        ({"attributes": {1: "one"}}, "attributes is a dict"),
        ({"attributes": {"at": datetime.now(UTC)}}, "attributes are plain JSON"),
        ({"attributes": {"zero": "\0"}}, "attributes are plain JSON"),
        ({"attributes": {"half": "\ud800"}}, "attributes cannot be stored"),
        ({"created_after": "today"}, "created_after is an aware datetime"),
        ({"due_before": datetime(2026, 1, 1)}, "due_before 2026-01-01T00:00:00 has no zone"),  # noqa: DTZ001
        ({"after": 3}, "after is a text"),
        ({"limit": "ten"}, "limit is a whole number"),
        ({"limit": 0}, "limit is a whole number of at least 1"),
        ({"state": ["asleep"]}, "there is no state asleep"),
        ({"owner": "w"}, "runs have no filter owner"),
        ({"ids": [str(number) for number in range(MOST_VALUES + 1)]}, "ids has 10,001 values"),
    ):
        with pytest.raises(InvalidInput, match=words):
            found(client, **filters)
    with pytest.raises(InvalidInput, match="reason is a text"):
        client.runs.cancel.sync("a-1", reason=3)  # type: ignore[arg-type]


def test_many_values_are_found_as_well(client: Client) -> None:
    many = [f"workflow-{number}" for number in range(MOST_VALUES - 1)]
    assert found(client, workflow=[*many, "workflow-a"]) == {"a-1"}


def test_verbs_act_on_runs_of_several_values_and_never_on_all_for_an_empty_list(client: Client) -> None:
    assert client.runs.cancel.sync(workflow=["workflow-a", "workflow-c"]) == {"a-1": True}
    assert found(client, state="cancelled") == {"a-1"}
    for name in TEXTS[:3]:
        none: Any = {name: []}
        with pytest.raises(InvalidInput, match=rf"{name}=\[\] names no run"):
            client.runs.cancel.sync(**none, queue="queue-b")
    with pytest.raises(InvalidInput, match="which runs are meant"):
        client.runs.cancel.sync(workflow=None)
    assert found(client, state="scheduled") == {"b-1"}


def test_options_of_commands_can_be_repeated(client: Client, store_url: str) -> None:
    del client
    for name in TEXTS:
        if name == "ids":
            continue
        flag = f"--{name.replace('_', '-')}"
        said = CliRunner().invoke(
            main, ["runs", "list", "--url", store_url, flag, value(name, "a"), flag, value(name, "b"), "-o", "ids"]
        )
        assert set(said.output.split()) == {"a-1", "b-1"}, (name, said.output)


def test_functions_are_found_by_several_names(store_url: str) -> None:
    with Client(store_url) as client:
        for name in "abc":
            client.run_after.sync(3600, client.bind(name))
        listed = client.scheduled_functions.list.sync
        assert [each.name for each in listed(name=["a", "c"])] == ["a", "c"]
        assert [each.name for each in listed(name="b", state={"pending"})] == ["b"]
        for wrong in (3, [None], b"a"):
            with pytest.raises(InvalidInput, match="name is a text or a list of texts"):
                listed(name=wrong)  # type: ignore[arg-type]
            with pytest.raises(InvalidInput, match="name is a text or a list of texts"):
                client.scheduled_functions.cancel_all.sync(name=wrong)  # type: ignore[arg-type]
        first = listed(limit=2)
        assert [each.name for each in [*first, *listed(limit=2, after=first.next)]] == ["a", "b", "c"]
        assert listed(limit=2, after=first.next).next is None
        with pytest.raises(InvalidInput, match="after is the `next` of the page before, not 'c'"):
            listed(after="c")
        with pytest.raises(InvalidInput, match="names no function"):
            client.scheduled_functions.cancel_all.sync(name=[])
        assert client.scheduled_functions.cancel_all.sync(name=["a", "b"]) == 2
        assert [each.name for each in listed(state="pending")] == ["c"]
