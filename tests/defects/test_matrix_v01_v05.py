"""The kill matrix of fan-out to retries, of coalescing and of cancellation.

Each check fails on each of its defects, passes the healthy controller and its twins, and decides nothing without
evidence. A defect that other checks fail, too, says so. What a defect does is real: it is seen in what arrived."""

from __future__ import annotations

from collections import Counter

import pytest

from harness.checks import CHECKS
from harness.checks.judge import judge_one
from harness.checks.verdict import Word
from harness.ledger.evidence import evidence_of
from harness.ledger.reader import ARRIVALS, DECISIONS, read_trial
from harness.matrix import Job, judge_job, profile_of_check, profile_of_defect, trial_in_virtual_time
from harness.profile.loader import load
from stub_service.defects.registry import DEFECTS
from tests.defects.cells import told

DEFECTS_OF = {
    "v01.fan_out_ceiling": (
        "check_then_act_budget",
        "count_on_success_only",
        "replans_not_counted",
        "retries_not_counted",
        "tool_calls_not_counted",
        "fresh_budget_for_subagent",
        "excess_silently_dropped",
    ),
    "v02.foreground_first": (
        "no_reserve",
        "reserve_never_taken_back",
        "floor_lent",
        "priority_without_reserve",
        "ceiling_exceeded_for_reserve",
    ),
    "v03.tenant_share": (
        "one_queue_for_class",
        "tenant_cap_without_queue",
        "tenant_from_header",
        "no_tenant_is_new_tenant",
        "limit_per_replica",
    ),
    "v04.bulkheads": (
        "one_global_semaphore",
        "slot_of_timeout_kept",
        "reads_and_writes_in_one_pool",
        "holds_slot_while_waiting",
    ),
    "v05.one_retry_owner": (
        "double_retry",
        "three_layer_retry",
        "retry_tokens_never_spent",
        "retry_token_spent_late",
        "retry_tokens_per_step",
        "client_error_retried",
        "keyless_write_retried",
        "retry_into_open_circuit",
        "no_jitter",
        "retry_bypasses_throttle",
        "retries_not_counted",
    ),
    "capacity.coalesced": ("mutation_coalesced", "coalesced_across_tenants", "never_coalesced"),
    "capacity.cancelled": (
        "fan_out_after_cancel",
        "queue_not_emptied_by_cancel",
        "retried_after_cancel",
        "late_result_used_unchecked",
    ),
}
"""What each check is there for. A defect that is taken out of the registry is missed here."""

BROKEN = list(dict.fromkeys(name for names in DEFECTS_OF.values() for name in names))
TWINS = [name for name, defect in DEFECTS.items() if set(defect.twin_of) & set(DEFECTS_OF)]
SEEDS = (0, 1)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", BROKEN)
def test_a_defect_is_caught_by_its_check_and_trips_no_other_unsaid(name, seed):
    row = judge_job(Job(profile_of_defect(DEFECTS[name]), name, seed))
    assert told(row) == ((), [])
    assert row.own.word is Word.FAIL


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", TWINS)
def test_a_healthy_twin_passes(name, seed):
    row = judge_job(Job(profile_of_defect(DEFECTS[name]), name, seed))
    assert told(row) == ((), [])
    assert {*DEFECTS[name].twin_of} <= {*row.passed}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("path", sorted({profile_of_check(check) for check in DEFECTS_OF}), ids=lambda path: path.stem)
def test_the_healthy_controller_passes(path, seed):
    assert told(judge_job(Job(path, None, seed))) == ((), [])


@pytest.mark.parametrize("name", ["double_retry", "retry_tokens_never_spent"])
def test_a_profile_of_a_defects_own_is_no_trap_for_the_healthy_controller(name):
    row = judge_job(Job(profile_of_defect(DEFECTS[name]), None, 0))
    assert [verdict for verdict in row.alarms if verdict.word is not Word.INCONCLUSIVE] == []


def test_every_check_has_its_defects_and_a_twin():
    for check, names in DEFECTS_OF.items():
        assert [name for name in names if check not in DEFECTS[name].caught_by] == []
        assert [name for name in TWINS if check in DEFECTS[name].twin_of]
    registered = {name for name, defect in DEFECTS.items() if set(defect.caught_by) & set(DEFECTS_OF)}
    assert registered == set(BROKEN)
    assert all(check in CHECKS for name in BROKEN for check in (*DEFECTS[name].caught_by, *DEFECTS[name].also))


# --- what a verdict says


@pytest.mark.parametrize(
    ("defect", "sentence"),
    [
        (
            "three_layer_retry",
            "Step r49/b0.0: 27 attempts by 3 layers (controller, http_client, sdk) where at most 3 are allowed "
            "(1 + 2 retry tokens)",
        ),
        (
            "double_retry",
            "Step r1/b0.0: 4 attempts by 2 layers (controller, client) where at most 2 are allowed "
            "(1 + 1 retry tokens)",
        ),
        (
            "check_then_act_budget",
            "Run r17: 12 calls reached the dependencies where its envelope holds 8 (8 such runs)",
        ),
        (
            "slot_of_timeout_kept",
            "Billing reads: 0% of 45 calls served after the slowness had ended, under 95%: the slots of calls that "
            "timed out did not come back",
        ),
        ("ceiling_exceeded_for_reserve", "Customer reads: 15 calls in flight at once where the limit is 12"),
        ("mutation_coalesced", "84 writes were coalesced with another"),
        ("coalesced_across_tenants", "48 steps were given the result of a call that was not theirs (north for south)"),
    ],
)
def test_what_an_engineer_is_told(defect, sentence):
    own = judge_job(Job(profile_of_defect(DEFECTS[defect]), defect, 0)).own
    assert own.sentence.startswith(sentence)
    assert own.witnesses


# --- what a defect does is real


def evidence(folder, defect, path=None):
    document = load(path or profile_of_defect(DEFECTS[defect])).document
    return evidence_of(trial_in_virtual_time(folder, document, defect))


def test_three_layers_that_try_three_times_make_27_calls_of_a_step(tmp_path):
    arrivals = evidence(tmp_path, "three_layer_retry").arrivals
    layers = Counter(row["layer"] for row in arrivals if (row["run"], row["step"]) == ("r49", "b0.0"))
    assert layers == {"controller": 3, "sdk": 6, "http_client": 18}


def test_two_layers_that_try_twice_make_4_calls_of_a_step(tmp_path):
    arrivals = evidence(tmp_path, "double_retry").arrivals
    layers = Counter(row["layer"] for row in arrivals if (row["run"], row["step"]) == ("r1", "b0.0"))
    assert layers == {"controller": 2, "client": 2}


def test_a_coalesced_mutation_was_never_committed(tmp_path):
    found = evidence(tmp_path, "mutation_coalesced")
    told_done = [row for row in found.decisions if row["kind"] == "step" and row.get("operation") == "write"]
    done = {(row["run"], row["step"]) for row in told_done if row["outcome"] in ("served", "coalesced")}
    assert (len(done), len(found.effects)) == (96, 12)


# --- evidence withheld


@pytest.fixture
def without(tmp_path):
    def make(check, file):
        trial_in_virtual_time(tmp_path, load(profile_of_check(check)).document)
        (tmp_path / file).unlink()
        return read_trial(tmp_path)

    return make


@pytest.mark.parametrize("file", [ARRIVALS, DECISIONS])
@pytest.mark.parametrize("check", DEFECTS_OF)
def test_without_its_evidence_a_check_decides_nothing(without, check, file):
    trial = without(check, file)
    asked = trial.manifest["profile"]["checks"]
    params = next((entry[check] for entry in asked if isinstance(entry, dict) and check in entry), {})
    verdict = judge_one(trial, check, params)
    assert verdict.word is Word.INCONCLUSIVE, verdict.sentence
    assert verdict.add
