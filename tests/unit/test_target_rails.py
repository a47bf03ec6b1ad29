"""Guard rails: what is refused before anything is sent, and when a running trial stops by itself."""

from __future__ import annotations

from harness.profile.loader import from_document
from harness.target.model import Abort, TargetFile
from harness.target.rails import AbortRule, banner, refusals, sending_of

MS = 1_000_000
PROFILE = {
    "name": "burst",
    "duration": "10s",
    "patience": "1s",
    "tenants": {"A": {"rate": "8/s"}, "D": {"rate": "40/s", "replans": {"calls": 2, "after": "500ms", "rounds": 3}}},
    "ordinary": ["A"],
}


def target(**keys):
    return TargetFile.model_validate({"name": "shop", "url": "http://127.0.0.1:1", **keys})


def test_the_worst_case_is_what_counts():
    profile = from_document(PROFILE).profile
    assert refusals(profile, target(limits={"max_rate": "608/s"})) == []
    (found,) = refusals(profile, target(limits={"max_rate": "100/s"}))
    assert found == (
        "the worst case of profile 'burst' is 608/s, every call refused and re-planned; target 'shop' allows 100/s "
        "(limits.max_rate): cut the rates or the re-plans' rounds, give the tenant a budget, or ask the owner of the "
        "target for more"
    )


def test_time_is_not_scaled_against_a_service_that_keeps_its_own():
    (found,) = refusals(from_document(PROFILE).profile, target(), time_scale=0.5)
    assert found.startswith("--time-scale 0.5: the service at http://127.0.0.1:1 keeps its own times")


def test_the_banner_says_what_where_and_what_stops_it():
    shop = target(limits={"max_rate": "700/s", "max_in_flight": 50})
    sending = sending_of(from_document(PROFILE).profile, shop.url, shop.limits)
    assert banner(sending, "shop") == (
        "sends to http://127.0.0.1:1 (shop): up to 48 calls/s for 10s, at most 608/s if every call is refused (one "
        "becomes 15); at most 6,080 calls in all; limits: 700 calls/s, 50 in flight; Ctrl-C stops sending and drains"
    )


def told(rule: AbortRule, rows):
    return next((said for row in rows if (said := rule.ended(*row)) is not None), None)


def test_stops_at_server_errors_and_not_at_refusals():
    rule = Abort(server_errors_pp=25, least=20)
    refused = [(i * 10 * MS, 0, "throttled", 429, MS) for i in range(1000)]
    assert told(AbortRule(rule, frozenset()), refused) is None
    third = [
        (i * 10 * MS, 0, "failed" if i % 3 == 0 else "served", 503 if i % 3 == 0 else 200, MS) for i in range(1000)
    ]
    said = told(AbortRule(rule, frozenset()), third)
    assert said is not None
    assert "server errors (abort.server_errors_pp)" in said
    few = third[:15]
    assert told(AbortRule(rule, frozenset()), few) is None


def test_a_connection_that_fails_counts_as_a_server_error():
    rows = [(i * 10 * MS, 0, "failed", -1, -1) for i in range(100)]
    assert told(AbortRule(Abort(), frozenset()), rows) is not None
    assert told(AbortRule(Abort(server_errors_pp=None), frozenset()), rows) is None


def test_old_calls_are_forgotten():
    rule = Abort(server_errors_pp=25, window="1s", least=20)
    early = [(i * 10 * MS, 0, "failed", 500, MS) for i in range(10)]
    later = [(2_000 * MS + i * 10 * MS, 0, "served", 200, MS) for i in range(200)]
    assert told(AbortRule(rule, frozenset()), early + later) is None


def test_stops_when_latency_or_the_ordinary_tenants_suffer():
    slow = [(i * 10 * MS, 0, "served", 200, (100 if i < 500 else 900) * MS) for i in range(1000)]
    said = told(AbortRule(Abort(latency_p95="500ms", window="2s"), frozenset()), slow)
    assert said is not None
    assert "p95 latency" in said
    assert "900ms" in said
    hurt = [(i * 10 * MS, i % 2, "throttled" if i >= 500 and i % 4 == 0 else "served", 200, MS) for i in range(1000)]
    rule = Abort(ordinary_hurt_pp=20, window="2s")
    said = told(AbortRule(rule, frozenset({0})), hurt)
    assert said is not None
    assert "100 % at the beginning (abort.ordinary_hurt_pp)" in said
    assert told(AbortRule(rule, frozenset({1})), hurt) is None
