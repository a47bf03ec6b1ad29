"""The audit: a whole ledger balances, and each way of losing or inventing a call is found and named."""

from __future__ import annotations

import pytest

from harness.checks.context import profile_of
from harness.ledger.audit import audit
from harness.ledger.reader import DECISIONS, LedgerError, read_trial
from tests.unit.ledgers import edited, manifest_edited, simulated, without_decisions

SHORT = {
    "duration": "14s",
    "phases": {"calm": ["0s", "6s"], "burst": ["6s", "14s"]},
    "tenants.D.rate": ["8/s", {"from": "6s", "to": "11s", "rate": "80/s"}, {"from": "11s", "to": "14s", "rate": "0/s"}],
}


@pytest.fixture
def trial(tmp_path):
    return simulated(tmp_path / "trial", SHORT)


def rules(trial):
    return [item.rule for item in audit(trial, profile_of(trial)).contradictions]


def first(rows, **values):
    """Place of the first row that has all these values."""
    return next(i for i, row in enumerate(rows) if all(row.get(key) == value for key, value in values.items()))


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"tenants.D.budget": {"rate": "10/s", "burst": 10}},
        {"tenants.D.budget": {"rate": "2/s", "burst": 1, "scope": "run"}},
        {"patience_until": "done", "service.service_time": {"distribution": "lognormal", "mean": "200ms", "sigma": 1}},
        {"drain": "0s", "patience": None},
        {"phases": {}},
    ],
)
def test_a_whole_ledger_balances(tmp_path, values):
    trial = simulated(tmp_path / "trial", {**SHORT, **values})
    found = audit(trial, profile_of(trial))
    assert (found.contradictions, found.notes, found.calls) == ((), (), len(trial.calls))


def test_it_balances_at_any_time_scale(tmp_path):
    trial = simulated(tmp_path / "trial", SHORT, time_scale=0.25)
    assert rules(trial) == []


def test_without_the_services_evidence_it_balances_on_the_callers_side_and_says_so(trial):
    found = audit(without_decisions(trial), profile_of(trial))
    assert found.contradictions == ()
    assert found.notes == ("the service's own evidence is not to be had: judged on the caller's side alone",)


def test_evidence_that_was_promised_and_is_not_there(trial):
    (trial.folder / DECISIONS).unlink()
    assert rules(trial) == ["evidence is whole"]


@pytest.mark.parametrize(
    ("ended", "rule"),
    [
        (None, "the trial ended"),
        ({"reason": "interrupted", "at_ns": 1, "calls": None}, "the trial ended"),
        ({"reason": "completed", "at_ns": 1, "calls": 3}, "as many rows as calls"),
        ({"reason": "completed", "at_ns": 1, "calls": None}, "as many rows as calls"),
    ],
)
def test_a_trial_that_did_not_complete(trial, ended, rule):
    assert rules(manifest_edited(trial, lambda manifest: manifest.update(ended=ended))) == [rule]


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest["profile"].update(checks=[{"fairness.ordinary_unmoved": {"served_down_pp": 90}}]),
        lambda manifest: manifest["profile"].update(ordinary=["B"]),
    ],
)
def test_a_profile_that_was_changed_after_the_trial(trial, change):
    """A wider margin, or one tenant fewer to look at, is another claim."""
    assert rules(manifest_edited(trial, change)) == ["the profile that was run"]


@pytest.mark.parametrize("key", ["tenant", "parent"])
def test_a_row_of_two_tenants_is_no_ledger(trial, key):
    def edit(rows):
        row = rows[first(rows, round=1)]
        row[key] = {"tenant": "A", "parent": f"0.{row['parent'].partition('.')[2]}"}[key]

    with pytest.raises(LedgerError, match=r"call 3\.\d+ is of tenant 'D' by its id, and its tenant or its parent"):
        edited(trial, edit)


def test_a_line_cut_short(trial):
    path = trial.folder / "calls.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    assert "whole lines" in rules(read_trial(trial.folder))


def test_a_served_call_that_left_no_row(trial):
    def lose(rows):
        del rows[first(rows, tenant="A", outcome="served")]

    found = rules(edited(trial, lose))
    assert {"no call is missing", "as planned", "what the service saw is ours"} == set(found)


def test_the_last_call_of_a_tenant_that_left_no_row(trial):
    """No hole in the sequence: only the plan and the service know of it."""
    trial = without_decisions(trial)
    last = f"0.{max(int(trial.calls.seq[i]) for i in range(len(trial.calls)) if trial.calls.tenant[i] == 0)}"
    found = audit(edited(trial, lambda rows: [row for row in rows if row["call"] != last]), profile_of(trial))
    assert [item.rule for item in found.contradictions] == ["as planned"]
    assert found.contradictions[0].sentence == "not the planned calls: A, burst: 64 planned, 63 in the ledger"


def test_a_call_that_ended_twice(trial):
    found = audit(edited(trial, lambda rows: [*rows, rows[5]]), profile_of(trial))
    assert [item.rule for item in found.contradictions] == ["one row a call"]
    assert len(found.contradictions[0].witnesses) == 2


def test_a_replan_that_left_no_row(trial):
    """The last of its tenant, so that the sequence has no hole."""
    trial = without_decisions(trial)

    def lose(rows):
        places = [i for i, row in enumerate(rows) if row["tenant"] == "D"]
        last = max(places, key=lambda i: int(rows[i]["call"].split(".")[1]))
        assert rows[last]["round"] > 0
        del rows[last]

    assert set(rules(edited(trial, lose))) == {"re-plans as the profile says"}


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"round": 3}, "re-plans as the profile says"),
        ({"run": 0}, "re-plans as the profile says"),
        ({"parent": "3.999999"}, "no call without a cause"),
        ({"parent": "3.0"}, "re-plans as the profile says"),
        ({"round": 0}, "rounds"),
    ],
)
def test_a_replan_of_other_parents(trial, change, rule):
    assert rule in rules(edited(trial, lambda rows: rows[first(rows, tenant="D", round=1)].update(change)))


def test_a_replan_at_another_instant(trial):
    def later(rows):
        rows[first(rows, tenant="D", round=2)]["due_ns"] += 1

    assert "re-plans as the profile says" in rules(edited(trial, later))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"attempt": 0}, "sent or not"),
        ({"sent_ns": -1}, "sent or not"),
        ({"done_ns": 0}, "in order"),
        ({"outcome": "held_back", "attempt": 0}, "held back by a budget"),
        ({"due_ns": 14_000_000_000}, "in the trial"),
        ({"outcome": "throttled"}, "outcomes agree"),
    ],
)
def test_rows_that_cannot_be(trial, change, rule):
    assert rule in rules(edited(trial, lambda rows: rows[first(rows, call="0.20")].update(change)))


@pytest.mark.parametrize("outcome", ["failed", "abandoned", "open"])
def test_an_answer_that_came_too_late_is_no_contradiction(trial, outcome):
    assert rules(edited(trial, lambda rows: rows[first(rows, call="0.20")].update(outcome=outcome))) == []


def test_a_call_that_the_service_never_saw(trial):
    found = edited(trial, lambda rows: [row for row in rows if row["call"] != "0.20"], DECISIONS)
    assert rules(found) == ["ours were seen"]
    assert rules(edited(found, lambda rows: rows[first(rows, call="0.20")].update(outcome="failed"))) == []


def test_the_log_of_a_service_of_ones_own_may_lose_a_line_but_not_many(trial):
    one = edited(trial, lambda rows: [row for row in rows if row["call"] != "0.20"], DECISIONS)
    one.manifest["target"] = {"kind": "file"}
    assert rules(one) == []
    notes = audit(one, profile_of(one)).notes
    assert any("has no line for 1 of" in note for note in notes)
    many = edited(trial, lambda rows: [row for row in rows if not row["call"].startswith("0.")], DECISIONS)
    many.manifest["target"] = {"kind": "file"}
    assert rules(many) == ["ours were seen"]


@pytest.mark.parametrize("attempt_id", ["9.0.1", "0.20.2", "hello", "1.2", None, "-1.0.1", "0.1.999"])
def test_a_call_that_is_not_ours(trial, attempt_id):
    stranger = {"t_ns": 1, "outcome": "throttled", "attempt_id": attempt_id}
    assert rules(edited(trial, lambda rows: [*rows, stranger], DECISIONS)) == ["what the service saw is ours"]


def test_a_call_that_the_service_settled_twice_or_never(trial):
    def twice(rows):
        return [*rows, rows[first(rows, call="0.20", outcome="served")]]

    assert rules(edited(trial, twice, DECISIONS)) == ["one decision a call"]

    def never(rows):
        return [row for row in rows if (row["call"], row["outcome"]) != ("0.20", "served")]

    assert rules(edited(trial, never, DECISIONS)) == ["one decision a call"]
