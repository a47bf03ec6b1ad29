"""Every form of Retry-After that is met, and what is made of it."""

from __future__ import annotations

import pytest

from harness.measure.retry_after import RetryAfter, parse, parse_ms

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
