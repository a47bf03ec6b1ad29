"""Durations and rates: what is read, exactly, and what is refused."""

from __future__ import annotations

from fractions import Fraction

import pytest

from harness.profile.units import MAX_DURATION_NS, parse_duration, parse_rate, show_duration, show_rate


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("200ms", 200_000_000),
        ("2s", 2_000_000_000),
        ("1.5s", 1_500_000_000),
        ("5m", 300_000_000_000),
        ("1h", 3_600_000_000_000),
        ("7us", 7_000),
        ("3ns", 3),
        ("0s", 0),
        ("2 s", 2_000_000_000),
        ("0.000000001s", 1),
        ("720h", MAX_DURATION_NS),
    ],
)
def test_a_duration_is_read_exactly(text, ns):
    assert parse_duration(text) == ns


@pytest.mark.parametrize(
    "value",
    [
        "200",
        "",
        "ms",
        "-1s",
        "1e3s",
        "1d",
        "1,5s",
        "1s2s",
        "12:30",
        "1e999s",
        "9" * 13 + "s",
        "\u0663s",
        200,
        2.0,
        None,
        True,
        [],
    ],
)
def test_a_duration_without_its_unit_is_refused(value):
    with pytest.raises(ValueError, match="expected a duration with its unit, such as 200ms"):
        parse_duration(value)


def test_a_duration_of_more_than_thirty_days_is_refused():
    with pytest.raises(ValueError, match="at most 30 days"):
        parse_duration("721h")


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("8/s", Fraction(8)),
        ("20/m", Fraction(1, 3)),
        ("0.1/s", Fraction(1, 10)),
        ("1/h", Fraction(1, 3600)),
        ("8 / s", 8),
    ],
)
def test_a_rate_is_an_exact_fraction(text, rate):
    assert parse_rate(text) == rate


@pytest.mark.parametrize("value", ["8", "8/", "/s", "-8/s", "8/d", "8s", "1e3/s", "8//s", 8, None, "10000001/s"])
def test_a_rate_without_its_unit_is_refused(value):
    with pytest.raises(ValueError, match="a rate"):
        parse_rate(value)


@pytest.mark.parametrize(
    ("ns", "text"), [(0, "0s"), (1, "1ns"), (1_500_000_000, "1500ms"), (120_000_000_000, "2m"), (70_000_000_000, "70s")]
)
def test_a_duration_is_shown_shortest(ns, text):
    assert show_duration(ns) == text


@pytest.mark.parametrize(
    ("rate", "text"), [(Fraction(8), "8/s"), (Fraction(1, 3), "0.333/s"), (Fraction(5, 2), "2.5/s")]
)
def test_a_rate_is_shown_for_people(rate, text):
    assert show_rate(rate) == text
