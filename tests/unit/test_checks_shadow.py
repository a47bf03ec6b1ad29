"""fairness.shadow_agrees on logs written line by line: which calls are compared, and from when on they differ."""

from __future__ import annotations

import math

import pytest

from harness.checks.judge import judge_one
from harness.checks.shadow import EXPIRED, NAME, REFUSED, paired
from harness.checks.verdict import Word
from harness.ledger.reader import DECISIONS
from tests.unit.ledgers import steady, write_rows, written

FAIR = {"policy": "fair_queues", "queue_per_tenant": 9}
FIFO = {"policy": "shared_fifo", "queue": 30}


def service(admission, **more):
    return {"workers": 4, "service_time": "200ms", "admission": admission, **more}


SAME = {"service": service(FAIR, shadow=FAIR)}
NO, YES, LATE = "throttled", "served", "expired"


def pairs(n, *differ, refused=60):
    """n calls: (how many, in shadow, in fact) of those that differ, 60 that both refuse, and the others served."""
    found = [(shadow, fact) for many, shadow, fact in differ for _ in range(many)]
    found += [(NO, NO)] * refused
    return found + [(YES, YES)] * (n - len(found))


def log(tenant, found):
    """What was decided first, and then what the shadow says."""
    calls = [(f"{tenant}.{seq}", shadow, fact) for seq, (shadow, fact) in enumerate(found)]
    return [{"call": call, "outcome": fact} for call, _, fact in calls] + [
        {"call": call, "outcome": shadow, "part": "shadow"} for call, shadow, _ in calls
    ]


def judged(tmp_path, *tenants, params=None, strays=(), profile=SAME):
    names = ("A", "B", "C")[: len(tenants)]
    trial = written(tmp_path / "t", {name: [] for name in names}, profile)
    rows = [row for tenant, found in enumerate(tenants) for row in log(tenant, found)]
    write_rows(trial.folder, [*rows, *strays], DECISIONS)
    return judge_one(trial, NAME, params or {})


def of(verdict, subject, quantity=REFUSED):
    return next(f for f in verdict.findings if (f.subject, f.quantity) == (subject, quantity))


@pytest.mark.parametrize(
    ("n", "refused", "word"), [(100, 50, "PASS"), (100, 49, "INCONCLUSIVE"), (99, 60, "INCONCLUSIVE")]
)
def test_a_hundred_calls_of_a_tenant_and_fifty_refusals_are_enough(tmp_path, n, refused, word):
    found = judged(tmp_path, pairs(n, refused=refused))
    assert (found.word, found.samples) == (word, n)
    if word == "PASS":
        assert (found.measured, found.bound) == (0, 5.0)
    else:
        assert found.sentence == f"{refused} of {n} calls were refused by either: too few to agree on."


@pytest.mark.parametrize(
    ("differ", "quantity", "points"),
    [
        ((20, NO, YES), REFUSED, 20), ((20, YES, NO), REFUSED, -20),
        ((20, LATE, YES), EXPIRED, 20), ((20, YES, LATE), EXPIRED, -20), ((20, YES, "cancelled"), EXPIRED, -20),
    ],
)  # fmt: skip
def test_what_becomes_of_a_tenants_calls_must_be_what_the_shadow_says(tmp_path, differ, quantity, points):
    """Whichever of both refuses more; the calls that differ are shown, and nobody else's."""
    found = judged(tmp_path, pairs(100, (1, NO, YES)), list(reversed(pairs(100, differ))))
    assert (found.word, found.measured) == (Word.FAIL, pytest.approx(points))
    assert found.sentence.startswith(f"The shadow is not what it says: B: {points:+.2f} points {quantity}, ")
    assert found.witnesses == tuple(f"1.{seq}" for seq in range(80, 100))
    assert of(found, "A").word is not Word.FAIL
    assert of(found, "B", REFUSED if quantity == EXPIRED else EXPIRED).word is Word.PASS


@pytest.mark.parametrize("differ", [(20, NO, YES), (20, YES, NO)])
def test_an_interval_that_reaches_the_margin_decides_nothing(tmp_path, differ):
    calls = pairs(200, differ)
    row = of(judged(tmp_path, calls), "A")
    near, far = sorted((abs(row.low), abs(row.high)))
    for margin, word in (
        (near - 0.01, "FAIL"), (near, "INCONCLUSIVE"), (far, "INCONCLUSIVE"), (far + 0.01, "PASS")
    ):  # fmt: skip
        found = judged(tmp_path, calls, params={"margin_pp": margin})
        assert found.word == of(found, "A").word == word
    doubt = judged(tmp_path, calls, params={"margin_pp": abs(row.measured)})
    assert (doubt.word, doubt.add) == (Word.INCONCLUSIVE, "more calls of this tenant")
    assert doubt.sentence.startswith("A: ")


def test_who_hangs_up_while_waiting_has_run_out_of_patience(tmp_path):
    found = judged(tmp_path, pairs(200, (100, LATE, "cancelled")))
    assert (found.word, of(found, "A", EXPIRED).measured) == (Word.PASS, 0)


@pytest.mark.parametrize(
    "strays",
    [
        [{"call": "0.99", "outcome": "started"}, {"call": "0.98", "outcome": "queued", "part": "shadow"}],
        [{"call": 7, "outcome": YES}, {"call": 7, "outcome": NO, "part": "shadow"}],
        [{"call": "0.900", "outcome": NO, "part": "shadow"}],
        [{"call": "0.901", "outcome": NO}],
        [{"call": "0.0", "outcome": NO, "part": "dependency"}],
    ],
)
def test_what_is_no_end_of_a_call_on_both_sides_is_passed_over(tmp_path, strays):
    """Interim rows, rows without a call, calls of which one side alone tells, and what other parts have decided."""
    calls = list(reversed(pairs(100)))  # the last ones are refused
    found = judged(tmp_path, calls, strays=strays)
    assert (found.word, found.samples, found.measured) == (Word.PASS, 100, 0)


def test_the_finding_that_decides_is_told(tmp_path):
    """A failure before a doubt that is larger, a doubt before what passes, and of one word the largest, either way."""
    doubt, passes = pairs(105, (60, NO, YES), (45, YES, NO), refused=0), pairs(1000, (20, NO, YES))
    fails = pairs(1000, (120, NO, YES))
    found = judged(tmp_path, doubt, fails)
    assert (found.word, found.measured) == (Word.FAIL, pytest.approx(12))
    even = pairs(105, (50, NO, YES), (50, YES, NO), refused=0)
    found = judged(tmp_path, passes, even)
    assert (found.word, found.measured) == (Word.INCONCLUSIVE, 0)
    found = judged(tmp_path, pairs(100, (20, NO, YES)), pairs(100, (30, YES, NO)))
    assert (found.word, found.measured) == (Word.FAIL, pytest.approx(-30))
    found = judged(tmp_path, pairs(1000), pairs(1000, (5, NO, YES)))
    assert (found.word, found.measured) == (Word.PASS, pytest.approx(0.5))


@pytest.mark.parametrize("profile", [{}, {"service": service(FIFO, shadow=FAIR)}])
def test_another_policy_in_shadow_than_the_one_that_decides_needs_another_trial(tmp_path, profile):
    found = judged(tmp_path, pairs(100), profile=profile)
    assert (found.word, found.samples) == (Word.INCONCLUSIVE, 0)
    assert "Another policy decides" in found.sentence


def test_calls_that_are_a_replan_in_either_trial_are_not_compared(tmp_path):
    """Sixty are original in both, and agree."""

    def calls(replans):
        rows = steady(100, 0, 50)
        for seq, row in enumerate(rows):
            row.update({"round": 1, "parent": "0.0"} if seq in replans else {})
        return {"A": rows}

    here = written(tmp_path / "here", calls(range(60, 80)), {"service": service(FIFO, shadow=FAIR)})
    there = written(tmp_path / "there", calls(range(80, 100)), {"service": service(FAIR)})
    shadow = [(NO, YES)] * 60 + [(YES, YES)] * 40
    fact = [(YES, NO)] * 100
    write_rows(here.folder, log(0, shadow), DECISIONS)
    write_rows(there.folder, log(0, fact)[:100], DECISIONS)
    found = judge_one(here, NAME, {"other": "there", "least_calls": 20})
    assert (found.word, found.samples, found.measured) == (Word.PASS, 60, 0)
    bare = written(tmp_path / "bare", calls(()))
    found = judge_one(here, NAME, {"other": str(bare.folder)})
    assert (found.word, found.sentence) == (
        Word.INCONCLUSIVE, "In bare another policy decides than the one in shadow here."
    )  # fmt: skip


def test_the_width_of_a_paired_change_is_that_of_the_calls_that_differ():
    found = paired(30, 10, 400, 2.0)
    assert (found.low, found.high) == (
        pytest.approx(0.05 - 2 * math.sqrt(40) / 400),
        pytest.approx(0.05 + 2 * math.sqrt(40) / 400),
    )
