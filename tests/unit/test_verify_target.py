"""Verifying a described target: what it lets us see, and what its limits allow, decides which situations are driven."""

from __future__ import annotations

import pytest

from harness import trial, verify
from harness.checks.verdict import Word
from harness.errors import BadInput
from harness.target.file import target_from_document
from tests.unit.test_verify import FakeTrials, verdict

LOG = {"decisions": {"file": "x.log", "fields": {"attempt": "/a"}}, "dependencies": "http://127.0.0.1:9"}
RUNS = {"open": {"path": "/r"}, "submit": {"path": "/r/{run}"}, "cancel": {"path": "/r/{run}/c"}}


@pytest.fixture(autouse=True)
def _ended_in_order(monkeypatch):
    monkeypatch.setattr(trial.Judged, "interrupted", property(lambda judged: False))


def options(tmp_path, **more):
    document = {"name": "shop", "url": "http://127.0.0.1:9", **more}
    return verify.Options(tmp_path, target_from_document(document, tmp_path))


def test_what_cannot_be_seen_is_not_driven_and_says_what_to_add(monkeypatch, tmp_path):
    fake = FakeTrials(monkeypatch)
    cases, chosen = verify.chosen("v05,v07,fairness.ordinary_unmoved"), options(tmp_path)
    outcomes = verify.run(cases, chosen)
    assert fake.driven == ["fairness"]
    found = verify.verification(cases, outcomes, chosen)
    rows = {row.case: row.verdict for row in found.rows}
    assert rows["v05"].word is rows["v07"].word is Word.INCONCLUSIVE
    assert "`evidence: {dependencies: http://...}`" in rows["v05"].add
    assert "`runs`" in rows["v07"].add
    assert found.word is Word.INCONCLUSIVE
    assert found.target == "shop (http://127.0.0.1:9)"


def test_what_can_be_seen_is_driven(monkeypatch, tmp_path):
    fake = FakeTrials(monkeypatch)
    verify.run(verify.chosen("v05,v07"), options(tmp_path, evidence=LOG, runs=RUNS))
    assert fake.driven == ["v05", "v07"]


@pytest.mark.parametrize(("more", "said"), [
    ({"limits": {"max_rate": "1/s"}}, "allows 1/s (limits.max_rate)"),
    ({"credentials": {"env": "NOBODY_HAS_{TENANT}"}}, "A: NOBODY_HAS_A"),
])  # fmt: skip
def test_a_limit_of_the_target_forbids_a_situation(monkeypatch, tmp_path, more, said):
    fake = FakeTrials(monkeypatch)
    cases, chosen = verify.chosen("fairness.ordinary_unmoved"), options(tmp_path, **more)
    found = verify.verification(cases, verify.run(cases, chosen), chosen)
    (row,) = found.rows
    assert fake.driven == []
    assert row.verdict.word is Word.INCONCLUSIVE
    assert said in row.verdict.sentence
    assert row.folder is None


def test_a_service_that_lacks_runs_or_faults_is_not_driven_into_them(monkeypatch, tmp_path):
    fake = FakeTrials(monkeypatch)
    chosen = options(tmp_path, evidence=LOG, runs={key: RUNS[key] for key in ("open", "submit")})
    found = verify.verification(verify.chosen("cancelled"), verify.run(verify.chosen("cancelled"), chosen), chosen)
    assert fake.driven == []
    assert "add `runs.cancel`" in found.rows[0].verdict.sentence


def test_a_target_that_suffered_is_left_alone(monkeypatch, tmp_path):
    fake = FakeTrials(monkeypatch)
    monkeypatch.setattr(trial.Judged, "interrupted", property(lambda judged: True))
    cases, chosen = verify.chosen("v05,v07"), options(tmp_path, evidence=LOG, runs=RUNS)
    outcomes = verify.run(cases, chosen)
    assert fake.driven == ["v05"]
    rows = verify.verification(cases, outcomes, chosen).rows
    assert rows[1].verdict.sentence == "Not driven: stopped before."


def test_the_ceiling_of_a_target_is_no_lateness():
    from harness.checks.on_time import CEILING
    from harness.checks.verdict import Finding, Verdict

    for quantity, again in ((CEILING, False), ("p99 lateness", True)):
        finding = Finding("trial", quantity, Word.INVALID, 5, None, None, 0.1, "%", 100)
        late = Verdict("trial.on_time", Word.INVALID, 5, 0.1, "%", 100, "", findings=(finding,))
        judged = trial.Judged(None, [verdict("v05.one_retry_owner"), late])
        assert verify._only_late(verify.Outcome(verify.CASES[4], judged, 1, 0.0)) is again


def test_times_of_a_target_are_its_own(tmp_path):
    from harness.cli.verify import target_of

    path = tmp_path / "target.yaml"
    path.write_text("name: shop\nurl: http://127.0.0.1:9\n")
    with pytest.raises(BadInput, match="keeps its own times"):
        target_of(str(path), 0.5)
