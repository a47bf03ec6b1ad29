"""The checks of callers on ledgers that were doctored, thinned out, or hold nothing for them to judge."""

from __future__ import annotations

import pytest

from harness import checks
from harness.checks.judge import judge_one
from harness.checks.rounds_capped import depths
from harness.checks.verdict import Word
from harness.ledger.audit import audit
from harness.ledger.reader import read_trial
from harness.matrix import profile_of_check, trial_in_virtual_time
from harness.profile.loader import load
from harness.profile.model import Profile
from tests.unit.ledgers import edited, rows_of, simulated

CHECKS = (
    "agent.budget_per_tenant", "agent.rounds_capped", "agent.retry_budget", "agent.adaptive_throttle",
    "agent.refusal_is_a_result",
)  # fmt: skip


def document(check):
    return load(profile_of_check(check), checks=checks.PARAMETERS).document


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A sound trial a check, written once."""
    made = {}
    for check in CHECKS:
        made[check] = tmp_path_factory.mktemp(check.replace(".", "_"))
        trial_in_virtual_time(made[check], document(check))
    return made


@pytest.fixture
def trial_of(folders, tmp_path):
    """The trial of a check, to be spoiled."""

    def copy(check):
        folder = tmp_path / check
        folder.mkdir()
        for file in folders[check].iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        return read_trial(folder)

    return copy


def rules_of(trial):
    return {item.rule for item in audit(trial, Profile.model_validate(trial.manifest["profile"])).contradictions}


@pytest.mark.parametrize("check", CHECKS)
def test_a_trial_without_such_callers_is_no_evidence(tmp_path, check):
    bare = {"tenants.D.replans": None, "duration": "4s", "phases": {}, "tenants.D.rate": "8/s"}
    verdict = judge_one(simulated(tmp_path / "t", bare), check, {})
    assert verdict.word is Word.INCONCLUSIVE
    assert verdict.add


@pytest.mark.parametrize("check", CHECKS)
def test_a_trial_in_which_nothing_was_refused_is_no_evidence(tmp_path, check):
    calm = {**document(check)}
    calm["service"] = {**calm["service"], "workers": 2000}
    verdict = judge_one(trial_in_virtual_time(tmp_path, calm), check, {})
    assert verdict.word is Word.INCONCLUSIVE, verdict
    assert verdict.add


def test_figures_do_not_depend_on_the_time_scale(tmp_path):
    """Where no Retry-After, which is in whole seconds, has a say."""
    for check in ("agent.budget_per_tenant", "agent.rounds_capped", "agent.adaptive_throttle"):
        made = []
        for scale in (1.0, 0.25):
            folder = tmp_path / f"{check}-{scale}"
            folder.mkdir()
            verdict = judge_one(trial_in_virtual_time(folder, document(check), time_scale=scale), check, {})
            assert verdict.word is Word.PASS, verdict
            made.append([(f.quantity, f.samples) for f in verdict.findings])
        assert made[0] == made[1]


def test_a_service_that_accepts_nothing_never_was_well(trial_of):
    """A target that knows no such tenant answers 401 to all of it: its client does right to hold back."""

    def unknown(rows):
        for row in rows:
            if row["tenant"] == "client" and row.get("sent_ns", -1) >= 0:
                row.update(outcome="failed", reason="status_401", status=401)

    verdict = judge_one(edited(trial_of("agent.adaptive_throttle"), unknown), "agent.adaptive_throttle", {})
    assert "rejected after the overload" not in {f.quantity for f in verdict.findings if f.word is Word.FAIL}
    assert "calls after the overload" in {f.quantity for f in verdict.findings if f.word is Word.INCONCLUSIVE}


# --- what a single row can change


def test_one_call_beyond_the_last_round_fails(trial_of):
    def deepen(rows):
        last = next(row for row in rows if row["tenant"] == "at_once" and row["round"] == 2)
        others = [row for row in rows if row["tenant"] == "at_once" and row["round"] == 1]
        next(row for row in others if row["run"] != last["run"])["parent"] = last["call"]

    verdict = judge_one(edited(trial_of("agent.rounds_capped"), deepen), "agent.rounds_capped", {})
    assert verdict.word is Word.FAIL
    assert verdict.measured >= 3


def test_without_provenance_rounds_cannot_be_judged(trial_of):
    trial = edited(trial_of("agent.rounds_capped"), lambda rows: [row.pop("parent", None) for row in rows] and None)
    verdict = judge_one(trial, "agent.rounds_capped", {})
    assert verdict.word is Word.INCONCLUSIVE
    assert "parent" in verdict.add


def test_depths_follow_parents_and_not_what_a_call_says_of_itself(trial_of):
    trial = trial_of("agent.rounds_capped")
    assert depths(trial).tolist() == trial.calls.round.tolist()
    lying = edited(trial, lambda rows: [row.update(round=min(1, row["round"])) for row in rows] and None)
    assert depths(lying).max() == 2


def test_one_retry_before_its_instant_fails(trial_of):
    def hurry(rows):
        again = next(row for row in rows if row["attempt"] == 2)
        again["again_ns"] -= 100_000_000

    verdict = judge_one(edited(trial_of("agent.retry_budget"), hurry), "agent.retry_budget", {})
    assert verdict.word is Word.FAIL
    assert "before the instant" in verdict.sentence


def test_a_call_that_was_held_back_for_nothing_fails(trial_of):
    def hold(rows):
        row = next(row for row in rows if row["tenant"] == "agents" and row["outcome"] == "served")
        row.update(outcome="held_back", reason="tenant_budget", attempt=0)
        del row["sent_ns"]

    verdict = judge_one(edited(trial_of("agent.budget_per_tenant"), hold), "agent.budget_per_tenant", {})
    assert verdict.word is Word.FAIL
    assert verdict.witnesses


# --- attempts in the audit


def is_last(row):
    return row["attempt"] == 2 and "retried" not in row


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda rows: rows.remove(next(row for row in rows if row.get("retried"))), "attempts in a row"),
        (lambda rows: next(row for row in rows if row.get("retried")).pop("retried"), "one row a call"),
        (lambda rows: next(row for row in rows if is_last(row)).update(retried=True), "one end a call"),
        (lambda rows: next(row for row in rows if row["attempt"] == 2).update(again_ns=5), "attempts in order"),
        (lambda rows: next(row for row in rows if row["attempt"] == 2).update(due_ns=5), "attempts of one call"),
        (lambda rows: next(row for row in rows if row["attempt"] == 2).update(attempt=7), "attempts in a row"),
    ],
)  # fmt: skip
def test_attempts_that_cannot_be(trial_of, change, rule):
    def apply(rows):
        change(rows)
        return rows

    assert rule in rules_of(edited(trial_of("agent.retry_budget"), apply))


def test_calls_are_counted_not_attempts(trial_of):
    trial = trial_of("agent.retry_budget")
    rows = rows_of(trial.folder)
    assert len(trial.calls) == len({row["call"] for row in rows}) < len(rows) == len(trial.attempts)
    assert int(trial.retried.sum()) == sum("retried" in row for row in rows)
    assert rules_of(trial) == set()


def test_a_caller_defect_is_no_contradiction_and_is_noted(tmp_path):
    trial = trial_in_virtual_time(tmp_path, document("agent.rounds_capped"), "sequence_is_one_round")
    found = audit(trial, Profile.model_validate(trial.manifest["profile"]))
    assert found.contradictions == ()
    assert any("sequence_is_one_round" in note for note in found.notes)
    del trial.manifest["target"]["caller_defect"]
    assert "re-plans as the profile says" in rules_of(trial)
