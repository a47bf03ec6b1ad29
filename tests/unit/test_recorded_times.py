from datetime import UTC

import pytest

from harness.recorded.errors import RecordedError
from harness.recorded.times import Clock, zone_of

S = 1_000_000_000
AT = 1431857103 * S


@pytest.mark.parametrize(
    ("text", "expected", "grain"),
    [
        ("17/May/2015:10:05:03 +0000", AT, S),
        ("17/May/2015:12:05:03 +0200", AT, S),
        ("17/May/2015:04:35:03 -0530", AT, S),
        ("2015-05-17T10:05:03Z", AT, S),
        ("2015-05-17 10:05:03", AT, S),
        ("2015-05-17T12:05:03.25+02:00", AT + S // 4, S // 100),
        ("2015-05-17T10:05:03,1234567", AT + 123_456_700, 100),
        ("2015-05-17T10:05:03.123456789999Z", AT + 123_456_789, 1),
        (1431857103, AT, S),
        ("1431857103.000000001", AT + 1, 1),
        (1431857103123, AT + 123_000_000, 1_000_000),
        ("1431857103123456", AT + 123_456_000, 1_000),
        (1431857103123456789, AT + 123_456_789, 1),
        (1431857103.5, AT + S // 2, S // 10),
    ],
)
def test_every_form_is_read_exactly_and_knows_its_grain(text, expected, grain):
    assert Clock(UTC).read(text) == (expected, grain)


def test_a_time_without_a_zone_is_in_the_zone_that_was_given():
    assert Clock(zone_of("+02:00")).read("2015-05-17 12:05:03")[0] == AT
    assert Clock(zone_of("-05:30")).read("17/May/2015:04:35:03")[0] == AT
    assert Clock(zone_of("+02:00")).read("2015-05-17T10:05:03Z")[0] == AT


@pytest.mark.parametrize(
    "text",
    [
        "", "soon", "17/Mai/2015:10:05:03 +0000", "32/May/2015:10:05:03 +0000", "2015-13-01 00:00:00", None, [], {},
        "2015-05-17 10:05:61", "1969-12-31T23:59:59Z", "2201-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", -5, 1e300,
        float("nan"), "9" * 19, "٣" * 10, "17/May/2015:10:05:03 +9999", 10**40,
    ],
)  # fmt: skip
def test_what_is_no_time_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"."):
        Clock(UTC).read(text)


def test_an_unknown_zone_says_how_to_write_one():
    with pytest.raises(RecordedError) as caught:
        zone_of("Mars/Olympus")
    assert str(caught.value) == "--zone: 'Mars/Olympus' is no time zone; write UTC, +02:00 or Europe/Berlin"
