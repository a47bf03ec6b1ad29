"""agent.adaptive_throttle on rows written by hand: the formula at each ask, its bound, when a client has recovered."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from harness.checks.adaptive_throttle import Asked, Params, _as_often, asked, windows_to_recover
from harness.checks.judge import judge_one
from harness.checks.verdict import Word
from harness.profile.model import Adaptive
from tests.unit.attempt_rows import S, finding, tried
from tests.unit.ledgers import written

CHECK = "agent.adaptive_throttle"
AFTER = "rejected after the overload"
REJECTED = {"outcome": "held_back", "reason": "adaptive_throttle", "attempt": 0, "sent_ns": -1}
OTHER_REASON = {**REJECTED, "reason": "tenant_budget"}


def row(tenant, seq, at_ns, outcome="served", **more):
    return {**tried(f"{tenant}.{seq}", (at_ns, outcome))[0], **more}


def throttled(folder, mine, others=(), window="1s", k=2.0):
    profile = {
        "tenants": {"A": {"rate": "1/s", "throttle": {"adaptive": {"k": k, "window": window}}}, "B": {"rate": "1/s"}}
    }
    return written(folder / "t", {"A": list(mine), "B": list(others)}, profile)


# --- the formula


def by_hand(rows, width, k):
    """(at, rejected, p) of each ask, one after the other, as the book says it."""
    asks = [r for r in rows if r["sent_ns"] >= 0 or r.get("reason") == "adaptive_throttle"]
    found = []
    for place, ask in enumerate(asks):
        until = ask["due_ns"]
        begin = (until // width - 59) * width
        sent = [r for r in rows if r["sent_ns"] >= 0 and begin <= r["done_ns"] <= until]
        accepts = [r for r in sent if r["outcome"] == "served"]
        before = [r for r in asks[:place] if r["sent_ns"] < 0 and r["due_ns"] >= begin]
        n = len(sent) + len(before)
        found.append((until, ask["sent_ns"] < 0, max(0.0, (n - k * len(accepts)) / (n + 1))))
    return found


@pytest.mark.parametrize("window_ns", [60, 130, 600])
@pytest.mark.parametrize("seed", range(3))
def test_p_is_the_books_formula_of_the_last_window_before_each_ask(tmp_path, seed, window_ns):
    chance = Random(seed)
    kinds = [{}, {"outcome": "throttled"}, REJECTED, OTHER_REASON]
    rows = [row(0, i, i * 7, **chance.choice(kinds)) for i in range(100)]
    for each in rows:
        each["done_ns"] = each["due_ns"] + chance.choice([0, 7, 40])
    trial = throttled(tmp_path, rows, [row(1, i, i * 5, **chance.choice(kinds)) for i in range(100)])
    asks = asked(trial, "A", Adaptive.model_construct(k=1.5, window=window_ns))
    found = list(zip(asks.at_ns.tolist(), asks.rejected.tolist(), asks.p.tolist(), strict=True))
    assert found == pytest.approx(by_hand(rows, window_ns // 60, 1.5))


# --- how far off it may be


def asks_of(p, rejected):
    n = len(p)
    return Asked(np.arange(n), np.arange(n), np.array(rejected, dtype=np.bool_), np.array(p))


@pytest.mark.parametrize("p", [0.0, 0.5, 0.9])
def test_the_count_of_rejections_is_held_to_freedmans_bound(p):
    risk = math.log(2 / 1e-6)
    bound = risk / 3 + math.sqrt(risk**2 / 9 + 2 * 400 * p * (1 - p) * risk)
    most = math.floor(400 * p + bound)
    for rejected, word in ((most, Word.PASS), (most + 1, Word.FAIL)):
        asks = asks_of([p] * 500, [True] * rejected + [False] * (500 - rejected))
        mask = np.arange(500) < 400
        asks.rejected[400:] = False
        found = _as_often("A", "calm", asks, mask, [], Params()).finding
        expected = (round(rejected - 400 * p, 3), round(bound, 3), 400)
        if most < 400:
            assert (found.word, found.measured, found.bound, found.samples) == (word, *expected)


def test_rejections_are_held_to_the_formula_in_each_phase_by_itself(tmp_path):
    """calm is [0, 40 s), burst [40 s, 80 s): what is due at their ends belongs to the one that begins."""
    at_s = [0, 1, 39, 40, 60, 79, 79.5, 80]
    verdict = judge_one(throttled(tmp_path, [row(0, i, int(s * S)) for i, s in enumerate(at_s)]), CHECK, {})
    samples = {part: finding(verdict, f"rejections off the formula, {part}").samples
               for part in ("the whole trial", "calm", "burst")}  # fmt: skip
    assert samples == {"the whole trial": 8, "calm": 3, "burst": 4}


def test_calls_that_were_rejected_for_nothing_are_named_and_those_that_were_sent_are_not(tmp_path):
    rows = [row(0, i, 41 * S + i) for i in range(100)]
    rows += [row(0, 100 + i, 41 * S + 200 + i, **REJECTED) for i in range(60)]
    verdict = judge_one(throttled(tmp_path, rows), CHECK, {})
    assert finding(verdict, "rejections off the formula, burst").word is Word.FAIL
    assert verdict.witnesses == tuple(f"0.{100 + i}" for i in range(20))


# --- afterwards


def recovery(at_ns, rejected, last_ns, k, window=10):
    n = len(at_ns)
    asks = Asked(np.arange(n), np.array(at_ns, dtype=np.int64), np.array(rejected, dtype=np.bool_), np.zeros(n))
    return windows_to_recover(asks, last_ns, Adaptive.model_construct(k=k, window=window))


@pytest.mark.parametrize(
    ("at_ns", "sent", "k", "windows"),
    [
        ([], 0, 2.0, 1),
        ([95, 96, 97, 98], 4, 2.0, 1),
        ([95, 96, 97, 98], 1, 2.0, 3),
        ([95, 96, 97, 98], 0, 2.0, 3),
        ([95, 96, 97, 98], 1, 1.5, 5),
        ([91] * 16, 1, 4.0, 3),
        ([91] * 16, 1, 1.0, 21),
        ([95] * 2, 1, 1.0, 9),
        ([90, 90, 91, 100], 3, 2.0, 2),
        ([91, 100, 101, 102], 1, 2.0, 2),
    ],
    ids=["nothing", "all_sent", "a_quarter", "none", "slower", "faster", "no_end", "k_1", "begins", "ends"],
)  # fmt: skip
def test_a_client_is_given_k_times_as_much_with_each_window_and_one_for_its_memory(at_ns, sent, k, windows):
    """Of the window before the last refusal, at 100: asks after 90, up to 100."""
    assert recovery(at_ns, [place >= sent for place in range(len(at_ns))], 100, k) == windows


def overload(rejected_after):
    """Refused once, at 10 s; all was sent in the second before: after one window of 1 s it has recovered."""
    rows = [row(0, 0, 0, "throttled", done_ns=10 * S), *(row(0, 1 + i, 9 * S + S // 2 + i) for i in range(4))]
    rows += [row(0, 10, 11 * S - 1, **REJECTED)]
    return rows + [row(0, 20 + i, 11 * S + i, **(REJECTED if i < rejected_after else {})) for i in range(100)]


def test_one_window_after_the_last_refusal_hardly_anything_is_rejected(tmp_path):
    verdict = judge_one(throttled(tmp_path, overload(2)), CHECK, {})
    found = finding(verdict, AFTER)
    assert (found.word, found.measured, found.samples) == (Word.PASS, 0.02, 100)


def test_three_of_a_hundred_are_too_many_and_are_named(tmp_path):
    theirs = [row(1, 0, 50 * S, "throttled")]
    verdict = judge_one(throttled(tmp_path, overload(3), theirs), CHECK, {})
    found = finding(verdict, AFTER)
    assert (found.word, found.measured, found.samples) == (Word.FAIL, 0.03, 100)
    assert verdict.witnesses == ("0.20", "0.21", "0.22")


def test_one_call_after_the_overload_is_its_own_share(tmp_path):
    rows = [row(0, 0, 10 * S, "throttled"), row(0, 1, 12 * S, **REJECTED)]
    assert finding(judge_one(throttled(tmp_path, rows), CHECK, {}), AFTER).measured == 1.0
