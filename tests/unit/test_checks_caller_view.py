"""What callers saw of a window against calm: which calls count in which, who is named, and when there are too few."""

from __future__ import annotations

import pytest

from harness.checks.caller_view import column, is_refused, rng_of, stays, submits
from harness.checks.capacity_frames import frame_of
from harness.checks.verdict import Word
from harness.measure.intervals import lossless_needs, z_of
from harness.profile.model import Window
from tests.unit.capacity_rows import MS, asked, trial
from tests.unit.ledgers import manifest_edited

CALM, AFTER = Window.model_validate(["0s", "1s"]), Window.model_validate(["1s", "2s"])
CONFIDENCE = 0.95


@pytest.fixture(scope="module")
def frame(tmp_path_factory):
    return frame_of(trial(tmp_path_factory.mktemp("plain")))


def calls(n, begin_ms, took_ms=10, outcome="served", name="c"):
    """n calls over a second."""
    due = [round((begin_ms + i * 1000 / n) * MS) for i in range(n)]
    return [
        {"call": f"{name}{i}", "due_ns": at, "done_ns": at + round((took_ms + i / n) * MS), "outcome": outcome}
        for i, at in enumerate(due)
    ]


def judged(frame, rows, lost_pp=50.0, refused_pp=50.0, latency_up_ms=50):
    rules = stays(frame, "agents", rows, CALM, AFTER, CONFIDENCE, lost_pp, refused_pp, latency_up_ms * MS)
    return {rule.finding.quantity: rule for rule in rules}


EVIDENCE = ["calls in calm", "calls in the burst"]
CHANGES = ["served share down", "refusals up", "mean latency up"]


def test_batches_of_the_runs_that_are_wanted_in_order_of_due(tmp_path):
    rows = [
        asked("0.0", run_id="a"), asked("0.1", run_id="b"), asked("0.2", run_id="c"),
        asked("0.3", "submit", run_id="a", due_ns=9), asked("0.4", "submit", run_id="b", due_ns=3),
        asked("0.5", "submit", run_id="a", due_ns=1), asked("0.6", "submit", run_id="c", due_ns=2),
    ]  # fmt: skip
    mine = submits(frame_of(trial(tmp_path, calls=rows)), lambda run: run.id != "c")
    assert [row["call"] for row in mine] == ["0.5", "0.4", "0.3"]


def test_a_call_is_of_the_window_in_which_it_was_due_its_end_left_out():
    rows = [{"due_ns": at, "outcome": "throttled"} for at in (0, 5, 1000 * MS - 1, 1000 * MS, 2000 * MS - 1, 2000 * MS)]
    assert [len(column(rows, window, is_refused)) for window in (CALM, AFTER)] == [3, 2]


def test_draws_are_seeded_by_the_trial_and_by_what_they_are_for(tmp_path):
    def draws(seed, what):
        mine = manifest_edited(trial(tmp_path / f"{seed}{what}"), lambda manifest: manifest.update(seed=seed))
        return rng_of(frame_of(mine), what).integers(0, 1 << 60, 4).tolist()

    assert draws(1, "a") == draws(1, "a")
    assert draws(1, "a") != draws(2, "a")
    assert draws(1, "a") != draws(1, "b")


@pytest.mark.parametrize(("lost_pp", "refused_pp", "share"), [(1.0, 40.0, 0.01), (40.0, 2.0, 0.02), (50.0, 50.0, None)])
def test_so_many_calls_are_needed_that_a_loss_of_the_smaller_margin_would_show(frame, lost_pp, refused_pp, share):
    found = judged(frame, [*calls(60, 0), *calls(70, 1000)], lost_pp, refused_pp)
    need = 50 if share is None else lossless_needs(share, z_of(CONFIDENCE))
    assert [(found[name].finding.measured, found[name].finding.bound) for name in EVIDENCE] == [(60, 50), (70, need)]


@pytest.mark.parametrize(("calm", "after"), [(0, 60), (60, 0), (0, 0)])
def test_without_calls_in_one_of_the_windows_nothing_is_compared(frame, calm, after):
    found = judged(frame, [*calls(calm, 0), *calls(after, 1000)])
    assert list(found) == EVIDENCE
    assert Word.INCONCLUSIVE in [rule.finding.word for rule in found.values()]


def test_a_single_call_in_calm_is_compared_as_well(frame):
    assert list(judged(frame, [*calls(1, 0), *calls(60, 1000)])) == EVIDENCE + CHANGES


def test_without_served_calls_in_one_of_the_windows_no_latency_is_compared(frame):
    found = judged(frame, [*calls(60, 0), *calls(60, 1000, outcome="throttled")])
    assert list(found) == EVIDENCE + CHANGES[:2]


def test_calls_that_were_lost_or_refused_are_named_if_they_were_due_in_the_window(frame):
    lost = [*calls(3, 0, outcome="failed", name="l"), *calls(100, 1000, outcome="failed", name="f")]
    refused = [*calls(3, 0, outcome="throttled", name="m"), *calls(100, 1000, outcome="throttled", name="t")]
    edge = [{**lost[0], "call": "begin", "due_ns": 1000 * MS, "done_ns": 1001 * MS},
            {**lost[0], "call": "end", "due_ns": 2000 * MS, "done_ns": 2001 * MS}]  # fmt: skip
    found = judged(frame, [*calls(200, 0), *edge, *calls(5, 1000, name="s"), *lost, *refused], 10.0, 10.0)
    shown = [rule for name, rule in found.items() if name in CHANGES[:2]]
    assert [rule.finding.word for rule in shown] == [Word.FAIL, Word.FAIL]
    assert shown[0].witnesses[:2] == ("begin", "f0")
    assert "end" not in shown[0].witnesses
    assert set(shown[1].witnesses) == {f"t{i}" for i in range(20)}
    assert shown[0].finding.measured == pytest.approx(201 / 206 * 100 - 6 / 206 * 100)


def test_the_slowest_of_the_served_are_named_and_only_the_served_are_compared(frame):
    rows = [
        *calls(100, 0, took_ms=500, name="q", outcome="failed"), *calls(100, 0, name="a"),
        *calls(100, 1000, took_ms=200, name="b"), *calls(20, 1000, took_ms=900, name="x", outcome="failed"),
        *calls(3, 2000, took_ms=950, name="z"),
    ]  # fmt: skip
    latency = judged(frame, rows)["mean latency up"]
    assert (latency.finding.word, latency.finding.measured) == (Word.FAIL, pytest.approx(190))
    assert latency.witnesses == tuple(f"b{i}" for i in range(99, 79, -1))
