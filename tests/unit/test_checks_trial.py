"""The checks of the trial itself, of refusals, budgets and re-plans, and the judging of all of them."""

from __future__ import annotations

import pytest

from harness import checks
from harness.checks.judge import UnknownCheck, judge_all, judge_one
from harness.checks.registry import CHECKS, Check
from harness.checks.verdict import Verdict, Word, exit_code, worst
from harness.ledger.reader import LedgerError
from harness.profile.base import Part
from harness.profile.loader import from_document
from tests.conftest import FAIR, WORKED_EXAMPLE, with_values
from tests.unit.ledgers import edited, manifest_edited, simulated, steady, without_decisions, written

ON_TIME, CONSERVED = "trial.on_time", "trial.conserved"
REFUSALS, REPLANS, BUDGET = "fairness.refusals_structured", "agent.replan_share", "agent.budget_at_source"


def late(rows, from_i, by_ns):
    for row in rows[from_i:]:
        row["sent_ns"] = row["due_ns"] + by_ns
        row["done_ns"] += by_ns
    return rows


# --- on time


def test_on_time_passes_with_its_bound(tmp_path):
    verdict = judge_one(written(tmp_path / "t", {"A": late(steady(1000, 0, 80), 0, 3_000_000)}), ON_TIME, {})
    assert (verdict.word, verdict.measured, verdict.bound) == (Word.PASS, 3.0, 20.0)
    assert verdict.sentence == "The harness kept its schedule: p99 lateness (trial) 3 ms, at most 20."


@pytest.mark.parametrize("by_ms", [-25, 25])
def test_two_calls_in_a_hundred_late_by_more_than_a_tenth_of_the_service_time_are_invalid(tmp_path, by_ms):
    trial = written(tmp_path / "t", {"A": late(steady(1000, 0, 80), 980, by_ms * 1_000_000)})
    verdict = judge_one(trial, ON_TIME, {})
    assert (verdict.word, verdict.measured) == (Word.INVALID, 25.0)
    assert verdict.sentence.startswith("The harness was late: p99 lateness (trial) 25 ms, at most 20")


def test_a_late_phase_is_seen_though_the_trial_is_on_time_over_all(tmp_path):
    rows = late(steady(20_000, 0, 40), 20_000, 0) + late(steady(150, 40, 80), 0, 50_000_000)
    verdict = judge_one(written(tmp_path / "t", {"A": rows}), ON_TIME, {})
    assert (verdict.word, verdict.sentence) == (
        Word.INVALID,
        "The harness was late: p99 lateness (burst) 50 ms, at most 20.",
    )


def among_others(tmp_path, rows):
    profile = {"ordinary": ["A"]}
    return judge_one(written(tmp_path / "t", {"A": rows, "D": steady(8000, 0, 80)}, profile), ON_TIME, {})


def test_ordinary_calls_that_are_late_are_seen_among_a_runaways_many(tmp_path):
    rows = steady(320, 0, 40) + steady(320, 40, 80)
    late(rows[320::20], 0, 3_000_000_000)
    verdict = among_others(tmp_path, rows)
    assert verdict.word is Word.INVALID
    assert "p99 lateness (burst, ordinary tenants) 3e+03 ms, at most 20" in verdict.sentence


def test_ordinary_calls_that_were_not_sent_are_seen_among_a_runaways_many(tmp_path):
    rows = steady(320, 0, 40) + steady(320, 40, 80)
    for row in rows[320:640:80]:
        row.update(outcome="dropped", attempt=0, sent_ns=-1)
    verdict = among_others(tmp_path, rows)
    assert verdict.word is Word.INVALID
    assert "calls not sent (burst, ordinary tenants) 1.25 %, at most 0.1" in verdict.sentence


def test_a_few_calls_that_are_very_late_move_a_mean_and_are_seen_by_it(tmp_path):
    rows = steady(4000, 0, 80)
    late(rows[::110], 0, 30_000_000_000)
    verdict = judge_one(written(tmp_path / "t", {"A": rows}), ON_TIME, {})
    assert (verdict.word, verdict.sentence.partition(" (")[0]) == (
        Word.INVALID,
        "The harness was late: mean lateness",
    )


def test_a_stub_that_lags_is_invalid(tmp_path):
    ended = {"reason": "completed", "at_ns": 1, "calls": 9, "stub_loop_lag": {"samples": 99, "p99_ns": 30_000_000}}
    verdict = judge_one(written(tmp_path / "t", {"A": steady(500, 0, 80)}, ended=ended), ON_TIME, {})
    assert (verdict.word, verdict.sentence) == (
        Word.INVALID,
        "The harness was late: p99 loop lag (stub) 30 ms, at most 20.",
    )


def test_calls_that_could_not_be_sent_are_invalid(tmp_path):
    rows = steady(1000, 0, 80)
    for row in rows[::100]:
        row.update(outcome="dropped", attempt=0, sent_ns=-1)
    verdict = judge_one(written(tmp_path / "t", {"A": rows}), ON_TIME, {})
    assert verdict.word is Word.INVALID
    assert judge_one(written(tmp_path / "t", {"A": rows}), ON_TIME, {"dropped": 0.02}).word is Word.PASS


def test_without_a_service_time_there_is_no_bound_unless_given(tmp_path):
    trial = written(tmp_path / "t", {"A": steady(500, 0, 80, service_ns=-1, queue_wait_ns=-1)})
    assert (judge_one(trial, ON_TIME, {}).word, judge_one(trial, ON_TIME, {}).add != "") == (Word.INCONCLUSIVE, True)
    assert judge_one(trial, ON_TIME, {"at_most": "5ms"}).word is Word.PASS
    assert judge_one(written(tmp_path / "none", {"A": []}), ON_TIME, {}).word is Word.INCONCLUSIVE


def test_bounds_shrink_with_the_trial(tmp_path):
    rows = {"A": late(steady(1000, 0, 20), 0, 6_000_000)}
    assert judge_one(written(tmp_path / "t", rows), ON_TIME, {"at_most": "20ms"}).word is Word.PASS
    scaled = written(tmp_path / "t", rows, time_scale=0.25)
    verdict = judge_one(scaled, ON_TIME, {"at_most": "20ms"})
    assert (verdict.word, verdict.bound) == (Word.INVALID, 5.0)


# --- conserved


def test_conserved_says_what_it_counted(tmp_path):
    trial = simulated(tmp_path / "t", {"duration": "20s", "phases": {}, "tenants.D.rate": "8/s"})
    verdict = judge_one(trial, CONSERVED, {})
    assert (verdict.word, verdict.sentence) == (
        Word.PASS,
        "All 640 calls are accounted for, each with one outcome, and the service's own evidence agrees.",
    )
    verdict = judge_one(without_decisions(trial), CONSERVED, {})
    assert "the service's own evidence is not to be had" in verdict.sentence
    verdict = judge_one(edited(trial, lambda rows: rows[1:]), CONSERVED, {})
    assert (verdict.word, verdict.witnesses, verdict.measured) == (Word.INVALID, ("0.0",), 2)
    assert verdict.sentence == (
        "The record does not add up: 1 call(s) left no row; "
        "not the planned calls: A, no phase: 160 planned, 159 in the ledger."
    )


def test_an_empty_trial_is_not_conserved_but_inconclusive(tmp_path):
    trial = written(tmp_path / "t", {"A": []}, plan={"A": {}})
    assert judge_one(trial, CONSERVED, {}).word is Word.INCONCLUSIVE


# --- refusals


def refused(n, **told):
    row = {"outcome": "throttled", "status": 429, "retry_after": "2", "queue_wait_ns": -1, "service_ns": -1}
    return steady(n, 0, 80, **{**row, "done_ns": 0, **told})


def refusals(tmp_path, *parts, params=None):
    rows = [row for part in parts for row in part]
    for row in rows:
        row["done_ns"] = row["due_ns"] + row.pop("after_ms", 1) * 1_000_000
    return judge_one(written(tmp_path / "t", {"A": rows}), REFUSALS, params or {})


def test_structured_refusals_pass(tmp_path):
    verdict = refusals(
        tmp_path, refused(60), refused(3, retry_after="Sun, 06 Nov 1994 08:49:37 GMT"), steady(50, 0, 80)
    )
    assert (verdict.word, verdict.samples) == (Word.PASS, 63)


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ({"retry_after": "soon"}, "1 of 61 refusals without a readable Retry-After."),
        ({"retry_after": None}, "1 of 61 refusals without a readable Retry-After."),
        ({"untyped": True}, "1 of 61 refusals without a typed body."),
        ({"status": 403}, "1 of 61 refusals refused with another status than 429."),
        ({"status": 503, "outcome": "failed"}, "1 of 61 refusals answered with a 5xx."),
        ({"status": 503}, "1 of 61 refusals answered with a 5xx."),
    ],
)
def test_one_refusal_that_is_not_is_enough_to_fail(tmp_path, told, sentence):
    verdict = refusals(tmp_path, refused(60), refused(1, **told))
    assert verdict.word is Word.FAIL
    assert verdict.sentence == f"Refusals are not what a caller can act on: {sentence}"
    assert len(verdict.witnesses) == 1


def test_slow_refusals_fail_from_one_in_twenty(tmp_path):
    assert refusals(tmp_path, refused(190), refused(1, after_ms=900)).word is Word.PASS
    assert refusals(tmp_path, refused(60), refused(3, after_ms=900)).word is Word.INCONCLUSIVE
    failed = refusals(tmp_path, refused(60), refused(30, after_ms=900))
    assert failed.word is Word.FAIL
    assert failed.sentence.endswith("33.33% of 90 refusals given slowly.")
    assert refusals(tmp_path, refused(60, after_ms=900), params={"within": "1s"}).word is Word.PASS


def test_calls_without_an_answer_fail(tmp_path):
    silent = steady(10, 0, 80, outcome="failed", status=-1, reason="connection_reset")
    verdict = refusals(tmp_path, refused(60), silent)
    assert (verdict.word, len(verdict.witnesses)) == (Word.FAIL, 10)


@pytest.mark.parametrize("n", [0, 1, 51])
def test_too_few_refusals_are_inconclusive(tmp_path, n):
    verdict = refusals(tmp_path, refused(n), steady(50, 0, 80)) if n else refusals(tmp_path, steady(50, 0, 80))
    assert (verdict.word, verdict.add) == (Word.INCONCLUSIVE, "load, until at least 52 calls are refused")


def test_open_calls_are_a_hang_only_if_the_service_says_that_it_refused_them(tmp_path):
    assert refusals(tmp_path, refused(60), steady(1, 0, 1, outcome="open", status=-1)).word is Word.INCONCLUSIVE
    values = {"service.admission": FAIR, "duration": "30s", "phases": {}, "tenants.D.rate": "80/s", "drain": "0s"}
    assert judge_one(simulated(tmp_path / "s", values), REFUSALS, {}).word is Word.PASS
    verdict = judge_one(simulated(tmp_path / "h", values, defect="refusal_hangs"), REFUSALS, {})
    assert verdict.word is Word.FAIL


def test_a_refusal_in_the_name_of_an_expiry_is_a_refusal(tmp_path):
    """A service that turns calls away at once, and says that their two seconds in the queue are over."""
    patient = {"patience": "2s", "patience_until": "start"}
    told = {"outcome": "abandoned", "reason": "patience", "status": 504, "queue_wait_ns": -1, "service_ns": -1}
    for wait_ms, word in ((1, Word.FAIL), (2000, Word.PASS)):
        rows = steady(500, 0, 80, **told)
        for row in rows:
            row["done_ns"] = row["due_ns"] + wait_ms * 1_000_000
        trial = written(tmp_path / str(wait_ms), {"A": refused(60), "B": rows}, patient)
        verdict = judge_one(trial, REFUSALS, {})
        assert verdict.word is word
    assert verdict.sentence.startswith("All 60 refusals")


def test_expired_and_abandoned_calls_were_not_refused(tmp_path):
    rows = steady(60, 0, 80, outcome="abandoned", status=504, reason="patience")
    verdict = refusals(tmp_path, refused(60), rows, steady(9, 0, 9, outcome="expired", status=504))
    assert (verdict.word, verdict.samples) == (Word.PASS, 60)


# --- re-plans


def replanning(tmp_path, params):
    values = {"service.admission": FAIR, "duration": "60s", "phases": {"calm": ["0s", "30s"], "burst": ["30s", "60s"]}}
    values["tenants.D.rate"] = ["8/s", {"from": "30s", "to": "60s", "rate": "40/s"}]
    return judge_one(simulated(tmp_path / "t", values), REPLANS, params)


def test_a_replan_share_alerts_and_does_not_fail_unless_told_to(tmp_path):
    verdict = replanning(tmp_path, {})
    assert verdict.word is Word.PASS
    assert verdict.sentence.startswith("ALERT: 9")
    assert verdict.sentence.endswith("0.0% in calm; over the alert threshold: D.")
    assert verdict.witnesses[0].startswith("3.")
    verdict = replanning(tmp_path, {"fail_over": 0.2})
    assert (verdict.word, verdict.bound) == (Word.FAIL, 0.2)
    assert [f.subject for f in verdict.findings if f.word is Word.FAIL] == ["D", "D"]


def test_a_replan_share_of_a_handful_of_calls_is_no_failure(tmp_path):
    rows = steady(1, 0, 1) + steady(2, 1, 2, round=1, parent="0.0")
    verdict = judge_one(written(tmp_path / "t", {"A": rows, "B": steady(400, 0, 80)}), REPLANS, {"fail_over": 0.3})
    assert (verdict.word, verdict.add) == (Word.INCONCLUSIVE, "at least 50 calls of each tenant")


def test_a_rise_alone_alerts(tmp_path):
    assert replanning(tmp_path, {"alert_over": 1.0}).sentence.startswith("ALERT")
    assert not replanning(tmp_path, {"alert_over": 1.0, "alert_rise": 1.0}).sentence.startswith("ALERT")


def test_no_replans_is_reported_and_no_calls_is_inconclusive(tmp_path):
    verdict = judge_one(written(tmp_path / "t", {"A": steady(100, 0, 80)}), REPLANS, {"fail_over": 0.0})
    assert (verdict.word, verdict.sentence) == (
        Word.PASS,
        "No tenant re-plans much: at most 0.0% of calls follow a failure (A, the whole trial).",
    )
    assert judge_one(written(tmp_path / "t", {"A": []}), REPLANS, {}).word is Word.INCONCLUSIVE


# --- judging


def test_the_profiles_checks_are_judged_and_always_those_of_the_trial(tmp_path):
    asked, plan = {"checks": [{REPLANS: {"fail_over": 0.5}}, ON_TIME]}, {"A": {"calm": 50, "burst": 49}}
    trial = written(tmp_path / "t", {"A": steady(99, 0, 80)}, asked, plan=plan)
    assert [verdict.check for verdict in judge_all(trial)] == [REPLANS, ON_TIME, CONSERVED]
    assert [verdict.check for verdict in judge_all(trial, [REFUSALS, REPLANS])] == [REFUSALS, REPLANS]
    assert judge_all(trial, [REPLANS])[0].bound == 0.5


def test_one_check_alone_does_not_pass_a_trial_that_is_not_to_be_trusted(tmp_path):
    trial = simulated(tmp_path / "t", {"duration": "10s", "phases": {}, "tenants.D.rate": "8/s"})
    assert [verdict.check for verdict in judge_all(trial, [REPLANS])] == [REPLANS]
    trial = manifest_edited(trial, lambda manifest: manifest["ended"].update(reason="interrupted"))
    assert [(v.check, v.word) for v in judge_all(trial, [REPLANS])] == [
        (REPLANS, Word.PASS),
        (CONSERVED, Word.INVALID),
    ]


def test_a_damaged_file_is_named_and_nobody_is_asked_to_report_it(tmp_path):
    trial = simulated(tmp_path / "t", {"duration": "10s", "phases": {}, "tenants.D.rate": "8/s"})
    with (trial.folder / "decisions.jsonl").open("ab") as file:
        file.write(b"oops\n")
    verdict = judge_one(trial, CONSERVED, {})
    assert (
        verdict.word,
        "decisions.jsonl:" in verdict.sentence,
        "report" in verdict.sentence.partition(" not JSON")[2],
    ) == (
        Word.INVALID,
        True,
        False,
    )


def test_a_name_that_no_check_has(tmp_path):
    trial = written(tmp_path / "t", {"A": steady(99, 0, 80)}, {"checks": ["fairness.ordinary_moved"]})
    with pytest.raises(UnknownCheck, match=r"there is no check 'agent.replan': did you mean agent.replan_share\?"):
        judge_all(trial, ["agent.replan"])
    verdict = judge_all(trial)[0]
    assert verdict.word is Word.INVALID
    assert "did you mean fairness.ordinary_unmoved?" in verdict.sentence


@pytest.mark.parametrize("params", [{"within": "fast"}, {"within": 5}, {"inside": "5s"}, {"breach": 7}])
def test_parameters_that_are_not_valid_are_said_and_stop_nothing(tmp_path, params):
    trial = written(tmp_path / "t", {"A": steady(99, 0, 80)}, {"checks": [{REFUSALS: params}, REPLANS]})
    verdicts = judge_all(trial)
    assert [verdict.word for verdict in verdicts[:2]] == [Word.INVALID, Word.PASS]
    assert "its parameters or the manifest's profile are not valid" in verdicts[0].sentence


@pytest.mark.parametrize("error", [ZeroDivisionError("by 0"), MemoryError(), LedgerError("gone"), RecursionError()])
def test_a_check_that_breaks_is_invalid_and_stops_nothing(tmp_path, monkeypatch, error):
    def breaks(trial, params):
        raise error

    monkeypatch.setitem(CHECKS, "x.breaks", Check("x.breaks", "", "", Part, breaks))
    trial = written(tmp_path / "t", {"A": steady(99, 0, 80)}, {"checks": ["x.breaks", REPLANS]})
    verdicts = judge_all(trial)
    assert [verdict.word for verdict in verdicts[:2]] == [Word.INVALID, Word.PASS]
    assert type(error).__name__ in verdicts[0].sentence


def test_a_manifest_whose_profile_is_none_is_invalid_not_an_error(tmp_path):
    trial = written(tmp_path / "t", {"A": steady(99, 0, 80)})
    broken = manifest_edited(trial, lambda manifest: manifest["profile"].update(duration="soon", checks=3))
    assert {verdict.word for verdict in judge_all(broken)} == {Word.INVALID}


def test_the_loader_knows_the_checks_and_their_parameters():
    document = with_values(WORKED_EXAMPLE, {"checks": [{REPLANS: {"fail_over": 0.2, "window": "10s"}}, REFUSALS]})
    assert from_document(document, checks=checks.PARAMETERS).profile.checks[0].name == REPLANS
    assert set(checks.PARAMETERS) >= {
        BUDGET, CONSERVED, ON_TIME, REFUSALS, REPLANS, "fairness.ordinary_unmoved", "v05.one_retry_owner",
    }  # fmt: skip


def test_every_check_says_what_it_judges_and_needs_and_names_itself():
    for name, check in CHECKS.items():
        assert check.name == name
        assert check.judges
        assert check.needs


def test_the_worst_word_counts():
    assert worst([Word.PASS, Word.INCONCLUSIVE, Word.FAIL]) is Word.FAIL
    assert worst([Word.INVALID, Word.FAIL]) is Word.INVALID
    assert worst([]) is Word.INCONCLUSIVE
    assert [exit_code([word]) for word in (Word.PASS, Word.FAIL, Word.INCONCLUSIVE, Word.INVALID)] == [0, 1, 3, 4]
    assert Verdict("x", Word.PASS, None, None, "", 0, "").findings == ()


def driven_by(*, lost=(), late=(), clock_error_ns=0):
    """What the manifest says of two workers."""
    workers = [{"name": f"w{n}", "tenants": [], "clock_offset_ns": 0, "clock_error_ns": n * clock_error_ns, "calls": 50}
               for n in range(2)]  # fmt: skip

    def edit(manifest):
        manifest["workers"] = workers
        manifest["ended"]["workers"] = {"expected": 2, "turned_away": 0, "late": list(late), "lost": list(lost)}

    return edit


def test_workers_that_all_stayed_are_no_reason_to_doubt(tmp_path):
    trial = manifest_edited(simulated(tmp_path), driven_by())
    assert judge_one(trial, "trial.conserved", {}).word is Word.PASS
    assert judge_one(trial, "trial.on_time", {}).word is Word.PASS


def test_a_lost_worker_is_named_with_what_is_unaccounted_for(tmp_path):
    lost = {"name": "w1", "why": "killed", "at_ns": 2_100_000_000, "calls": 1860, "unaccounted": 190}
    trial = manifest_edited(simulated(tmp_path), driven_by(lost=[lost]))
    verdict = judge_one(trial, "trial.conserved", {})
    assert verdict.word is Word.INVALID
    assert verdict.sentence == (
        "The record does not add up: worker w1 was lost at 2.1 s (killed): the 1,860 calls that it had shipped are in "
        "the record, 190 that were due are unaccounted for."
    )


@pytest.mark.parametrize("lost", [[{}], ["w1"], [{"name": None, "at_ns": "x"}]])
def test_a_loss_told_badly_is_a_loss(tmp_path, lost):
    trial = manifest_edited(simulated(tmp_path), driven_by(lost=lost))
    assert judge_one(trial, "trial.conserved", {}).word is Word.INVALID


@pytest.mark.parametrize(("late", "said"), [
    ([{"name": "w3", "host": "h", "at_ns": 2_100_000_000}],
     "worker w3 joined at 2.1 s, and the trial was planned for 2 and had them (ask for 3 workers in all, or start no "
     "more)"),
    ([{"name": "w3", "host": "h"}, {"name": "w4", "host": "h"}],
     "worker w3 joined before it began, and 1 more, and the trial was planned for 2 and had them (ask for 4 workers"),
    ([{}], "worker of no name joined before it began, and"),
    (["w3"], "worker of no name joined before it began, and"),
])  # fmt: skip
def test_a_worker_that_was_not_planned_for_is_named_with_how_many_to_ask_for(tmp_path, late, said):
    verdict = judge_one(manifest_edited(simulated(tmp_path), driven_by(late=late)), "trial.conserved", {})
    assert verdict.word is Word.INVALID
    assert verdict.sentence.startswith("The record does not add up: " + said)


@pytest.mark.parametrize("told", [{}, [], "none", {"lost": "w1"}, {"lost": [], "late": "w3"}])
def test_workers_of_which_nothing_can_be_read_are_no_reason_to_pass(tmp_path, told):
    trial = manifest_edited(simulated(tmp_path), lambda manifest: manifest["ended"].update(workers=told))
    assert judge_one(trial, "trial.conserved", {}).word is Word.INVALID


def test_clocks_that_are_not_known_well_enough_are_invalid_and_say_so(tmp_path):
    trial = manifest_edited(simulated(tmp_path), driven_by(clock_error_ns=20_000_000))
    assert judge_one(trial, "trial.on_time", {}).word is Word.PASS
    trial = manifest_edited(trial, driven_by(clock_error_ns=20_000_001))
    verdict = judge_one(trial, "trial.on_time", {})
    assert verdict.word is Word.INVALID
    assert verdict.sentence == (
        "The workers' clocks are not known well enough: clock error (worker w1) 20 ms, at most 20."
    )
    assert "nearer to their master" in verdict.add
