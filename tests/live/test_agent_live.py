"""Callers over real HTTP: each check of the family passes an agent runtime that keeps its rules, and fails a defect."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import checks, trial
from harness.checks.verdict import Word
from harness.matrix import profile_of_check
from harness.profile.loader import load

pytestmark = pytest.mark.live

FAILS = {
    "agent.budget_per_tenant": "budget_per_run_only",
    "agent.rounds_capped": "sequence_is_one_round",
    "agent.retry_budget": "backoff_alone",
    "agent.adaptive_throttle": "no_probe_let_through",
    "agent.refusal_is_a_result": "refusal_as_error",
}


def drive(folder, check, defect):
    """One trial; again if the harness itself was late, for then it says nothing of the callers."""
    for number in (1, 2):
        place = folder / f"{check}-{defect or 'healthy'}-{number}"
        place.mkdir()
        judged = trial.run(load(profile_of_check(check), checks=checks.PARAMETERS), place, trial.STUB, defect)
        verdicts = {verdict.check: verdict for verdict in judged.verdicts}
        if verdicts["trial.on_time"].word is not Word.INVALID:
            break
    return verdicts, judged.trial


@pytest.fixture(scope="module")
def driven(tmp_path_factory):
    """All trials, two side by side: they count calls and hold instants against seconds."""
    folder = tmp_path_factory.mktemp("agents_live")
    trials = [*FAILS.items(), *((check, None) for check in FAILS)]
    with ThreadPoolExecutor(2) as pool:
        made = {key: pool.submit(drive, folder, *key) for key in trials}
        return {key: future.result() for key, future in made.items()}


@pytest.mark.parametrize("check", FAILS)
def test_an_agent_that_keeps_its_rules_passes(driven, check):
    """On a machine so busy that the harness was late twice, too: nothing here hangs on milliseconds."""
    verdicts, _ = driven[check, None]
    wrong = {name: verdict for name, verdict in verdicts.items() if verdict.word is not Word.PASS}
    assert set(wrong) <= {"trial.on_time"}, [verdict.sentence for verdict in wrong.values()]


@pytest.mark.parametrize(("check", "defect"), FAILS.items())
def test_its_defect_fails_it(driven, check, defect):
    verdicts, made = driven[check, defect]
    said = [verdict.sentence for verdict in verdicts.values() if verdict.word is not Word.PASS]
    assert verdicts[check].word is Word.FAIL, said
    assert verdicts[check].witnesses
    assert verdicts["trial.conserved"].word is Word.PASS, said
    assert made.manifest["target"]["caller_defect"] == defect


def test_every_attempt_is_seen_by_the_service_under_an_id_of_its_own(driven):
    _, made = driven["agent.retry_budget", None]
    assert len(made.attempts) > len(made.calls)
    assert made.retried.sum() == len(made.attempts) - len(made.calls)
    seen = {row["attempt_id"] for row in made.decisions()}
    attempts = made.attempts
    sent = [f"{attempts.id(place)}.{number}" for place, number in enumerate(attempts.attempt.tolist()) if number > 1]
    assert sent
    assert seen.issuperset(sent)


def test_a_tool_is_a_path_of_its_own_and_stands_in_the_ledger(driven):
    _, made = driven["agent.rounds_capped", None]
    assert set(made.calls.tool.table) == {"search", "fetch", "browse"}
