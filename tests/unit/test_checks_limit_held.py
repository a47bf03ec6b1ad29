"""fairness.limit_held: one limit for a tenant, against limiters of every kind that services have, right and wrong."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from harness.checks.judge import judge_one
from harness.checks.limit_held import NAME, Limit, beyond, granted
from harness.checks.verdict import Word
from tests.unit.ledgers import written

S = 1_000_000_000
LIMITS = {"limits": {"D": {"rate": "20/s", "burst": 20}}}


class Bucket:
    def __init__(self, rate=20, burst=20):
        self.rate, self.burst, self.level, self.at = rate, burst, Fraction(burst), 0

    def allows(self, now_ns):
        self.level = min(Fraction(self.burst), self.level + Fraction((now_ns - self.at) * self.rate, S))
        self.at = now_ns
        if self.level < 1:
            return False
        self.level -= 1
        return True


class FixedWindow:
    def __init__(self, most=20):
        self.most, self.counts = most, {}

    def allows(self, now_ns):
        self.counts[now_ns // S] = count = self.counts.get(now_ns // S, 0) + 1
        return count <= self.most


class CountsRefused(FixedWindow):
    """Over a moving second; a refused call counts as one, too: while it is asked for too much, nothing is served."""

    def __init__(self, most=20):
        self.most, self.seen = most, []

    def allows(self, now_ns):
        self.seen = [at for at in self.seen if at > now_ns - S] + [now_ns]
        return len(self.seen) <= self.most


class InTurn:
    """Replicas behind a balancer, each with a limiter of its own."""

    def __init__(self, *of):
        self.of, self.next = of, 0

    def allows(self, now_ns):
        self.next += 1
        return self.of[self.next % len(self.of)].allows(now_ns)


def judged(folder, limiter, params=LIMITS, took_ns=5_000_000, burst_per_s=100):
    """D asks for 10/s, and in the burst for much more; each decision falls in the middle of its call."""
    due = [i * S // 10 for i in range(100)]
    due += [10 * S + i * S // burst_per_s for i in range(10 * burst_per_s)]
    rows = []
    for at in due:
        served = limiter.allows(at + took_ns // 2)
        outcome = {"outcome": "served", "status": 200} if served else {"outcome": "throttled", "status": 429}
        rows.append({"due_ns": at, "done_ns": at + took_ns, **outcome})
    phases = {"phases": {"calm": ["0s", "10s"], "burst": ["10s", "20s"]}}
    return judge_one(written(folder, {"A": [], "D": rows}, phases), NAME, params)


@pytest.mark.parametrize("took_ns", [0, 5_000_000, 400_000_000])
def test_one_limit_for_all_replicas_is_held(tmp_path, took_ns):
    shared = Bucket()
    verdict = judged(tmp_path, InTurn(shared, shared), took_ns=took_ns)
    assert verdict.word is Word.PASS, verdict.sentence
    assert verdict.sentence == (
        "The limit of D was held: D, the trial: 319 served where the limit (rate 20/s, burst 20) allows 319."
    )


def test_a_limit_of_each_replica_is_caught_and_told(tmp_path):
    verdict = judged(tmp_path, InTurn(Bucket(), Bucket()))
    assert verdict.word is Word.FAIL
    assert verdict.sentence.startswith(
        "D, burst: 438 served where the limit (rate 20/s, burst 20) allows 219, 2.00 times as many; a limit that each"
    )
    assert verdict.measured == pytest.approx(438 / 219)
    assert len(verdict.witnesses) == 20


def test_three_replicas_make_three_times(tmp_path):
    assert judged(tmp_path, InTurn(Bucket(), Bucket(), Bucket())).measured == pytest.approx(3, rel=0.02)


def test_slow_calls_blur_it_and_do_not_hide_it(tmp_path):
    verdict = judged(tmp_path, InTurn(Bucket(), Bucket()), took_ns=1_000_000_000)
    assert verdict.word is Word.FAIL
    assert 1.5 < verdict.measured < 2


def test_a_fixed_window_lets_two_windows_touch(tmp_path):
    """The twin that looks wrong: never more than n a second by its own clock, and 2 n within an instant."""
    assert judged(tmp_path, FixedWindow()).word is Word.PASS
    touching = {"limits": {"D": {"rate": "20/s", "burst": 40}}}
    assert judged(tmp_path, FixedWindow(), touching).word is Word.PASS
    assert judged(tmp_path, InTurn(FixedWindow(), FixedWindow()), touching).word is Word.FAIL


def test_a_burst_is_not_thinned_out_by_a_long_calm(tmp_path):
    """Over the whole trial 1.4 times would be within half as much again."""
    verdict = judged(tmp_path, InTurn(Bucket(), Bucket()), {**LIMITS, "over": 0.5})
    assert verdict.word is Word.FAIL
    assert next(one.subject for one in verdict.findings if one.word is Word.FAIL) == "D, burst"


def test_too_little_asked_for_shows_nothing(tmp_path):
    verdict = judged(tmp_path, Bucket(), burst_per_s=22)
    assert verdict.word is Word.INCONCLUSIVE
    assert "let D ask for well over 30/s" in verdict.add


def test_a_limit_that_counts_refused_calls_starves(tmp_path):
    assert judged(tmp_path, CountsRefused()).word is Word.PASS
    starved = judged(tmp_path, CountsRefused(), {**LIMITS, "least": 0.7})
    assert starved.word is Word.FAIL
    assert "counts refused calls" in starved.sentence
    assert judged(tmp_path, Bucket(), {**LIMITS, "least": 0.7}).word is Word.PASS
    assert judged(tmp_path, FixedWindow(), {**LIMITS, "least": 0.7}).word is Word.PASS


@pytest.mark.parametrize("params", [{}, {"limits": {"X": {"rate": "1/s", "burst": 1}}}])
def test_without_a_limit_there_is_nothing_to_hold(tmp_path, params):
    verdict = judged(tmp_path, Bucket(), params)
    assert verdict.word is Word.INCONCLUSIVE
    assert "fairness.limit_held: {limits:" in verdict.add


def test_limits_scale_with_the_trial(tmp_path):
    rows = [{"due_ns": i * S // 200, "outcome": "served", "status": 200} for i in range(2000)]
    verdict = judge_one(written(tmp_path, {"D": rows}, time_scale=0.1), NAME, LIMITS)
    assert verdict.findings[0].measured == pytest.approx(1, rel=0.02)


def at(*pairs):
    return [np.array(column, dtype=np.int64) * S for column in zip(*pairs, strict=True)]


def test_a_call_counts_in_a_window_only_if_it_was_surely_decided_in_it():
    limit = Limit(rate="1/s", burst=1)
    assert beyond(*at((0, 0), (0, 0)), limit) == 1
    assert beyond(*at((0, 0), (0, 1)), limit) == 0
    assert beyond(*at((0, 0), (0, 0), (0, 0), (9, 9)), limit) == 2
    # The long one may have been decided at any time, and is not held against the others.
    assert beyond(*at((0, 9), (1, 1), (2, 2)), limit) == 0
    assert beyond(*at((0, 9), (0, 9), (0, 9)), Limit(rate="0/s", burst=2)) == 1
    assert beyond(np.array([], dtype=np.int64), np.array([], dtype=np.int64), limit) == 0


def test_what_a_bucket_grants():
    limit = Limit(rate="1/s", burst=2)
    asks = np.array([0, 0, 0, 1, 1, 5, 5, 5], dtype=np.int64) * S
    assert granted(asks, limit) == 5
    assert granted(asks, limit, full=False) == 3
    assert granted(asks[:0], limit) == 0


# --- at the bounds


def told(folder, calls, limits, phases=None, **params):
    """calls: tenant -> (second, outcome) of each; a call takes no time."""
    rows = {
        name: [{"due_ns": round(at * S), "done_ns": round(at * S), "outcome": outcome} for at, outcome in mine]
        for name, mine in calls.items()
    }
    trial = written(folder, {"A": [], "D": [], **rows}, {"phases": phases or {}})
    return judge_one(trial, NAME, {"limits": limits, **params})


def served(n, at=1):
    return [(at, "served")] * n


def refused(n, at=1):
    return [(at, "throttled")] * n


TEN = {"D": {"rate": "0/s", "burst": 10}}


@pytest.mark.parametrize(
    ("n", "over", "word"), [(11, 0.1, Word.PASS), (12, 0.1, Word.FAIL), (15, 0.5, Word.PASS), (16, 0.5, Word.FAIL)]
)
def test_what_may_be_over_the_limit_is_a_share_of_it(tmp_path, n, over, word):
    finding = told(tmp_path, {"D": served(n)}, TEN, over=over).findings[0]
    assert (finding.measured, finding.bound, finding.word) == (n / 10, 1 + over, word)


def test_only_the_tenants_own_calls_that_were_sent_count(tmp_path):
    calls = {"A": served(99), "D": [*served(9), *refused(20)]}
    verdict = told(tmp_path, calls, TEN)
    assert (verdict.word, verdict.findings[0].samples) == (Word.PASS, 9)


@pytest.mark.parametrize(
    ("asked", "limit", "breach", "word"),
    [
        (15, TEN, 0.5, Word.PASS), (14, TEN, 0.5, Word.INCONCLUSIVE), (20, TEN, 1.0, Word.PASS),
        (2, {"D": {"rate": "0/s", "burst": 1}}, 0.5, Word.PASS), (0, TEN, 0.5, Word.INCONCLUSIVE),
    ],
)  # fmt: skip
def test_a_limit_is_put_to_the_test_by_asking_for_so_much_more_than_it_grants(tmp_path, asked, limit, breach, word):
    burst = limit["D"]["burst"]
    verdict = told(tmp_path, {"D": [*served(min(burst, asked)), *refused(max(0, asked - burst))]}, limit, breach=breach)
    assert verdict.word is word
    if not asked:
        assert verdict.findings[0].measured == 0


@pytest.mark.parametrize(("had", "word"), [(5, Word.PASS), (4, Word.FAIL)])
def test_at_least_its_share_of_what_is_granted_must_be_served(tmp_path, had, word):
    verdict = told(tmp_path, {"D": [*served(had), *refused(20)]}, TEN, least=0.5)
    assert verdict.word is word
    finding = next(one for one in verdict.findings if one.quantity == "served, of what its limit grants")
    assert (finding.samples, finding.measured, finding.bound) == (10, had / 10, 0.5)
    if word is Word.PASS:
        assert finding.note == "at least"
    else:
        assert "D, the trial: served 4 of the 10 that its limit grants" in finding.note


@pytest.mark.parametrize(("asked", "judged_"), [(10, False), (11, True)])
def test_who_does_not_ask_for_more_than_the_limit_is_not_said_to_starve(tmp_path, asked, judged_):
    quantities = {one.quantity for one in told(tmp_path, {"D": refused(asked)}, TEN, least=0.5).findings}
    assert ("served, of what its limit grants" in quantities) is judged_


def test_of_a_phase_only_that_is_granted_which_does_not_hang_on_what_came_before(tmp_path):
    """The bucket of ten was emptied just before the burst, in which two more are granted."""
    calls = [*served(10, 10), (11, "throttled"), *served(1, 12), *served(1, 13), *refused(20, 13)]
    limit = {"D": {"rate": "1/s", "burst": 10}}
    verdict = told(tmp_path, {"D": calls}, limit, {"burst": ["11s", "50s"]}, least=0.5)
    granted_to = {one.subject: one.samples for one in verdict.findings if one.quantity.startswith("served, of what")}
    assert granted_to == {"D, the trial": 13, "D, burst": 2}


def test_a_phase_in_which_nothing_is_granted_for_certain_starves_nobody(tmp_path):
    calls = [*served(10), *refused(20, 11)]
    verdict = told(tmp_path, {"D": calls}, TEN, {"burst": ["11s", "50s"]}, least=0.5)
    one = next(one for one in verdict.findings if one.subject == "D, burst" and one.unit == "share")
    assert (one.measured, str(one.word)) == (1.0, "PASS")


def test_a_limit_that_is_broken_everywhere_is_told_first_where_it_is_worst_and_each_part_once(tmp_path):
    calls = [*served(20), *served(12, 20)]
    limit = {"D": {"rate": "1/s", "burst": 5}}
    verdict = told(tmp_path, {"D": calls}, limit, {"calm": ["0s", "10s"], "burst": ["10s", "50s"]})
    assert [(one.subject, str(one.word)) for one in verdict.findings] == [("D, calm", "FAIL")]
    assert verdict.measured == 4


def test_who_is_unknown_is_named(tmp_path):
    assert "the trial has no tenant X" in told(tmp_path / "x", {}, {"X": TEN["D"]}).sentence
    assert "it is not said what the limits are" in told(tmp_path / "none", {}, {}).sentence


def test_a_rate_that_is_a_fraction_is_granted_exactly():
    limit = Limit(rate="20/m", burst=1)
    assert [granted(np.array([0, at]), limit) for at in (3 * S - 1, 3 * S)] == [1, 2]
