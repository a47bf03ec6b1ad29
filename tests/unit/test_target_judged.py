"""What checks, audit and reports make of a trial against a described target."""

from __future__ import annotations

from harness.checks.context import bundled, profile_of, service_time
from harness.checks.judge import judge_one
from harness.checks.verdict import Word
from harness.ledger.audit import audit
from harness.report.frame import frame_of
from harness.report.notes import not_observable, title_of
from tests.unit.ledgers import manifest_edited, steady, write_rows, written

ON_TIME = "trial.on_time"
FILE = {"kind": "file", "name": "shop", "url": "http://127.0.0.1:1", "service_time_ns": 100_000_000}


def described(folder, rows, **more):
    trial = written(folder, {"A": rows}, {"service": SERVICE})
    return manifest_edited(trial, lambda manifest: manifest.update({"target": FILE, **more}))


SERVICE = {"workers": 8, "service_time": "900ms", "admission": {"policy": "shared_fifo", "queue": 9}}


def test_the_profiles_service_is_not_what_ran(tmp_path):
    trial = described(tmp_path / "t", steady(100, 0, 80))
    assert not bundled(trial)
    assert service_time(trial, profile_of(trial)).mean_ns == 100_000_000
    assert judge_one(trial, ON_TIME, {}).bound == 10.0


def kept_back(n, reason, of=1000):
    rows = steady(of, 0, 80)
    for row in rows[:n]:
        row.update(outcome="dropped", attempt=0, reason=reason, done_ns=row["due_ns"], sent_ns=-1)
        del row["status"]
    return rows


def test_what_a_ceiling_kept_back_is_told_as_that(tmp_path):
    verdict = judge_one(described(tmp_path / "t", kept_back(50, "in_flight_ceiling")), ON_TIME, {})
    assert verdict.word is Word.INVALID
    assert verdict.sentence.startswith("The target's ceiling kept calls back, so it was not sent what the profile says")
    assert "limits.max_in_flight" in verdict.add
    other = judge_one(described(tmp_path / "u", kept_back(50, "connection_limit")), ON_TIME, {})
    assert other.word is Word.INVALID
    assert other.sentence.startswith("The harness was late: calls not sent")
    few = judge_one(described(tmp_path / "v", kept_back(1, "in_flight_ceiling", 4000)), ON_TIME, {})
    assert few.word is Word.PASS


def runs(folder, **target):
    """One run, never finished; the service's log knows every request of it, the batch twice."""
    rows = [
        {"call": "0.0", "attempt": 1, "tenant": "A", "round": 0, "run": 0, "due_ns": 0, "sent_ns": 0, "done_ns": 5,
         "outcome": "served", "action": "open", "run_id": "r"},
        {"call": "0.1", "attempt": 1, "tenant": "A", "round": 0, "run": 0, "parent": "0.0", "due_ns": 6, "sent_ns": 6,
         "done_ns": 9, "outcome": "served", "action": "submit", "run_id": "r", "polls": 1},
    ]  # fmt: skip
    step = {"dependency": "crm"}
    one = {"runs": [{"name": "t", "at": "0s", "batches": [{"steps": [step]}]}]}
    trial = written(folder, {"A": []}, {"tenants": {"A": one}, "phases": {}, "ordinary": []})
    write_rows(folder, rows)
    seen = [{"call": "0.0", "attempt_id": "0.0.1", "outcome": "served", "t_ns": 1}]
    words = ("queued", "served", "served")
    seen += [{"call": "0.1", "attempt_id": "0.1.1", "outcome": word, "t_ns": 7} for word in words]
    write_rows(folder, seen, "decisions.jsonl")
    more = {"plan": {"A": {"": 1}}, "evidence": {"decisions": True}, "target": {**FILE, **target}}
    trial = manifest_edited(trial, lambda manifest: manifest.update(more))
    return manifest_edited(trial, lambda manifest: manifest["ended"].update(calls=2))


def test_a_service_that_cannot_be_told_that_a_run_is_over_is_not_blamed(tmp_path):
    trial = runs(tmp_path / "t", finishes=False)
    found = audit(trial, profile_of(trial))
    assert found.contradictions == ()
    assert "cannot be told that a run is over" in found.notes[0]
    trial = runs(tmp_path / "u", finishes=True)
    (lost,) = audit(trial, profile_of(trial)).contradictions
    assert lost.rule == "runs come to their end"


def notes(trial):
    return " ".join(not_observable(trial, frame_of(trial)))


def test_a_report_names_the_target_and_what_it_does_not_show(tmp_path):
    trial = described(tmp_path / "t", steady(100, 0, 80), evidence={"typed": True}, clock_domain="separate")
    assert "against shop (http://127.0.0.1:1)" in title_of(trial.manifest)
    told = notes(trial)
    assert "Not to be seen without dependencies; add `evidence: {dependencies: http://...}`" in told
    assert "Not to be seen without decisions" in told
    assert "without typed" not in told
    assert "a clock of its own: its instants are not compared" in told


def test_a_report_tells_of_the_log_and_of_the_clock(tmp_path):
    log = {"rows": 0, "foreign": 12, "unreadable": 3, "words": {"odd": 3}}
    clock = {"offset_ns": 2_000_000, "error_ns": 500_000, "samples": 40, "consistent": False}
    more = {"evidence": {"decisions": True}, "decision_log": log, "clock": clock, "clock_domain": "separate"}
    told = notes(described(tmp_path / "t", steady(100, 0, 80), **more))
    assert "3 lines of the decision log were not understood; words that are no outcome: odd" in told
    assert "No line of the decision log is about this trial (12 are about others)" in told
    assert "clock was 2.0 ms ahead of the callers', as 40 calls tell" in told
    assert "good to 0.5 ms, and it was set or drifts" in told
    for place, (offset_ns, said) in enumerate(
        [(-3_000_000, "3.0 ms behind the callers'"), (10**18, "counted from another beg")]
    ):
        clock = {"offset_ns": offset_ns, "error_ns": 500_000, "samples": 40, "consistent": True}
        assert said in notes(described(tmp_path / f"t{place}", steady(100, 0, 80), **{**more, "clock": clock}))
