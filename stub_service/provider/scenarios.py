"""The scenarios by name: what a caller has to live through, each with the checks that it is made to decide.

Three tables: scripts that each call lives through by itself, windows of time that all calls share, and the forms in
which a refusal can tell a wait. Sources: RFC 9110, 10.2.3 and 5.6.7 (Retry-After); the forms that providers and SDKs
use beside it; Nygard, Release It!, chapter 5 (circuit breaker, half-open). Waits are short: a caller is through in
seconds.
"""

from __future__ import annotations

from stub_service.provider.scenario import FOREVER_NS, NS_PER_S, Answer, Scenario, Window

AMPLIFICATION, ATTEMPTS, BACKS_OFF = "caller.amplification", "caller.attempts_bounded", "caller.backs_off"
FINAL, HALF_OPEN, IDEMPOTENT = "caller.non_retryable", "caller.half_open", "caller.idempotent"
JITTERED, KEPT, OWNER = "caller.jittered", "caller.retry_after_kept", "caller.one_owner"
BUDGET, STORM = "caller.retry_budget", "caller.no_storm"

SECOND = (("Retry-After", "1"),)
AFTER_A_SECOND = Answer("refused", 429, SECOND)
UNAVAILABLE, BROKEN = Answer("failed", 503), Answer("failed", 500)
WRONG, UNKNOWN = Answer("failed", 400), Answer("failed", 401)
HANGS = Answer("hang", hold_ns=20 * NS_PER_S)
NEVER_AGAIN = Answer("refused", 429, (("x-should-retry", "false"),))
NO_QUOTA = Answer("refused", 429, code="insufficient_quota")
DONE_RESET, DONE_BROKEN = Answer("reset", commits=True), Answer("failed", 500, commits=True)
DONE_HANGS = Answer("hang", commits=True, hold_ns=20 * NS_PER_S)
THEN_SERVED, FOR_EVER = False, True

# fmt: off
_SCRIPTS: tuple[tuple[str, str, tuple[str, ...], tuple[Answer, ...], bool], ...] = (
    # name, about, made to decide, answers, and then
    ("calm", "everything is served", (AMPLIFICATION,), (), THEN_SERVED),
    ("refused_once", "each call: a 429 with Retry-After: 1, then success",
     (KEPT, ATTEMPTS), (AFTER_A_SECOND,), THEN_SERVED),
    ("fails_once", "each call: a 500, then success", (ATTEMPTS, BACKS_OFF), (BROKEN,), THEN_SERVED),
    ("unavailable_once", "each call: a 503 without Retry-After, then success",
     (ATTEMPTS, BACKS_OFF), (UNAVAILABLE,), THEN_SERVED),
    ("fails_twice", "each call: two 503, then success",
     (ATTEMPTS, BACKS_OFF), (UNAVAILABLE, UNAVAILABLE), THEN_SERVED),
    ("resets_once", "each call: the connection is reset, then success", (ATTEMPTS,), (Answer("reset"),), THEN_SERVED),
    ("hangs_once", "each call: no answer for 20 s, then success", (ATTEMPTS,), (HANGS,), THEN_SERVED),
    ("down", "every attempt gets a 503", (OWNER, ATTEMPTS, AMPLIFICATION), (UNAVAILABLE,), FOR_EVER),
    ("throttled", "every attempt gets a 429 with Retry-After: 1",
     (OWNER, ATTEMPTS, AMPLIFICATION, KEPT), (AFTER_A_SECOND,), FOR_EVER),
    ("bad_request", "every attempt gets a 400: no retry can help", (FINAL,), (WRONG,), FOR_EVER),
    ("unauthorized", "every attempt gets a 401: no retry can help", (FINAL,), (UNKNOWN,), FOR_EVER),
    ("told_not_to", "a 429 with x-should-retry: false", (FINAL,), (NEVER_AGAIN,), FOR_EVER),
    ("quota_used_up", "a 429 that says insufficient_quota: no retry can help, though the status invites one",
     (FINAL,), (NO_QUOTA,), FOR_EVER),
    ("commits_then_resets", "the work is done, then the connection is reset; a repeat is served",
     (IDEMPOTENT, ATTEMPTS), (DONE_RESET,), THEN_SERVED),
    ("commits_then_fails", "the work is done, then a 500 says that it was not; a repeat is served",
     (IDEMPOTENT, ATTEMPTS), (DONE_BROKEN,), THEN_SERVED),
    ("commits_then_hangs", "the work is done, then no answer for 20 s; a repeat is served",
     (IDEMPOTENT, ATTEMPTS), (DONE_HANGS,), THEN_SERVED),
    ("retry_after_body", "a refusal, then success: told in the body alone, 1 s",
     (BACKS_OFF,), (Answer("refused", 429, retry_after_s=1.0),), THEN_SERVED),
    ("retry_after_503", "a 503 with Retry-After: 1, then success",
     (KEPT,), (Answer("refused", 503, SECOND),), THEN_SERVED),
)

_WINDOWS: tuple[tuple[str, str, tuple[str, ...], tuple[Window, ...]], ...] = (
    # name, about, made to decide, windows since the first arrival
    ("outage", "served for 2 s, out from 2 s to 5 s, then served", (STORM, AMPLIFICATION),
     (Window(2 * NS_PER_S, 5 * NS_PER_S, UNAVAILABLE),)),
    ("wave", "out for the first second: do the retries come back as one wave?", (JITTERED,),
     (Window(0, NS_PER_S, UNAVAILABLE),)),
    ("half_open", "out for 2 s; then 2 at a time are let through, until 4 were served", (HALF_OPEN,),
     (Window(0, 2 * NS_PER_S, UNAVAILABLE),
      Window(2 * NS_PER_S, FOREVER_NS, Answer("failed", 503, hold_ns=NS_PER_S // 5), probes=2, recover=4))),
    ("brownout", "every second answer is a 503, all the time", (BUDGET,),
     (Window(0, FOREVER_NS, UNAVAILABLE, every=2),)),
)

_FORMS: tuple[tuple[str, str, str, dict[str, str]], ...] = (
    # retry_after_..., about, made to decide, headers of the 429 that each call is refused with before it is served
    ("seconds", "Retry-After: 1", KEPT, {"Retry-After": "1"}),
    ("float", "Retry-After: 1.5 (decimal, not in the RFC)", KEPT, {"Retry-After": "1.5"}),
    ("imf", "an IMF-fixdate 3 s ahead", KEPT, {"Retry-After": "{date+3}"}),
    ("rfc850", "an RFC 850 date 3 s ahead", KEPT, {"Retry-After": "{rfc850+3}"}),
    ("asctime", "an asctime date 3 s ahead", KEPT, {"Retry-After": "{asctime+3}"}),
    ("long", "Retry-After: 61, just over a minute", KEPT, {"Retry-After": "61"}),
    ("longer", "Retry-After: 600, longer than most deadlines", KEPT, {"Retry-After": "600"}),
    ("ms", "retry-after-ms: 250 beside Retry-After: 600", KEPT, {"retry-after-ms": "250", "Retry-After": "600"}),
    ("ms_negative", "retry-after-ms: -5 beside Retry-After: 2", KEPT, {"retry-after-ms": "-5", "Retry-After": "2"}),
    ("zero", "Retry-After: 0", BACKS_OFF, {"Retry-After": "0"}),
    ("past", "a date in the past", BACKS_OFF, {"Retry-After": "{date-5}"}),
    ("negative", "Retry-After: -10", BACKS_OFF, {"Retry-After": "-10"}),
    ("nan", "Retry-After: nan", BACKS_OFF, {"Retry-After": "nan"}),
    ("inf", "Retry-After: inf", BACKS_OFF, {"Retry-After": "inf"}),
    ("text", "Retry-After: abc", BACKS_OFF, {"Retry-After": "abc"}),
    ("list", "Retry-After: 20, 30", BACKS_OFF, {"Retry-After": "20, 30"}),
    ("iso", "an ISO 8601 date", BACKS_OFF, {"Retry-After": "2030-01-02T03:04:05Z"}),
    ("epoch", "an epoch, 1696004817", BACKS_OFF, {"Retry-After": "1696004817"}),
    ("underscore", "Retry-After: 1_000", BACKS_OFF, {"Retry-After": "1_000"}),
    ("digits", "Retry-After in fullwidth digits", BACKS_OFF, {"Retry-After": "３"}),
    ("absent", "no Retry-After at all", BACKS_OFF, {}),
    ("azure_ms", "x-ms-retry-after-ms: 300 alone", BACKS_OFF, {"x-ms-retry-after-ms": "300"}),
    ("amz_ms", "x-amz-retry-after: 300 (milliseconds) alone", BACKS_OFF, {"x-amz-retry-after": "300"}),
    ("reset", "x-ratelimit-reset-requests: 1s alone", BACKS_OFF, {"x-ratelimit-reset-requests": "1s"}),
    ("reset_ms", "x-ratelimit-reset-tokens: 12ms alone", BACKS_OFF, {"x-ratelimit-reset-tokens": "12ms"}),
    ("reset_epoch", "x-ratelimit-reset: an epoch, alone", BACKS_OFF, {"x-ratelimit-reset": "1696004817"}),
    ("reset_rfc3339", "anthropic-ratelimit-requests-reset: an RFC 3339 date, alone", BACKS_OFF,
     {"anthropic-ratelimit-requests-reset": "2030-01-02T03:04:05Z"}),
    ("draft", 'RateLimit: "p";r=0;t=1 alone', BACKS_OFF, {"RateLimit": '"p";r=0;t=1'}),
    ("draft_beside", 'RateLimit: "p";r=0;t=30 beside Retry-After: 1, which wins', KEPT,
     {"RateLimit": '"p";r=0;t=30', "Retry-After": "1"}),
    ("draft_malformed", "a malformed RateLimit alone", BACKS_OFF, {"RateLimit": "p;r=;t=soon"}),
    ("pushback", "grpc-retry-pushback-ms: 300 alone", BACKS_OFF, {"grpc-retry-pushback-ms": "300"}),
)
# fmt: on

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        *(Scenario(name, about, judges, script, lasting) for name, about, judges, script, lasting in _SCRIPTS),
        *(Scenario(name, about, judges, windows=windows) for name, about, judges, windows in _WINDOWS),
        *(
            Scenario(f"retry_after_{name}", f"a refusal, then success: {about}", (judges,),
                     (Answer("refused", 429, tuple(headers.items())),))
            for name, about, judges, headers in _FORMS
        ),
    )
}  # fmt: skip

_TOO_LONG_FOR_A_SUITE = ("retry_after_long", "retry_after_longer")

GROUPS: dict[str, tuple[str, ...]] = {
    "suite": ("refused_once", "fails_once", "down", "bad_request", "commits_then_resets"),
    "retry_after": tuple(
        name for name in SCENARIOS if name.startswith("retry_after_") and name not in _TOO_LONG_FOR_A_SUITE
    ),
    "writes": ("commits_then_resets", "commits_then_fails", "commits_then_hangs"),
    "all": tuple(SCENARIOS),
}
"""Several in turn, for `overload judge -- COMMAND`."""
