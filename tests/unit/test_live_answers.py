"""From answers to outcomes, whatever a target says."""

from __future__ import annotations

import pytest

from harness.ledger.call import Call
from harness.live.answers import judge, printable, server_timing, typed_outcome


def judged(status, body=b"", timing=None, retry=None, asked=False):
    call = Call("A", 0, 0, 0, 0, 0, None)
    outcome = judge(call, status, body, timing, retry, asked)
    return outcome, call.reason, call.typed, call


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, b"", ("served", None, True)),
        (204, None, ("served", None, True)),
        (200, b'{"outcome":"served"}', ("served", None, True)),
        (200, b'{"outcome":"coalesced"}', ("served", None, True)),
        (200, b'{"data":{"outcome":"throttled"}}', ("served", None, True)),
        (200, b'{"outcome":', ("served", None, True)),
        (200, b'{"outcome":"throttled","reason":"busy"}', ("throttled", "busy", True)),
        (202, b'{"outcome":"queued","poll":"/later"}', ("failed", "unasked_wait", True)),
        (202, b'{"outcome": "failed"}', ("failed", "status_202", True)),
        (429, b'{"outcome":"throttled","reason":"queue_full"}', ("throttled", "queue_full", True)),
        (429, b"slow down", ("throttled", None, False)),
        (429, None, ("throttled", None, False)),
        (429, b'{"outcome":"budget_exhausted"}', ("budget_exhausted", None, True)),
        (504, b'{"outcome":"expired","reason":"queue_deadline"}', ("expired", "queue_deadline", True)),
        (504, b"", ("failed", "status_504", False)),
        (503, b'{"outcome":"dependency_unavailable"}', ("dependency_unavailable", None, True)),
        (500, b'{"outcome":"failed"}', ("failed", "status_500", True)),
        (500, b'{"outcome":"failed","reason":"boom"}', ("failed", "boom", True)),
        (500, b'{"outcome":"served"}', ("failed", "status_500", False)),
        (500, b'{"outcome":"held_back"}', ("failed", "status_500", False)),
        (500, b'{"outcome":["throttled"]}', ("failed", "status_500", False)),
        (500, b'["outcome"]', ("failed", "status_500", False)),
        (500, b'{"outcome":', ("failed", "status_500", False)),
        (401, b'{"error":"unknown_token"}', ("failed", "status_401", False)),
        (302, b"", ("failed", "status_302", False)),
        (101, b"", ("failed", "status_101", False)),
    ],
)
def test_outcome(status, body, expected):
    assert judged(status, body)[:3] == expected


def test_only_the_deadline_that_was_asked_for_is_patience():
    body = b'{"outcome":"expired","reason":"queue_deadline"}'
    assert judged(504, body, asked=True)[:2] == ("abandoned", "patience")
    assert judged(504, b'{"outcome":"expired","reason":"stale"}', asked=True)[:2] == ("expired", "stale")


def test_what_the_service_says_of_times_and_retries_is_kept():
    *_, call = judged(429, timing=b"queue;dur=1.5, service;dur=0", retry=b"3")
    assert (call.status, call.queue_wait_ns, call.service_ns, call.retry_after) == (429, 1_500_000, 0, "3")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"queue;dur=12.3, service;dur=200.1", (12_300_000, 200_100_000)),
        (b"service;dur=200", (-1, 200_000_000)),
        (b'cache;desc="hit", queue ; desc="waiting" ; dur="2.5"', (2_500_000, -1)),
        (b"queue;dur=1;dur=2", (1_000_000, -1)),
        (b"queue;dur=1, queue;dur=2", (1_000_000, -1)),
        (b"queue;dur=-1, service;dur=nan", (-1, -1)),
        (b"queue;dur=inf, service;dur=1e3", (-1, -1)),
        (b"queue;dur=99999999999, service;dur=1_0", (-1, -1)),
        (b"queue;dur=, service", (-1, -1)),
        (b"myqueue;dur=1", (-1, -1)),
        (b"", (-1, -1)),
        (b"queue;dur=1" + b" " * 2000, (-1, -1)),
        (b"queue" + b";" * 1000, (-1, -1)),
        (b"\xff\xfe;dur=1", (-1, -1)),
    ],
)
def test_server_timing(value, expected):
    assert server_timing(value) == expected


def test_text_of_a_target_is_bounded_and_printable():
    assert printable(b"Wed, 21 Oct 2026 07:28:00 GMT", 200) == "Wed, 21 Oct 2026 07:28:00 GMT"
    assert printable(b"\x1b[31m\r\n\xe9", 200) == "?[31m???"
    assert len(printable(b"9" * 5000, 200)) == 200
    outcome, reason = typed_outcome('{"outcome":"throttled","reason":"é\\u0000'.encode() + b"x" * 500 + b'"}')
    assert outcome == "throttled"
    assert len(reason) == 100
    assert reason.isascii()
    assert reason.isprintable()
