"""What an answer means, by the rules of a target file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.target.model import Answers
from harness.target.understanding import MISSING, Understanding, at_pointer, duration_ns


def understand(answers, status, headers=None, body=None):
    document = Answers.model_validate(answers)
    return Understanding(document).of(
        status, {k.lower().encode(): v.encode() for k, v in (headers or {}).items()}, body
    )


@pytest.mark.parametrize(
    ("status", "body", "outcome", "reason", "typed"),
    [
        (200, None, "served", None, True),
        (204, b"", "served", None, True),
        (429, b"slow down", "throttled", None, False),
        (503, None, "failed", "status_503", False),
        (302, None, "failed", "status_302", False),
        (200, b'{"outcome": "expired", "reason": "late"}', "expired", "late", True),
        (200, b'{"outcome": "nonsense"}', "served", None, True),
        (200, b'{"outcome": ["served"]}', "served", None, True),
        (202, b'{"outcome": "queued"}', "queued", None, True),
        (500, b'[{"outcome": "served"}]', "failed", "status_500", False),
    ],
)
def test_without_rules(status, body, outcome, reason, typed):
    found = understand({}, status, body=body)
    assert (found.outcome, found.reason, found.typed) == (outcome, reason, typed)


RULES = {
    "outcome": [
        {"status": [503, 529], "header": {"X-Overload": "shed"}, "outcome": "dependency_unavailable", "reason": "shed"},
        {"status": "4xx", "pointer": "/error/code", "equals": ["quota", "budget"], "outcome": "budget_exhausted"},
        {"pointer": "/items/0/err", "equals": True, "outcome": "failed"},
        {"pointer": "/warning", "outcome": "needs_person", "reason": "warned"},
    ]
}


@pytest.mark.parametrize(
    ("status", "headers", "body", "outcome", "reason", "by"),
    [
        (503, {"X-Overload": "was SHED now"}, None, "dependency_unavailable", "shed", "rule 1"),
        (503, {"X-Overload": "other"}, None, "failed", "status_503", "status 503"),
        (503, {}, None, "failed", "status_503", "status 503"),
        (422, {}, b'{"error": {"code": "quota"}}', "budget_exhausted", "quota", "rule 2"),
        (522, {}, b'{"error": {"code": "quota"}}', "failed", "status_522", "status 522"),
        (200, {}, b'{"items": [{"err": true}]}', "failed", None, "rule 3"),
        (200, {}, b'{"items": [{"err": 1}]}', "served", None, "status 2xx"),
        (200, {}, b'{"warning": null}', "needs_person", "warned", "rule 4"),
        (200, {}, b'{"warning', "served", None, "status 2xx"),
    ],
)
def test_the_first_rule_that_fits(status, headers, body, outcome, reason, by):
    found = understand(RULES, status, headers, body)
    assert (found.outcome, found.reason) == (outcome, reason)
    assert found.by.startswith(by)


def test_waits_and_retry_after():
    answers = {
        "queue_wait": {"header": "X-Queue", "unit": "s"},
        "service_time": {"pointer": "/t"},
        "retry_after": [{"pointer": "/retry_ms", "unit": "ms"}, {"header": "Retry-After"}],
    }
    found = understand(answers, 429, {"X-Queue": "0.25", "Retry-After": "7"}, b'{"t": 12.5, "retry_ms": 1500}')
    assert (found.queue_wait_ns, found.service_ns, found.retry_after) == (250_000_000, 12_500_000, "1.5")
    assert understand(answers, 429, {"Retry-After": "7"}).retry_after == "7"
    timing = understand({}, 200, {"Server-Timing": 'cache, Queue;desc="a";dur=3.5, service;dur="2"'})
    assert (timing.queue_wait_ns, timing.service_ns) == (3_500_000, 2_000_000)


@pytest.mark.parametrize(
    "raw", ["-1", "NaN", "", "1e9", "9" * 30, None, True, [], float("nan"), float("inf"), -1, 1e300]
)
def test_durations_that_make_no_sense(raw):
    assert duration_ns(raw, "s") == -1


def test_pointers():
    document = {"a": [{"b/c": 1, "~": 2}], "": 3}
    assert at_pointer(document, "") is document
    assert at_pointer(document, "/a/0/b~1c") == 1
    assert at_pointer(document, "/a/0/~0") == 2
    assert at_pointer(document, "/") == 3
    assert at_pointer(document, "/a/1") is at_pointer(document, "/a/-") is at_pointer(None, "/a") is MISSING


def test_names_the_headers_that_must_be_kept():
    kept = Understanding(Answers.model_validate(RULES | {"queue_wait": {"header": "X-Q"}})).headers
    assert kept == {b"x-overload", b"x-q", b"server-timing", b"retry-after"}


@given(st.integers(100, 599), st.binary(max_size=300), st.binary(max_size=60))
def test_any_answer_is_understood(status, body, header):
    found = Understanding(Answers.model_validate(RULES)).of(
        status, {b"retry-after": header, b"x-overload": header}, body
    )
    assert found.outcome
    assert found.retry_after is None or (found.retry_after.isascii() and found.retry_after.isprintable())
