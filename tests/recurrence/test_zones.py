"""Zones are read from their files, or carried in the spec, and agree with the standard library at every transition."""

from __future__ import annotations

import base64
import struct
from datetime import UTC, datetime
from importlib.resources import files
from zoneinfo import ZoneInfo

import pytest

from mainspring.errors import InvalidSpec
from mainspring.recurrence import Spec
from mainspring.recurrence.zones.tzif import parse_posix_rule, parse_tzif
from mainspring.recurrence.zones.zones import load_zone
from tests.recurrence.brute import offset, transitions
from tests.recurrence.strategies import ODD_ZONES, ZONES


def tzif(*changes: tuple[int, int], first: int = 0, rule: bytes = b"") -> bytes:
    """A zone file with these changes of offset."""
    types = [first, *(to for _, to in changes)]
    header = struct.pack(">4sc15x6I", b"TZif", b"2", 0, 0, 0, len(changes), len(types), 4)
    body = struct.pack(f">{len(changes)}q", *(at for at, _ in changes)) + bytes(range(1, len(types)))
    body += b"".join(struct.pack(">ibb", to, 0, 0) for to in types) + b"ABC\0"
    empty = struct.pack(">4sc15x6I", b"TZif", b"2", 0, 0, 0, 0, 1, 4) + struct.pack(">ibb", 0, 0, 0) + b"ABC\0"
    return empty + header + body + b"\n" + rule + b"\n"


@pytest.mark.parametrize("key", [*ODD_ZONES, *ZONES[::29]])
def test_every_transition_until_2040_is_known(key: str) -> None:
    known = [at for at in load_zone(key).instants if 946_684_800 < at < 2_208_988_800]
    assert known == list(transitions(key))


@pytest.mark.parametrize("key", ODD_ZONES)
def test_offsets_agree_up_to_2100(key: str) -> None:
    zone, expected = load_zone(key), ZoneInfo(key)
    for instant in range(946_771_200, 4_133_894_400, 39_876_543):
        assert zone.offset(instant) == offset(expected, instant)
    for at in zone.instants:
        assert (zone.offset(at - 1), zone.offset(at)) == (offset(expected, at - 1), offset(expected, at))


@pytest.mark.parametrize("key", ["Europe/Berlin", "Europe/Dublin", "America/New_York", "Australia/Lord_Howe"])
def test_a_spec_can_carry_its_zone(key: str) -> None:
    data = files("tzdata").joinpath("zoneinfo", *key.split("/")).read_bytes()
    carried = Spec(cron=["30 2 * * *"], timezone=key, timezone_data=data)
    after = datetime(2030, 1, 1, tzinfo=UTC)
    named = Spec(cron=["30 2 * * *"], timezone=key)
    assert [when.isoformat() for when in carried.upcoming(after, 400)] == [
        when.isoformat() for when in named.upcoming(after, 400)
    ]
    again = Spec.from_dict(carried.to_dict())
    assert again == carried
    assert again.to_dict()["timezoneData"] == base64.b64encode(data).decode()


def test_a_zone_of_ones_own_needs_no_name() -> None:
    summer = 1_780_000_000 // 86_400 * 86_400
    spec = Spec(cron=["0 12 * * *"], timezone_data=tzif((summer, 7_200), first=3_600, rule=b"ABC-2"))
    assert [when.isoformat() for when in spec.upcoming(summer - 86_400, 2)] == [
        "2026-05-27T12:00:00+01:00",
        "2026-05-28T12:00:00+02:00",
    ]


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "cut off"),
        (b"GIF89a" + bytes(80), "does not begin with 'TZif'"),
        (tzif()[:-20], "cut off"),
        (tzif((10, 3_600), (5, 0)), "not in order"),
        (tzif((10, 90_000)), "a day or more"),
        (tzif(rule=b"nonsense!"), "cannot be read"),
        (tzif((1_780_000_000, 7_200), (1_780_000_100, 0)), "closer together than the clocks move"),
        (bytes(2_000_000), "not a zone file"),
    ],
)
def test_bad_zone_data_is_refused_with_words(data: bytes, fault: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        Spec(timezone_data=data)
    assert fault in str(caught.value)


@pytest.mark.parametrize(
    ("rule", "first"),
    [
        ("CET-1CEST,M3.5.0,M10.5.0/3", ["2000-03-26T01:00", "2000-10-29T01:00"]),
        ("IST-1GMT0,M10.5.0,M3.5.0/1", ["2000-03-26T01:00", "2000-10-29T01:00"]),
        ("<-02>2<-01>,M3.5.0/-1,M10.5.0/0", ["2000-03-26T01:00", "2000-10-29T01:00"]),
        ("EST5EDT,J60,300", ["2000-03-01T07:00", "2000-10-27T06:00"]),
        ("EST5EDT4,59/0,J365/23:30:15", ["2000-02-29T05:00", "2001-01-01T03:30"]),
    ],
)
def test_closing_rules(rule: str, first: list[str]) -> None:
    found = [
        datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M")
        for at, _ in parse_posix_rule(rule).transitions(range(1))
    ]
    assert found == first


@pytest.mark.parametrize(
    "rule", ["", "X1", "EST", "EST5EDT", "EST5EDT,M13.1.1,M1.1.1", "EST5EDT,J0,J1", "EST5EDT,366,1", "EST999"]
)
def test_bad_closing_rules(rule: str) -> None:
    with pytest.raises(ValueError, match="rule"):
        parse_posix_rule(rule)


def test_old_files_without_a_rule_are_read() -> None:
    old = struct.pack(">4sc15x6I", b"TZif", b"\0", 0, 0, 0, 1, 2, 4) + struct.pack(">i", 1_000_000_000) + b"\1"
    old += struct.pack(">ibb", 0, 0, 0) + struct.pack(">ibb", 3_600, 1, 0) + b"ABC\0"
    assert parse_tzif(old) == ((1_000_000_000,), (0, 3_600))
