"""Starting runs: once per id, whatever is repeated, and all that is stored comes back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from mainspring.model.states import State
from mainspring.store.writes import Start, Started
from tests.store.build import NOW, SECOND, apply, get, owned, run, start

if TYPE_CHECKING:
    from mainspring.model.runs import NewRun
    from mainspring.store.protocol import Store


def test_a_run_is_stored_with_everything_that_was_said_about_it(store: Store) -> None:
    new = run(
        "order-7",
        timeout=60 * SECOND,
        deadline=NOW + SECOND,
        version="v3",
        fingerprint="print",
        parent="parent",
        scheduled_by="other",
        attributes='{"tenant": "acme"}',
    )
    start(store, new)
    found = get(store, "order-7")
    for name in ("uid", "workflow", "kind", "input", "state", "due", "created", "timeout", "deadline", "owner"):
        assert getattr(found, name) == getattr(new, name), name
    assert (found.version, found.fingerprint, found.parent, found.scheduled_by) == ("v3", "print", "parent", "other")
    assert json.loads(found.attributes) == {"tenant": "acme"}
    assert (found.epoch, found.recoveries, found.started, found.completed, found.output) == (0, 0, None, None, None)


def test_a_run_that_begins_in_hand_counts_as_claimed_once(store: Store) -> None:
    start(store, owned("a"))
    found = get(store, "a")
    assert (found.state, found.owner, found.epoch, found.started) == (State.RUNNING, "w1", 1, NOW)


def test_values_come_back_as_the_very_text_that_was_stored(store: Store) -> None:
    text = '{"b":1,   "a": "\\u0000 \\ud83d\\ude00 ü", "n": 12345678901234567890}'
    start(store, run("a", input=text))
    assert get(store, "a").input == text


def test_a_second_start_with_an_id_finds_the_first_one(store: Store) -> None:
    start(store, run("a"))
    again = apply(store, Start(run("a", uid="uid-of-another-request")))
    assert again == Started(created=False, workflow="wf", state=State.QUEUED)


def test_the_same_start_made_again_answers_that_it_made_the_run(store: Store) -> None:
    start(store, run("a"))
    assert apply(store, Start(run("a"))) == Started(created=True, workflow="wf", state=State.QUEUED)


def test_starts_of_one_batch_with_the_same_key_find_the_first(store: Store) -> None:
    keys = {"a": "k", "b": None, "c": "k", "d": "other", "e": "k"}
    answers = store.apply([Start(run(name, key=key)) for name, key in keys.items()], NOW)
    assert all(isinstance(each, Started) for each in answers)
    assert [(each.created, each.id) for each in answers if isinstance(each, Started)] == [
        (True, ""),
        (True, ""),
        (False, "a"),
        (True, ""),
        (False, "a"),
    ]


def test_a_start_tells_which_workflow_has_the_id(store: Store) -> None:
    start(store, run("a", workflow="other"))
    again = apply(store, Start(run("a", uid="uid-2", workflow="wf")))
    assert again == Started(created=False, workflow="other", state=State.QUEUED)


def test_a_taken_id_in_a_batch_concerns_nobody_else(store: Store) -> None:
    start(store, run("b"))
    answers = store.apply([Start(run("a")), Start(run("b", uid="late")), Start(run("c"))], NOW)
    assert [isinstance(answer, Started) and answer.created for answer in answers] == [True, False, True]
    assert get(store, "c").state is State.QUEUED


def test_two_starts_of_one_id_in_one_batch_make_one_run(store: Store) -> None:
    answers = store.apply([Start(run("a", uid="first")), Start(run("a", uid="second"))], NOW)
    assert [isinstance(answer, Started) and answer.created for answer in answers] == [True, False]
    assert get(store, "a").uid == "first"


def test_data_that_the_database_refuses_fails_alone(store: Store) -> None:
    answers = store.apply([Start(run("a")), Start(run("b", kind="no such kind")), Start(run("c"))], NOW)
    assert isinstance(answers[1], Exception)
    assert [isinstance(answer, Started) for answer in answers] == [True, False, True]
    assert store.run("b") is None
    assert get(store, "c").state is State.QUEUED


def test_a_batch_of_a_thousand_starts_is_stored(store: Store) -> None:
    start(store, *(run(f"r{number:04d}") for number in range(1_000)))
    assert store.counts() == {"queued": 1_000}


MANY = 250


def alike(number: int, **changes: Any) -> NewRun:
    """One of many runs that a caller starts at once: they differ in their ids and inputs."""
    name = f"1k{number:024d}"
    return run(name, uid=name, input=json.dumps({"n": number, "odd": "a\\\"b'{},\n\t\x01 ü %s :x"}), **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"queue": "q", "partition": 'p "1"', "priority": 3, "attributes": '{"tenant": "acme"}', "version": "v3"},
        {"owner": "w1", "state": State.RUNNING, "fingerprint": "print", "timeout": SECOND, "deadline": NOW + SECOND},
        {"state": State.SCHEDULED, "due": NOW + SECOND, "scheduled_time": NOW + SECOND, "retry": '{"attempts": 3}'},
    ],
    ids=["plain", "in a queue", "owned", "later"],
)
def test_many_that_are_alike_are_stored_as_each_alone_would_be(store: Store, changes: dict[str, Any]) -> None:
    start(store, alike(MANY, **changes))
    start(store, *(alike(number, **changes) for number in range(MANY)))
    alone = get(store, alike(MANY).id)
    for number in range(MANY):
        asked, found = alike(number), get(store, alike(number).id)
        assert found == replace(alone, id=asked.id, uid=asked.id, input=asked.input)


def test_a_taken_id_among_many_that_are_alike_concerns_nobody_else(store: Store) -> None:
    start(store, run(alike(7).id, uid="of another request"))
    answers = store.apply([Start(alike(number)) for number in range(MANY)], NOW)
    assert [number for number, each in enumerate(answers) if not (isinstance(each, Started) and each.created)] == [7]
    assert store.counts() == {"queued": MANY}


def test_many_that_are_started_again_answer_as_the_first_time(store: Store) -> None:
    start(store, *(alike(number) for number in range(MANY)))
    start(store, *(alike(number) for number in range(MANY)))
    assert store.counts() == {"queued": MANY}


def test_one_of_many_that_the_database_refuses_fails_alone(store: Store) -> None:
    refused = replace(alike(9), input='"\ud800"')
    answers = store.apply([Start(alike(number) if number != 9 else refused) for number in range(MANY)], NOW)
    assert [number for number, each in enumerate(answers) if isinstance(each, Exception)] == [9]
    assert store.counts() == {"queued": MANY - 1}


def test_ids_may_contain_anything_that_is_text(store: Store) -> None:
    odd = ["a b", "ü", "it's", '"quoted"', "{curly}", "back\\slash", "100%", "%s", ":x", "😀", "a,b"]
    start(store, *(run(each) for each in odd))
    for each in odd:
        assert get(store, each).uid == f"uid-{each}"
    assert set(store.endings(odd)) == set(odd)
    assert store.cancel(odd, None, NOW) == dict.fromkeys(odd, True)
