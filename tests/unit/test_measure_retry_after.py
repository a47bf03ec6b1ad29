"""Every form of Retry-After that is met, and what is made of it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from harness.measure.retry_after import LONGEST_DELAY_S, RetryAfter, parse, parse_ms

RFC_EXAMPLE = 784111777  # 1994-11-06 08:49:37 UTC


@pytest.mark.parametrize(("header", "delay"), [("20", 20.0), ("1.5", 1.5), ("0", 0.0), ("61", 61.0), (" 600\t", 600.0)])
def test_delays(header, delay):
    assert parse(header) == RetryAfter("delay", delay_s=delay)
    assert parse(header).wait_s(0) == delay


@pytest.mark.parametrize(
    "header",
    ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"],
)
def test_dates_against_the_answers_own_date(header):
    made = parse(header)
    assert made == RetryAfter("date", at_epoch_s=RFC_EXAMPLE)
    assert made.wait_s(RFC_EXAMPLE - 7) == 7
    assert made.wait_s(RFC_EXAMPLE + 7) == 0


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (None, "no header"),
        ("", "empty"),
        ("-10", "negative"),
        ("inf", "not a finite number"),
        ("nan", "not a finite number"),
        ("abc", "neither seconds nor an HTTP date"),
        ("20, 30", "more than one value"),
        ("2025-01-01T00:00:00Z", "neither seconds nor an HTTP date"),
        ("1696004817", "longer than a year"),
        ("9" * 400, "neither seconds nor an HTTP date"),
        ("1_000", "neither seconds nor an HTTP date"),
        ("\u0663", "not ASCII"),
        ("Sun, 31 Feb 2025 08:49:37 GMT", "no such date"),
        ("Sun, 06 Nov 1994 24:49:37 GMT", "no such date"),
        ("Sun, 06 Nov 0000 08:49:37 GMT", "no such date"),
        ("Sun, 00 Nov 1994 08:49:37 GMT", "no such date"),
        ("Sun, 06 Nov 1994 08:49:61 GMT", "no such date"),
        ("Sun, 06 Nov 1994 08:60:37 GMT", "no such date"),
        ("31622401", "longer than a year"),
        ("-1.5", "negative"),
        ("Infinity", "not a finite number"),
        ("-inf", "not a finite number"),
        ("20,", "more than one value"),
        (",", "neither seconds nor an HTTP date"),
        ("Sun, 06 Nov 1994 08:49:37 CET", "neither seconds nor an HTTP date"),
    ],
)
def test_everything_else_is_absent_and_says_why(header, why):
    made = parse(header)
    assert (made.kind, made.why, made.usable, made.wait_s(0)) == ("absent", why, False, None)


def test_the_form_in_milliseconds_wins_where_it_is_one():
    assert parse_ms("250", "600") == RetryAfter("delay", delay_s=0.25)
    assert parse_ms("-5", "20") == RetryAfter("delay", delay_s=20.0)
    assert parse_ms(None, None).usable is False


def test_the_longest_delay_is_a_leap_year():
    assert parse("31622400").delay_s == LONGEST_DELAY_S == 366 * 24 * 3600
    assert parse_ms("31622400000", "7").delay_s == LONGEST_DELAY_S
    assert parse_ms("31622400001", "7").delay_s == 7.0
    assert parse_ms(" 250\t", "7").delay_s == 0.25


def test_the_edges_of_a_date():
    """A leap second is one; two digits of a year are of 1970 to 2069; each month is its own."""
    epoch = [
        parse(header).at_epoch_s
        for header in ("Sat, 31 Dec 2016 23:59:60 GMT", "Sun, 01 Jan 2017 00:00:00 GMT",
                       "Thursday, 01-Jan-70 00:00:00 GMT", "Tuesday, 31-Dec-69 23:59:59 GMT",
                       "Sat, 29 Feb 2020 00:00:00 GMT", "Mon, 01 Jan 0001 00:00:00 GMT")
    ]  # fmt: skip
    assert epoch == [1483228800, 1483228800, 0, 3155759999, 1582934400, -62135596800]
    days = {"Jan": 31, "Feb": 28, "Mar": 31, "Apr": 30, "May": 31, "Jun": 30, "Jul": 31, "Aug": 31, "Sep": 30,
            "Oct": 31, "Nov": 30, "Dec": 31}  # fmt: skip
    firsts = [parse(f"Mon, 01 {month} 2018 00:00:00 GMT").at_epoch_s for month in days]
    assert [(later - first) // 86400 for first, later in pairwise(firsts)] == [*days.values()][:-1]
