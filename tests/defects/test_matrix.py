"""The kill matrix: each check fails on its own defects, passes the healthy service and every twin, and decides nothing
without evidence. A check that no defect can fail is no check."""

from __future__ import annotations

from fractions import Fraction

import pytest

from harness.checks import CHECKS
from harness.checks.judge import judge_one
from harness.checks.verdict import Word
from harness.matrix import judge_in_virtual_time, trial_in_virtual_time
from harness.workload.budgets import TokenBucket
from harness.workload.callers import BudgetRule
from stub_service.defects.registry import DEFECTS, SHARED
from tests.conftest import with_values
from tests.defects.profiles import BUDGET, FAIRNESS, REFUSALS, UNEVEN, WORKED, at_phase
from tests.unit.ledgers import without_decisions

UNMOVED, STRUCTURED = "fairness.ordinary_unmoved", "fairness.refusals_structured"
REPLANS, AT_SOURCE = "agent.replan_share", "agent.budget_at_source"
TRIAL = ["trial.conserved", "trial.on_time"]
PROFILE_OF = {UNMOVED: FAIRNESS, STRUCTURED: REFUSALS}
OF_SERVICE = {
    name: defect
    for name, defect in DEFECTS.items()
    if defect.part == SHARED and {*defect.caught_by, *defect.twin_of} & {*PROFILE_OF}
}
"""The others of the shared service: test_matrix_fairness.py."""

BROKEN = [(name, check) for name, defect in OF_SERVICE.items() if not defect.healthy for check in defect.caught_by]
TWINS = [name for name, defect in OF_SERVICE.items() if defect.healthy]
PHASES = (0, 1, 2)


def words(cell):
    return {verdict.check: verdict.word.value for verdict in cell.verdicts}


@pytest.mark.parametrize("number", PHASES)
@pytest.mark.parametrize(("defect", "check"), BROKEN)
def test_a_defect_is_caught_by_its_check_and_the_trial_is_sound(defect, check, number):
    cell = judge_in_virtual_time(at_phase(PROFILE_OF[check], number), defect, [check, *TRIAL])
    assert words(cell) == {check: "FAIL", **dict.fromkeys(TRIAL, "PASS")}
    assert cell.of(check).witnesses


@pytest.mark.parametrize("number", PHASES)
@pytest.mark.parametrize("twin", [None, *TWINS])
def test_the_healthy_service_and_its_twins_pass(twin, number):
    cell = judge_in_virtual_time(at_phase(FAIRNESS, number), twin, [UNMOVED, STRUCTURED, REPLANS, *TRIAL])
    assert set(words(cell).values()) == {"PASS"}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_noisy_but_fair_service_passes(seed):
    cell = judge_in_virtual_time({**UNEVEN, "seed": seed}, None, [UNMOVED, STRUCTURED, *TRIAL])
    assert set(words(cell).values()) == {"PASS"}


def test_every_defect_of_the_registry_is_in_the_matrix():
    assert {check for _, check in BROKEN} == set(PROFILE_OF)
    assert all(defect.healthy != bool(defect.caught_by) for defect in DEFECTS.values())
    assert all(defect.healthy == bool(defect.twin_of) for defect in DEFECTS.values())
    assert all(check in CHECKS for _, check in BROKEN)


@pytest.mark.parametrize("number", range(20))
@pytest.mark.parametrize("row", ["shared_fifo", "fair_queues"])
def test_the_worked_example_at_any_phase(row, number):
    document, expected = WORKED[row]
    assert words(judge_in_virtual_time(at_phase(document, number), None, [UNMOVED, *TRIAL])) == {
        UNMOVED: expected,
        **dict.fromkeys(TRIAL, "PASS"),
    }


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("row", ["no_replans", "tenant_cap", "budget", "workers_doubled"])
def test_the_other_rows_of_the_worked_example(row, number):
    document, expected = WORKED[row]
    assert words(judge_in_virtual_time(at_phase(document, number), None, [UNMOVED]))[UNMOVED] == expected


def test_verdicts_and_figures_do_not_depend_on_the_time_scale():
    for row in ("shared_fifo", "fair_queues"):
        made = [
            judge_in_virtual_time(WORKED[row][0], None, [UNMOVED], time_scale=scale).of(UNMOVED)
            for scale in (1.0, 0.25)
        ]
        assert made[0].word == made[1].word
        shares = [[f.measured for f in verdict.findings if f.unit == "pp"] for verdict in made]
        assert shares[0] == shares[1]
        waits = [[f.measured for f in verdict.findings if f.unit == "ms"] for verdict in made]
        assert [wait / 4 for wait in waits[0]] == pytest.approx(waits[1], rel=1e-3, abs=0.01)


# --- evidence withheld


def test_without_evidence_nothing_is_decided(tmp_path):
    bare = with_values(WORKED["fair_queues"][0], {"phases": {}, "duration": "10s", "tenants.D.rate": "8/s"})
    cell = judge_in_virtual_time(bare, None, [UNMOVED, STRUCTURED, AT_SOURCE])
    assert set(words(cell).values()) == {"INCONCLUSIVE"}
    assert all(verdict.add for verdict in cell.verdicts)


def test_a_short_trial_is_inconclusive_and_says_how_much_is_missing():
    values = {"duration": "10s", "phases": {"calm": ["0s", "5s"], "burst": ["5s", "10s"]}, "tenants.D.rate": "8/s"}
    verdict = judge_in_virtual_time(with_values(WORKED["fair_queues"][0], values), None, [UNMOVED]).of(UNMOVED)
    assert verdict.word is Word.INCONCLUSIVE
    assert "not judged, too few calls: A, B, C" in verdict.sentence


@pytest.mark.parametrize("defect", ["refusal_as_503", "refusal_untyped", "retry_after_garbage"])
def test_the_callers_side_alone_is_enough_to_see_a_bad_refusal(tmp_path, defect):
    trial = without_decisions(trial_in_virtual_time(tmp_path, REFUSALS, defect))
    assert judge_one(trial, STRUCTURED, {}).word is Word.FAIL


# --- the caller's budget, and callers that do not keep it


def of_agent(simulation):
    return next(caller for caller in simulation._callers if caller.tenant == "D")


def not_asked_for_replans(simulation):
    caller = of_agent(simulation)
    take = type(caller).take_replan

    class Forgetful(type(caller)):
        __slots__ = ()

        def take_replan(self):
            budget, self._budget = self._budget, None
            call = take(self)
            self._budget = budget
            return call

    caller.__class__ = Forgetful


def per_run_instead_of_per_tenant(simulation):
    caller = of_agent(simulation)
    caller._bucket = None
    caller._budget = BudgetRule(Fraction(10), 10, "run")


def rate_off_by_a_tenth(simulation):
    of_agent(simulation)._bucket = TokenBucket(Fraction(11), 10)


def no_budget_at_all(simulation):
    caller = of_agent(simulation)
    caller._budget = caller._bucket = None


WRONG = [not_asked_for_replans, per_run_instead_of_per_tenant, rate_off_by_a_tenth, no_budget_at_all]


@pytest.mark.parametrize("number", PHASES)
@pytest.mark.parametrize("doctor", WRONG)
def test_a_caller_that_does_not_keep_its_budget_is_caught(doctor, number):
    cell = judge_in_virtual_time(at_phase(BUDGET, number), None, [AT_SOURCE], doctor=doctor)
    assert words(cell)[AT_SOURCE] == "FAIL"
    assert cell.of(AT_SOURCE).findings[0].word is Word.FAIL  # held back: not what the bucket says
    assert cell.of(AT_SOURCE).witnesses


@pytest.mark.parametrize("number", PHASES)
def test_a_caller_that_keeps_its_budget_passes_and_the_counts_are_exact(number):
    cell = judge_in_virtual_time(at_phase(WORKED["budget"][0], number), None, [AT_SOURCE, UNMOVED, *TRIAL])
    assert set(words(cell).values()) == {"PASS"}
    if number == 0:
        assert cell.of(AT_SOURCE).measured == cell.of(AT_SOURCE).bound == 1191


def test_a_budget_that_is_kept_and_larger_than_the_service_bears_fails_by_its_replans_only():
    findings = judge_in_virtual_time(BUDGET, None, [AT_SOURCE]).of(AT_SOURCE).findings
    assert [finding.word.value for finding in findings] == ["PASS", "PASS", "FAIL"]


def test_a_budget_per_run_is_held_to_its_own_bucket():
    document = with_values(WORKED["shared_fifo"][0], {"tenants.D.budget": {"rate": "1/m", "burst": 1, "scope": "run"}})
    findings = judge_in_virtual_time(document, None, [AT_SOURCE]).of(AT_SOURCE).findings
    assert [finding.word.value for finding in findings] == ["PASS", "PASS"]
    assert findings[0].measured > 0


def test_a_budget_that_never_binds_proves_nothing():
    document = with_values(WORKED["fair_queues"][0], {"tenants.D.budget": {"rate": "1000/s", "burst": 10}})
    document = with_values(document, {"tenants.D.rate": "8/s", "duration": "10s", "phases": {}})
    verdict = judge_in_virtual_time(document, None, [AT_SOURCE]).of(AT_SOURCE)
    assert (verdict.word, verdict.add != "") == (Word.INCONCLUSIVE, True)


def test_with_the_budget_off_the_replan_share_rises_and_fair_queues_hold():
    cell = judge_in_virtual_time(WORKED["fair_queues"][0], None, [UNMOVED, REPLANS])
    assert words(cell) == {UNMOVED: "PASS", REPLANS: "PASS"}
    assert cell.of(REPLANS).measured > 0.9
    assert cell.of(REPLANS).sentence.startswith("ALERT")
