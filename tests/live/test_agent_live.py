"""Callers over real HTTP: each check of the family passes an agent runtime that keeps its rules, and fails a defect."""

from __future__ import annotations

import pytest

from harness.checks.verdict import Word
from harness.matrix import profile_of_check
from tests.live.driving import by_check, judge_all, loaded, must_fail, skip_if_late

pytestmark = pytest.mark.live

FAILS = {
    "agent.budget_per_tenant": "budget_per_run_only",
    "agent.rounds_capped": "sequence_is_one_round",
    "agent.retry_budget": "backoff_alone",
    "agent.adaptive_throttle": "no_probe_let_through",
    "agent.refusal_is_a_result": "refusal_as_error",
}


@pytest.fixture(scope="module")
def driven(tmp_path_factory):
    """All trials, two side by side: they count calls and hold instants against seconds."""
    trials = [*FAILS.items(), *((check, None) for check in FAILS)]
    jobs = {(check, defect): (loaded(profile_of_check(check)), defect) for check, defect in trials}
    return judge_all(jobs, tmp_path_factory.mktemp("agents_live"))


@pytest.mark.parametrize("check", FAILS)
def test_an_agent_that_keeps_its_rules_passes(driven, check):
    """On a machine so busy that the harness was late, too, as a rule: little here hangs on milliseconds."""
    verdicts = driven[check, None].verdicts
    wrong = [verdict for verdict in verdicts if verdict.word is not Word.PASS and verdict.check != "trial.on_time"]
    if wrong:
        skip_if_late(verdicts)
    assert [verdict.sentence for verdict in wrong] == []


@pytest.mark.parametrize(("check", "defect"), FAILS.items())
def test_its_defect_fails_it(driven, check, defect):
    judged = driven[check, defect]
    verdicts = by_check(judged)
    assert must_fail(verdicts, check).witnesses
    assert verdicts["trial.conserved"].word is Word.PASS, verdicts["trial.conserved"].sentence
    assert judged.trial.manifest["target"]["caller_defect"] == defect


def test_a_budget_that_is_not_kept_at_its_source_is_seen(driven):
    verdicts = by_check(driven["agent.budget_per_tenant", "budget_per_run_only"])
    assert must_fail(verdicts, "agent.budget_at_source").witnesses


def test_every_attempt_is_seen_by_the_service_under_an_id_of_its_own(driven):
    made = driven["agent.retry_budget", None].trial
    assert len(made.attempts) > len(made.calls)
    assert made.retried.sum() == len(made.attempts) - len(made.calls)
    seen = {row["attempt_id"] for row in made.decisions()}
    attempts = made.attempts
    sent = [f"{attempts.id(place)}.{number}" for place, number in enumerate(attempts.attempt.tolist()) if number > 1]
    assert sent
    assert seen.issuperset(sent)


def test_a_tool_is_a_path_of_its_own_and_stands_in_the_ledger(driven):
    made = driven["agent.rounds_capped", None].trial
    assert set(made.calls.tool.table) == {"search", "fetch", "browse"}
