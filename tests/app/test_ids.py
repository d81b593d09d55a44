"""Ids sort by when they were made."""

from __future__ import annotations

from datetime import timedelta

from mainspring.model.ids import IdMaker, id_at
from mainspring.testing import VirtualClock

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def test_ids_sort_by_when_they_were_made_also_within_a_millisecond() -> None:
    clock = VirtualClock("2026-01-01T00:00Z")
    ids = IdMaker(clock)
    made: list[str] = []
    for _ in range(40):
        before = id_at(clock.now())
        some = [ids.new() for _ in range(25)]
        assert before < some[0]
        clock.set(clock.time + timedelta(milliseconds=3))
        assert some[-1] < id_at(clock.now())
        made += some
    assert made == sorted(set(made))
    assert {len(each) for each in made} == {23}
    assert set("".join(made)) <= set(ALPHABET)


def test_an_id_spells_its_time() -> None:
    milliseconds = 1_767_225_600_123
    spelled = ""
    for _ in range(9):
        spelled = ALPHABET[milliseconds % 32] + spelled
        milliseconds //= 32
    assert id_at(1_767_225_600_123_456) == spelled + "0" * 14
    assert id_at(-5) == "0" * 23
