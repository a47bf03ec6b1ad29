"""trial.on_time and trial.conserved at their bounds: which part was late, what could not be sent, who is to blame."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from harness.checks import conserved
from harness.checks.judge import judge_one
from harness.checks.verdict import Word
from harness.ledger.contradictions import Contradiction
from harness.ledger.reader import read_trial
from harness.ledger.stalls import STALLS
from tests.unit.attempt_rows import MS, S
from tests.unit.ledgers import manifest_edited, steady, write_rows, written

CHECK, CONSERVED = "trial.on_time", "trial.conserved"
BOUND = {"at_most": "20ms"}
NOT_SENT, CEILING = "calls not sent", "calls kept back at the target's in-flight ceiling"
P99, MEAN, STALLED = "p99 lateness", "mean lateness", "time stalled"


def late(rows, by_ns):
    return [{**row, "sent_ns": row["due_ns"] + by_ns} for row in rows]


def unsent(rows, outcome="dropped", **more):
    return [{**row, "outcome": outcome, "attempt": 0, "sent_ns": -1, **more} for row in rows]


def judged(folder, rows, params=None, profile=None, others=None, **more):
    tenants = {"A": rows} | ({} if others is None else {"D": others})
    return judge_one(written(folder / "t", tenants, profile, **more), CHECK, {**BOUND, **(params or {})})


def told(verdict, quantity):
    """Of each part: (word, measured, samples)."""
    return {f.subject: (f.word, f.measured, f.samples) for f in verdict.findings if f.quantity == quantity}


# --- lateness


@pytest.mark.parametrize(("by_ns", "word"), [(20 * MS, Word.PASS), (20 * MS + 1, Word.INVALID), (-20 * MS, Word.PASS)])
def test_at_its_bound_a_call_is_not_late(tmp_path, by_ns, word):
    verdict = judged(tmp_path, late(steady(200, 10, 11), by_ns))
    assert (verdict.word, verdict.samples) == (word, 200)
    assert told(verdict, MEAN) == {}


def test_a_mean_is_told_where_it_is_over_the_bound_and_the_p99_is_not(tmp_path):
    rows = late(steady(398, 0, 30), 20 * MS) + late(steady(2, 30, 31), 9 * S)
    verdict = judged(tmp_path, rows)
    assert verdict.word is Word.INVALID
    assert {part: found[0] for part, found in told(verdict, P99).items()} == {"trial": Word.PASS, "calm": Word.PASS}
    assert {part: found[0] for part, found in told(verdict, MEAN).items()} == {
        "trial": Word.INVALID, "calm": Word.INVALID,
    }  # fmt: skip


def test_one_call_of_two_hundred_is_not_the_ninety_ninth_percentile(tmp_path):
    verdict = judged(tmp_path, steady(199, 0, 30) + late(steady(1, 30, 31), 30 * MS))
    assert verdict.word is Word.PASS


def test_a_call_of_the_first_instant_counts(tmp_path):
    verdict = judged(tmp_path, steady(100, 0, 40))
    assert (verdict.samples, told(verdict, P99)) == (
        100,
        {"trial": (Word.PASS, 0.0, 100), "calm": (Word.PASS, 0.0, 100)},
    )


@pytest.mark.parametrize("by_ns", [10 * MS, MS // 2])
def test_the_latest_part_is_what_a_pass_shows(tmp_path, by_ns):
    rows = steady(1000, 0, 40) + late(steady(5, 40, 80), by_ns)
    verdict = judged(tmp_path, rows, {"least_calls": 5})
    assert (verdict.word, verdict.measured) == (Word.PASS, by_ns / MS)
    assert "p99 lateness (burst)" in verdict.sentence


@pytest.mark.parametrize(("n", "word"), [(99, Word.PASS), (100, Word.INVALID)])
def test_a_phase_is_judged_alone_from_a_hundred_calls_on(tmp_path, n, word):
    """Calm has too few in either case, and hides nothing of what comes after."""
    rows = steady(20, 0, 40) + late(steady(n, 40, 80), 30 * MS) + steady(20_000, 80, 100)
    verdict = judged(tmp_path, rows)
    assert verdict.word is word
    assert set(told(verdict, P99)) == ({"trial", "burst"} if word is Word.INVALID else {"trial"})


def test_the_whole_trial_is_judged_however_few_its_calls(tmp_path):
    assert judged(tmp_path, late(steady(3, 0, 40), 30 * MS)).word is Word.INVALID


def test_ordinary_tenants_are_parts_of_their_own_only_beside_others(tmp_path):
    rows = steady(100, 0, 40) + steady(150, 40, 80)
    assert set(told(judged(tmp_path, rows), P99)) == {"trial", "calm", "burst"}
    (tmp_path / "b").mkdir()
    verdict = judged(tmp_path / "b", rows, None, {"ordinary": ["A"]}, steady(300, 0, 40))
    assert {part: found[2] for part, found in told(verdict, P99).items()} == {
        "trial": 550, "calm": 400, "burst": 150, "trial, ordinary tenants": 250, "calm, ordinary tenants": 100,
        "burst, ordinary tenants": 150,
    }  # fmt: skip


def test_where_no_call_was_sent_none_was_late(tmp_path):
    verdict = judged(tmp_path, unsent(steady(5, 0, 40), "held_back", reason="tenant_budget"))
    assert (verdict.word, verdict.sentence, verdict.samples) == (Word.INCONCLUSIVE, "No call was sent.", 0)
    assert set(told(verdict, NOT_SENT)) == {"trial"}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (late(steady(99, 1, 40), 3 * MS) + late(steady(1, 40, 41), 9 * S), "is not known; p99 lateness was 3.0 ms."),
        (unsent(steady(5, 0, 40), "held_back"), "the service time is not known."),
    ],
    ids=["sent", "none_sent"],
)
def test_without_a_bound_lateness_is_told_as_far_as_there_is_any(tmp_path, rows, said):
    rows = [{key: value for key, value in row.items() if key != "service_ns"} for row in rows]
    verdict = judged(tmp_path, rows, {"at_most": None})
    assert (verdict.word, verdict.unit) == (Word.INCONCLUSIVE, "ms")
    assert said in verdict.sentence


# --- what could not be sent


@pytest.mark.parametrize(("n", "word"), [(1, Word.PASS), (2, Word.INVALID)])
def test_of_a_hundred_calls_one_may_be_dropped_where_a_hundredth_may(tmp_path, n, word):
    rows = steady(100 - n, 0, 40) + unsent(steady(n, 30, 40), reason="no_socket")
    verdict = judged(tmp_path, rows, {"dropped": 0.01})
    assert verdict.word is word
    assert told(verdict, NOT_SENT) == {"trial": (word, float(n), 100), "calm": (word, float(n), 100)}
    assert [f.bound for f in verdict.findings if f.quantity == NOT_SENT] == [1.0, 1.0]
    assert told(verdict, CEILING) == {}


def test_one_dropped_call_of_a_short_trial_is_too_many(tmp_path):
    verdict = judged(tmp_path, steady(20, 0, 40) + unsent(steady(1, 30, 40)))
    assert verdict.word is Word.INVALID
    assert set(told(verdict, NOT_SENT)) == {"trial"}


def test_a_phase_with_few_calls_hides_no_later_one_in_which_calls_were_dropped(tmp_path):
    rows = steady(5, 0, 40) + steady(95, 40, 80) + unsent(steady(5, 40, 80)) + steady(3000, 80, 100)
    verdict = judged(tmp_path, rows, {"dropped": 0.002})
    assert told(verdict, NOT_SENT) == {"trial": (Word.PASS, 500 / 3105, 3105), "burst": (Word.INVALID, 5.0, 100)}


def test_what_a_ceiling_kept_back_is_told_apart_from_what_could_not_be_sent(tmp_path):
    kept = unsent(steady(3, 30, 31), reason="in_flight_ceiling")
    verdict = judged(tmp_path, steady(95, 0, 40) + kept + unsent(steady(2, 31, 32), reason="no_socket"))
    assert (told(verdict, NOT_SENT)["trial"][1], told(verdict, CEILING)["trial"][1]) == (2.0, 3.0)
    assert verdict.sentence.startswith("The harness was late")
    (tmp_path / "b").mkdir()
    verdict = judged(tmp_path / "b", steady(97, 0, 40) + kept)
    assert verdict.sentence.startswith("The target's ceiling kept calls back")


# --- clocks, the stub's loop


def test_a_late_harness_is_named_before_clocks_that_are_not_known(tmp_path):
    workers = [{"name": "w1", "tenants": [], "clock_offset_ns": 0, "clock_error_ns": 21 * MS, "calls": 100}]
    verdict = judged(tmp_path, late(steady(100, 0, 40), 30 * MS), workers=workers)
    assert verdict.sentence.startswith("The harness was late: ")
    assert "clock error (worker w1) 21 ms" in verdict.sentence


@pytest.mark.parametrize(
    ("lag", "found"),
    [
        ({"samples": 99, "p99_ns": 20 * MS}, {"stub": (Word.PASS, 20.0, 99)}),
        ({"p99_ns": 21 * MS}, {"stub": (Word.INVALID, 21.0, 0)}),
        ({"samples": 99, "p99_ns": None}, {}),
        (None, {}),
    ],
    ids=["at_the_bound", "over_it", "not_known", "none"],
)
def test_the_stubs_loop_is_judged_where_it_is_told_of(tmp_path, lag, found):
    verdict = judged(tmp_path, steady(100, 0, 40), ended={"reason": "completed", "stub_loop_lag": lag})
    assert told(verdict, "p99 loop lag") == found
    assert verdict.word is (Word.INVALID if lag == {"p99_ns": 21 * MS} else Word.PASS)


def test_a_trial_of_which_no_end_is_told_is_judged_by_its_calls(tmp_path):
    trial = manifest_edited(written(tmp_path / "t", {"A": steady(100, 0, 40)}), lambda m: m.update(ended=None))
    assert judge_one(trial, CHECK, BOUND).word is Word.PASS


def stalled(folder, rows, *spans_s, params=None):
    trial = written(folder / "t", {"A": rows})
    write_rows(trial.folder, [{"from_ns": int(a * S), "to_ns": int(b * S)} for a, b in spans_s], STALLS)
    return judge_one(read_trial(trial.folder), CHECK, {**BOUND, **(params or {})})


def test_time_stalled_is_a_share_of_the_time_to_the_last_answer_and_of_each_phase(tmp_path):
    """The last answer is at 50 s."""
    rows = steady(100, 0, 40) + steady(1, 50, 51, queue_wait_ns=0, service_ns=0)
    verdict = stalled(tmp_path, rows, (0, 20), (50, 55))
    assert told(verdict, STALLED) == {
        "stub": (Word.PASS, 40.0, 1), "stub, calm": (Word.PASS, 50.0, 1), "stub, burst": (Word.PASS, 12.5, 1),
    }  # fmt: skip
    assert {f.bound for f in verdict.findings if f.quantity == STALLED} == {50.0}
    (tmp_path / "b").mkdir()
    verdict = stalled(tmp_path / "b", rows, (0, 20.001))
    assert verdict.sentence == "The harness was late: time stalled (stub, calm) 50 %, at most 50."


def test_a_trial_that_ended_as_it_began_has_no_time_to_be_stalled_in(tmp_path):
    rows = steady(1, 0, 1, queue_wait_ns=0, service_ns=0)
    assert set(told(stalled(tmp_path, rows, (0, 1)), STALLED)) == {"stub, calm", "stub, burst"}


# --- conserved


def audited(monkeypatch, kinds, calls=7, notes=()):
    """kinds: how often each rule was broken."""
    found = [
        Contradiction(f"rule {place}", f"{n} wrong by {place}", n, tuple(f"{place}.{i}" for i in range(min(n, 20))))
        for place, n in enumerate(kinds)
    ]
    found = SimpleNamespace(contradictions=tuple(found), calls=calls, notes=notes)
    monkeypatch.setattr(conserved, "audit", lambda trial, profile: found)


@pytest.fixture
def trial(tmp_path):
    return written(tmp_path / "t", {"A": steady(7, 0, 40)})


@pytest.mark.parametrize(
    ("kinds", "sentence"),
    [
        ([1, 2, 3], "The record does not add up: 1 wrong by 0; 2 wrong by 1; 3 wrong by 2."),
        ([1, 2, 3, 4], "The record does not add up: 1 wrong by 0; 2 wrong by 1; 3 wrong by 2; and 1 more kinds."),
    ],
)
def test_three_kinds_of_contradictions_are_told_and_the_others_counted(monkeypatch, trial, kinds, sentence):
    audited(monkeypatch, kinds)
    verdict = judge_one(trial, CONSERVED, {})
    assert (verdict.word, verdict.sentence) == (Word.INVALID, sentence)
    assert (verdict.measured, verdict.bound, verdict.samples) == (sum(kinds), 0, 7)
    assert [(f.measured, f.bound, f.samples) for f in verdict.findings] == [(float(n), 0.0, 7) for n in kinds]
    assert len(verdict.witnesses) == sum(kinds)


def test_twenty_calls_are_named_at_most(monkeypatch, trial):
    audited(monkeypatch, [15, 15])
    assert judge_one(trial, CONSERVED, {}).witnesses[-1] == "1.4"


@pytest.mark.parametrize(("calls", "word"), [(0, Word.INCONCLUSIVE), (7, Word.PASS)])
def test_a_record_without_a_contradiction_has_none_of_none_allowed(monkeypatch, trial, calls, word):
    audited(monkeypatch, [], calls)
    verdict = judge_one(trial, CONSERVED, {})
    assert (verdict.word, verdict.measured, verdict.bound, verdict.samples) == (word, 0, 0, calls)
