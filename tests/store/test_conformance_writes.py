"""Recording what a run does: behind the fence, once, and together with the runs that it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from mainspring.model.states import State
from mainspring.store.writes import DiscardOutcome, Recorded, RecordStep, Verdict
from tests.store.build import (
    NOW,
    SECOND,
    apply,
    claim,
    done,
    finish,
    get,
    owned,
    run,
    start,
    state,
    step,
    wait_for,
    write,
)

if TYPE_CHECKING:
    from mainspring.store.protocol import Store

MIB = "x" * 2**20


def test_an_outcome_is_stored_as_it_is(store: Store) -> None:
    start(store, owned("a"))
    made = step("a", "t0.3", seq=4, attempts=3, trail='["one", "two"]', output='{"b":1,  "a":2}')
    assert write(store, made) == Recorded()
    assert store.steps("a") == [made]


def test_an_exception_is_an_outcome_too(store: Store) -> None:
    start(store, owned("a"))
    made = step("a", output=None, error='{"type": "ValueError"}')
    assert write(store, made) == Recorded()
    assert store.steps("a") == [made]


def test_a_begun_step_becomes_a_completed_one(store: Store) -> None:
    start(store, owned("a"))
    begun = step("a", seq=None, output=None, completed=None, due=NOW + SECOND)
    write(store, begun)
    assert store.steps("a") == [begun]
    over = step("a", attempts=2)
    write(store, over)
    assert store.steps("a") == [replace(over, started=begun.started)]


def test_a_completed_step_is_never_changed(store: Store) -> None:
    start(store, owned("a"))
    write(store, step("a", output="1", seq=0))
    answer = write(store, step("a", output="2", seq=1))
    assert answer.verdict is Verdict.FENCED
    assert store.steps("a")[0].output == "1"


def test_a_stranger_cannot_write(store: Store) -> None:
    start(store, owned("a", "w1"))
    assert write(store, step("a"), owner="w2").verdict is Verdict.FENCED
    assert store.steps("a") == []


def test_a_zombie_worker_cannot_write(store: Store) -> None:
    start(store, owned("a", "w1"))
    store.retire("w1", NOW, None)
    claim(store, "w1")  # even under its own name: the epoch is another one
    assert write(store, step("a", epoch=1)).verdict is Verdict.FENCED
    assert write(store, step("a", epoch=2)).verdict is Verdict.DONE


def test_nothing_is_written_for_a_run_that_does_not_exist(store: Store) -> None:
    assert write(store, step("nowhere")).verdict is Verdict.FENCED


def test_nothing_is_written_after_the_end(store: Store) -> None:
    start(store, owned("a"))
    done(store, finish("a"))
    assert write(store, step("a")).verdict is Verdict.FENCED
    assert store.steps("a") == []


def test_a_run_that_is_being_cancelled_records_outcomes_but_starts_nothing(store: Store) -> None:
    start(store, owned("a"))
    store.cancel(["a"], None, NOW)
    assert write(store, step("a", "0")) == Recorded(stopping=True)
    assert write(store, step("a", "0")) == Recorded(stopping=True), "and again, after a lost acknowledgement"
    assert write(store, step("a", "1"), starts=[run("a/1")]).verdict is Verdict.STOPPING
    assert [each.position for each in store.steps("a")] == ["0"]
    assert store.run("a/1") is None


def test_what_is_written_unless_the_run_is_being_cancelled_is_refused_then(store: Store) -> None:
    start(store, owned("a"))
    assert write(store, step("a", "0"), unless_stopping=True) == Recorded()
    store.cancel(["a"], None, NOW)
    assert write(store, step("a", "0"), unless_stopping=True) == Recorded(stopping=True), (
        "after a lost acknowledgement: it was written before that"
    )
    assert write(store, step("a", "1"), unless_stopping=True).verdict is Verdict.STOPPING
    assert [each.position for each in store.steps("a")] == ["0"]


def test_a_child_begins_if_and_only_if_its_step_is_recorded(store: Store) -> None:
    start(store, owned("a"))
    child = run("a/0", parent="a")
    assert write(store, step("a", "0", child="a/0"), owner="w2", starts=[child]).verdict is Verdict.FENCED
    assert store.run("a/0") is None
    assert write(store, step("a", "0", child="a/0"), starts=[child]) == Recorded()
    assert get(store, "a/0").parent == "a"


def test_a_child_that_is_there_already_is_adopted(store: Store) -> None:
    start(store, owned("a"), run("mine", uid="older"))
    answer = write(store, step("a"), starts=[run("mine"), run("new")])
    assert answer == Recorded(Verdict.DONE, {"mine": "wf"})
    assert len(store.steps("a")) == 1
    assert state(store, "new") is State.QUEUED
    assert get(store, "mine").uid == "older"


def test_a_child_id_of_another_workflow_refuses_all_of_the_write(store: Store) -> None:
    start(store, owned("a"), run("mine", workflow="other"))
    answer = write(store, step("a"), starts=[run("new"), run("mine", uid="later")], run_state=State.WAITING)
    assert answer.verdict is Verdict.TAKEN
    assert answer.taken == {"mine": "other"}
    assert store.steps("a") == []
    assert store.run("new") is None
    assert state(store) is State.RUNNING


def test_watching_tells_how_a_run_has_ended(store: Store) -> None:
    start(store, owned("a"), owned("b"))
    done(store, finish("b", output="7"))
    answer = write(store, wait_for("b"), watch="b", run_state=State.WAITING, due=NOW + SECOND)
    assert answer.verdict is Verdict.DONE
    assert answer.ending is not None
    assert (answer.ending.state, answer.ending.output) == (State.SUCCEEDED, "7")
    assert state(store) is State.RUNNING, "there is nothing to wait for, so it does not begin to wait"


def test_watching_a_run_that_goes_on_tells_nothing(store: Store) -> None:
    start(store, owned("a"), owned("b"))
    assert write(store, wait_for("b"), watch="b", run_state=State.WAITING) == Recorded()
    assert state(store) is State.WAITING


def test_watching_a_run_that_is_not_there_says_so(store: Store) -> None:
    start(store, owned("a"))
    assert write(store, wait_for("b"), watch="b").missing


def test_a_write_may_start_a_run_and_wait_for_it(store: Store) -> None:
    start(store, owned("a"))
    answer = write(store, wait_for("a/0"), starts=[run("a/0")], watch="a/0", run_state=State.WAITING)
    assert answer == Recorded()
    assert (state(store, "a"), state(store, "a/0")) == (State.WAITING, State.QUEUED)


def test_the_mood_goes_with_the_write(store: Store) -> None:
    start(store, owned("a"))
    write(store, step("a", "0"), run_state=State.WAITING, due=NOW + SECOND)
    assert (state(store), get(store).due, get(store).owner) == (State.WAITING, NOW + SECOND, "w1")
    write(store, step("a", "1"), run_state=State.RUNNING, due=None)
    assert state(store) is State.RUNNING
    write(store, step("a", "2"), owner="w2", run_state=State.WAITING)
    assert state(store) is State.RUNNING


def test_a_run_that_is_being_cancelled_keeps_being_so_whatever_its_mood(store: Store) -> None:
    start(store, owned("a"))
    store.cancel(["a"], None, NOW)
    assert write(store, step("a"), run_state=State.WAITING).verdict is Verdict.DONE
    assert state(store) is State.CANCELLING


def test_a_loser_in_a_batch_concerns_nobody_else(store: Store) -> None:
    start(store, *(owned(f"r{number}") for number in range(5)))
    done(store, finish("r3"))
    answers = store.apply([RecordStep("w1", step(f"r{number}")) for number in range(5)], NOW)
    verdicts = [answer.verdict for answer in answers if isinstance(answer, Recorded)]
    assert verdicts == [Verdict.DONE] * 3 + [Verdict.FENCED, Verdict.DONE]
    assert [len(store.steps(f"r{number}")) for number in range(5)] == [1, 1, 1, 0, 1]


def test_bad_data_in_a_batch_concerns_nobody_else(store: Store) -> None:
    start(store, *(owned(f"r{number}") for number in range(8)))
    ops = [RecordStep("w1", step(f"r{number}")) for number in range(8)]
    ops[5].starts = [run("bad", kind="no such kind")]
    answers = store.apply(ops, NOW)
    assert [isinstance(answer, Exception) for answer in answers] == [number == 5 for number in range(8)]
    assert [len(store.steps(f"r{number}")) for number in range(8)] == [int(number != 5) for number in range(8)]


def test_several_branches_of_a_run_record_in_one_batch(store: Store) -> None:
    start(store, owned("a"))
    answers = store.apply([RecordStep("w1", step("a", f"t{number}.0", seq=number)) for number in range(50)], NOW)
    assert answers == [Recorded()] * 50
    assert [each.seq for each in store.steps("a")] == list(range(50))


def test_a_step_may_begin_and_end_in_one_batch(store: Store) -> None:
    start(store, owned("a"))
    begun = step("a", seq=None, output=None, completed=None)
    assert store.apply([RecordStep("w1", begun), RecordStep("w1", step("a"))], NOW) == [Recorded(), Recorded()]
    assert [each.completed for each in store.steps("a")] == [NOW + 1]


def test_a_batch_has_first_outcomes_and_outcomes_of_steps_that_have_begun_and_of_completed_ones(store: Store) -> None:
    start(store, owned("a"), owned("b"), owned("c"))
    write(store, step("b", completed=None, seq=None, output=None, attempts=0))
    write(store, step("c", output='"first"'))
    made = [step("a", output='"a"'), step("b", output='"b"', attempts=2), step("c", output='"second"')]
    answers = store.apply([RecordStep("w1", each) for each in made], NOW)
    verdicts = [answer.verdict for answer in answers if isinstance(answer, Recorded)]
    assert verdicts[:2] == [Verdict.DONE, Verdict.DONE]
    assert [store.steps(each) for each in ("a", "b")] == [[made[0]], [made[1]]]
    assert [each.output for each in store.steps("c")] == ['"first"']


def test_writes_with_and_without_consequences_share_a_batch(store: Store) -> None:
    start(store, owned("a"), owned("b"), owned("c"), owned("d"), owned("e"))
    done(store, finish("e", output="5"))
    answers = store.apply(
        [
            RecordStep("w1", step("a")),
            RecordStep("w1", step("b"), run_state=State.WAITING, due=NOW + SECOND),
            RecordStep("w1", wait_for("c/0", "c"), starts=[run("c/0")], watch="c/0", run_state=State.WAITING),
            RecordStep("w1", wait_for("e", "d"), watch="e", run_state=State.WAITING),
        ],
        NOW,
    )
    assert [answer.verdict for answer in answers if isinstance(answer, Recorded)] == [Verdict.DONE] * 4
    assert [state(store, each) for each in ("a", "b", "c", "c/0", "d")] == [
        State.RUNNING,
        State.WAITING,
        State.WAITING,
        State.QUEUED,
        State.RUNNING,
    ]
    last = answers[-1]
    assert isinstance(last, Recorded)
    assert last.ending is not None
    assert last.ending.output == "5"


def test_large_values_are_stored_alone_and_in_company(store: Store) -> None:
    start(store, *(owned(f"r{number}") for number in range(8)))
    ops = [RecordStep("w1", step(f"r{number}", output=f'"{MIB * 5}"')) for number in range(8)]
    assert store.apply(ops, NOW) == [Recorded()] * 8
    assert len(store.steps("r7")[0].output or "") == 5 * 2**20 + 2


def test_an_outcome_that_was_never_seen_is_marked(store: Store) -> None:
    start(store, owned("a"), owned("b"))
    write(store, step("a", "0"))
    write(store, step("b", "0"))
    assert apply(store, DiscardOutcome("w1", "a", 1, "0")) is Verdict.DONE
    assert store.steps("a")[0].discarded
    assert store.apply([DiscardOutcome("w1", "b", 1, "0"), DiscardOutcome("w2", "a", 1, "0")], NOW) == [
        Verdict.DONE,
        Verdict.FENCED,
    ]
    assert apply(store, DiscardOutcome("w1", "a", 2, "0")) is Verdict.FENCED


def test_steps_come_in_the_order_of_their_outcomes_and_unfinished_ones_last(store: Store) -> None:
    start(store, owned("a"))
    for position, seq in (("0", 2), ("1", 0), ("2", None), ("3", 1)):
        completed = None if seq is None else NOW
        write(store, step("a", position, seq=seq, completed=completed))
    assert [each.position for each in store.steps("a")] == ["1", "3", "0", "2"]
