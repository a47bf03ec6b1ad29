"""The scenarios by name: what a caller has to live through, each with the checks that it is made to decide.

Sources: RFC 9110, 10.2.3 and 5.6.7 (Retry-After); the forms that providers and SDKs use beside it; Nygard, Release It!,
chapter 5 (circuit breaker, half-open). Waits are short, so that a caller is through in seconds.
"""

from __future__ import annotations

from stub_service.provider.scenario import FOREVER_NS, NS_PER_S, Answer, Scenario, Window

_KEPT = ("caller.retry_after_kept",)
_BACKS_OFF = ("caller.backs_off",)
_OWNER = ("caller.one_owner", "caller.attempts_bounded", "caller.amplification")
_ONCE = ("caller.attempts_bounded", "caller.backs_off")
_WRITE = ("caller.idempotent", "caller.attempts_bounded")


def _refused(*headers: tuple[str, str], status: int = 429, body_s: float | None = None) -> Answer:
    return Answer("refused", status, headers, retry_after_s=body_s)


def _form(name: str, about: str, judges: tuple[str, ...], *headers: tuple[str, str]) -> Scenario:
    return Scenario(f"retry_after_{name}", f"a refusal, then success: {about}", judges, (_refused(*headers),))


def _ra(value: str) -> tuple[str, str]:
    return "Retry-After", value


_FORMS = (
    _form("seconds", "Retry-After: 1", _KEPT, _ra("1")),
    _form("float", "Retry-After: 1.5 (decimal, not in the RFC)", _KEPT, _ra("1.5")),
    _form("imf", "an IMF-fixdate 3 s ahead", _KEPT, _ra("{date+3}")),
    _form("rfc850", "an RFC 850 date 3 s ahead", _KEPT, _ra("{rfc850+3}")),
    _form("asctime", "an asctime date 3 s ahead", _KEPT, _ra("{asctime+3}")),
    _form("long", "Retry-After: 61, just over a minute", _KEPT, _ra("61")),
    _form("longer", "Retry-After: 600, longer than most deadlines", _KEPT, _ra("600")),
    _form("ms", "retry-after-ms: 250 beside Retry-After: 600", _KEPT, ("retry-after-ms", "250"), _ra("600")),
    _form("ms_negative", "retry-after-ms: -5 beside Retry-After: 2", _KEPT, ("retry-after-ms", "-5"), _ra("2")),
    _form("zero", "Retry-After: 0", _BACKS_OFF, _ra("0")),
    _form("past", "a date in the past", _BACKS_OFF, _ra("{date-5}")),
    _form("negative", "Retry-After: -10", _BACKS_OFF, _ra("-10")),
    _form("nan", "Retry-After: nan", _BACKS_OFF, _ra("nan")),
    _form("inf", "Retry-After: inf", _BACKS_OFF, _ra("inf")),
    _form("text", "Retry-After: abc", _BACKS_OFF, _ra("abc")),
    _form("list", "Retry-After: 20, 30", _BACKS_OFF, _ra("20, 30")),
    _form("iso", "an ISO 8601 date", _BACKS_OFF, _ra("2030-01-02T03:04:05Z")),
    _form("epoch", "an epoch, 1696004817", _BACKS_OFF, _ra("1696004817")),
    _form("underscore", "Retry-After: 1_000", _BACKS_OFF, _ra("1_000")),
    _form("digits", "Retry-After in fullwidth digits", _BACKS_OFF, _ra("３")),
    _form("absent", "no Retry-After at all", _BACKS_OFF),
    _form("azure_ms", "x-ms-retry-after-ms: 300 alone", _BACKS_OFF, ("x-ms-retry-after-ms", "300")),
    _form("amz_ms", "x-amz-retry-after: 300 (milliseconds) alone", _BACKS_OFF, ("x-amz-retry-after", "300")),
    _form("reset", "x-ratelimit-reset-requests: 1s alone", _BACKS_OFF, ("x-ratelimit-reset-requests", "1s")),
    _form("draft", 'RateLimit: "p";r=0;t=1 alone', _BACKS_OFF, ("RateLimit", '"p";r=0;t=1')),
    Scenario("retry_after_body", "a refusal, then success: told in the body alone, 1 s", _BACKS_OFF,
             (_refused(body_s=1.0),)),
    Scenario("retry_after_503", "a 503 with Retry-After: 1, then success", _KEPT, (_refused(_ra("1"), status=503),)),
)  # fmt: skip

_UNAVAILABLE = Answer("failed", 503)
_OTHERS = (
    Scenario("calm", "everything is served", ("caller.amplification",)),
    Scenario("refused_once", "each call: a 429 with Retry-After: 1, then success", (*_KEPT, "caller.attempts_bounded"),
             (_refused(_ra("1")),)),
    Scenario("fails_once", "each call: a 500, then success", _ONCE, (Answer("failed", 500),)),
    Scenario("unavailable_once", "each call: a 503 without Retry-After, then success", _ONCE, (_UNAVAILABLE,)),
    Scenario("fails_twice", "each call: two 503, then success", _ONCE, (_UNAVAILABLE, _UNAVAILABLE)),
    Scenario("resets_once", "each call: the connection is reset, then success", ("caller.attempts_bounded",),
             (Answer("reset"),)),
    Scenario("hangs_once", "each call: no answer for 20 s, then success", ("caller.attempts_bounded",),
             (Answer("hang", hold_ns=20 * NS_PER_S),)),
    Scenario("down", "every attempt gets a 503", _OWNER, (_UNAVAILABLE,), lasting=True),
    Scenario("throttled", "every attempt gets a 429 with Retry-After: 1", (*_OWNER, *_KEPT), (_refused(_ra("1")),),
             lasting=True),
    Scenario("bad_request", "every attempt gets a 400: no retry can help", ("caller.non_retryable",),
             (Answer("failed", 400),), lasting=True),
    Scenario("unauthorized", "every attempt gets a 401: no retry can help", ("caller.non_retryable",),
             (Answer("failed", 401),), lasting=True),
    Scenario("told_not_to", "a 429 with x-should-retry: false", ("caller.non_retryable",),
             (_refused(("x-should-retry", "false")),), lasting=True),
    Scenario("quota_used_up", "a 429 that says insufficient_quota: no retry can help, though the status invites one",
             ("caller.non_retryable",),
             (Answer("refused", 429, code="insufficient_quota"),), lasting=True),
    Scenario("commits_then_resets", "the work is done, then the connection is reset; a repeat is served", _WRITE,
             (Answer("reset", commits=True),)),
    Scenario("commits_then_fails", "the work is done, then a 500 says that it was not; a repeat is served", _WRITE,
             (Answer("failed", 500, commits=True),)),
    Scenario("commits_then_hangs", "the work is done, then no answer for 20 s; a repeat is served", _WRITE,
             (Answer("hang", commits=True, hold_ns=20 * NS_PER_S),)),
    Scenario("outage", "served for 2 s, out from 2 s to 5 s, then served", ("caller.no_storm", "caller.amplification"),
             windows=(Window(2 * NS_PER_S, 5 * NS_PER_S, _UNAVAILABLE),)),
    Scenario("wave", "out for the first second: do the retries come back as one wave?", ("caller.jittered",),
             windows=(Window(0, NS_PER_S, _UNAVAILABLE),)),
    Scenario("half_open", "out for 2 s; then 2 at a time are let through, until 4 were served", ("caller.half_open",),
             windows=(Window(0, 2 * NS_PER_S, _UNAVAILABLE),
                      Window(2 * NS_PER_S, FOREVER_NS, Answer("failed", 503, hold_ns=NS_PER_S // 5), probes=2,
                             recover=4))),
    Scenario("brownout", "every second answer is a 503, all the time", ("caller.retry_budget",),
             windows=(Window(0, FOREVER_NS, _UNAVAILABLE, every=2),)),
)  # fmt: skip

SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in (*_OTHERS, *_FORMS)}

GROUPS: dict[str, tuple[str, ...]] = {
    "suite": ("refused_once", "fails_once", "down", "bad_request", "commits_then_resets"),
    "retry_after": tuple(scenario.name for scenario in _FORMS if scenario.name not in
                         ("retry_after_long", "retry_after_longer")),
    "writes": ("commits_then_resets", "commits_then_fails", "commits_then_hangs"),
    "all": tuple(SCENARIOS),
}  # fmt: skip
"""Several in turn, for `overload judge -- COMMAND`."""
