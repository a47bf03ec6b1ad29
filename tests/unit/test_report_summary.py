"""The table and the series against a naive computation, call by call."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from harness.ledger.outcomes import REFUSED, TERMINAL
from harness.ledger.reader import LedgerError
from harness.report.frame import frame_of
from harness.report.series import MOST_BINS, bin_width_ns, series_of
from harness.report.summary import NO_PHASE, WHOLE, Row, charted, summarise
from tests.unit.report_trials import MS, call, manifest, profile, random_rows, story_trial, write

NAMES = ["a", "b", "c"]


def last_attempts(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    last: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["call"] not in last or row["attempt"] > last[row["call"]]["attempt"]:
            last[row["call"]] = row
    return list(last.values())


def phase_of(row: dict[str, Any]) -> str:
    due_s = row["due_ns"] / 1e9
    return "calm" if due_s < 4 else "burst" if due_s < 8 else NO_PHASE


def naive_quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def check_row(row: Row, calls: list[dict[str, Any]], attempts: int) -> None:
    counted = {outcome: sum(c["outcome"] == outcome for c in calls) for outcome in TERMINAL}
    assert row.outcomes == {outcome: n for outcome, n in counted.items() if n}
    assert row.due == len(calls)
    assert row.offered == row.due - counted["held_back"] - counted["dropped"]
    assert row.refused == sum(counted[outcome] for outcome in REFUSED)
    named = row.served + row.refused + row.abandoned + row.failed + row.held_back + row.dropped + row.open + row.other
    assert named == row.due
    assert row.replans == sum(c["round"] > 0 for c in calls)
    assert row.attempts == attempts
    served = [c for c in calls if c["outcome"] == "served"]
    waits = [c["queue_wait_ns"] / 1e6 for c in served if "queue_wait_ns" in c]
    everyone = waits + [2000.0] * counted["abandoned"]
    latencies = [(c["done_ns"] - c["due_ns"]) / 1e6 for c in served]
    for times, values in ((row.wait, waits), (row.wait_all, everyone), (row.latency, latencies)):
        assert times.samples == len(values)
        if not values:
            assert times.mean_ms is None
            assert times.p95_ms is None
            continue
        assert times.mean_ms == pytest.approx(fmean(values))
        for share, got in ((0.5, times.p50_ms), (0.95, times.p95_ms), (0.99, times.p99_ms)):
            assert got == pytest.approx(naive_quantile(values, share))


def test_every_row_agrees_with_a_count_by_hand(tmp_path: Path) -> None:
    rows = random_rows(3, NAMES, 150)
    trial = write(tmp_path, rows, manifest(profile(NAMES, ["a", "b"])))
    calls = last_attempts(rows)
    summary = summarise(trial)
    assert summary.calls == len(calls) == 450
    phases = ["calm", "burst", NO_PHASE, WHOLE]
    assert [(row.tenant, row.phase) for row in summary.rows] == [
        (name, phase) for name in [*NAMES, "ordinary"] for phase in phases
    ]
    for row in summary.rows:
        who = {"a", "b"} if row.kind == "pooled" else {row.tenant}
        mine = [c for c in calls if c["tenant"] in who and (row.phase in (WHOLE, phase_of(c)))]
        ids = {c["call"] for c in mine}
        check_row(row, mine, sum(r["attempt"] > 0 for r in rows if r["call"] in ids))


def test_tenants_beyond_the_most_share_a_row_and_none_is_lost(tmp_path: Path) -> None:
    names = [f"t{i}" for i in range(9)]
    rows = [call(i, name, seq, seq * 10) for i, name in enumerate(names) for seq in range(i + 1)]
    trial = write(tmp_path, rows, manifest(profile(names, [])))
    summary = summarise(trial, keep={"t0"}, most=3)
    whole = {row.tenant: row.due for row in summary.whole()}
    assert whole == {"t0": 1, "t7": 8, "t8": 9, "6 other tenants": 45 - 18}
    assert summary.left_out == 6
    assert [row.kind for row in summary.whole()] == ["tenant", "tenant", "tenant", "rest"]


def test_an_empty_ledger_has_rows_and_no_numbers(tmp_path: Path) -> None:
    trial = write(tmp_path, [], manifest(profile(["a"], [])))
    row = summarise(trial).rows[-1]
    assert (row.due, row.served_share, row.replan_share, row.latency.mean_ms) == (0, None, None, None)
    series = series_of(trial, frame_of(trial))
    assert set(series.lines[0].wait_ms) == {None}


def test_time_scale_shrinks_phases_and_patience(tmp_path: Path) -> None:
    rows = [call(0, "a", 0, 900), call(0, "a", 1, 1_500, "abandoned")]
    trial = write(tmp_path, rows, manifest(profile(["a"], []), time_scale=0.25))
    frame = frame_of(trial)
    assert frame.phases == (("calm", 0, 1_000 * MS), ("burst", 1_000 * MS, 2_000 * MS))
    assert frame.duration_ns == 2_500 * MS
    burst = next(row for row in summarise(trial).rows if row.phase == "burst")
    assert burst.wait_all.mean_ms == 500


def test_waits_that_the_service_never_tells_are_not_made_up(tmp_path: Path) -> None:
    rows = [call(0, "a", 0, 0, queue_wait_ns=None), call(0, "a", 1, 10, "abandoned", queue_wait_ns=None)]
    row = summarise(write(tmp_path, rows, manifest(profile(["a"], [])))).rows[-1]
    assert row.wait.samples == row.wait_all.samples == 0
    assert row.latency.samples == 1


def test_percentiles_are_firm_from_the_stated_samples(tmp_path: Path) -> None:
    def row(n: int) -> Row:
        rows = [call(0, "a", seq, seq) for seq in range(n)]
        return summarise(write(tmp_path / str(n), rows, manifest(profile(["a"], [])))).rows[-1]

    assert [(row(n).latency.p95_firm, row(n).latency.p99_firm) for n in (299, 300, 999, 1000)] == [
        (False, False), (True, False), (True, False), (True, True),
    ]  # fmt: skip


def test_a_manifest_without_a_readable_profile_is_one_clear_error(tmp_path: Path) -> None:
    document = profile(["a"], [])
    del document["duration"]
    trial = write(tmp_path, [], manifest(document))
    with pytest.raises(LedgerError, match=r"manifest\.json: the profile in it cannot be read \(no 'duration'\)"):
        summarise(trial)


def test_series_hold_every_call_once(tmp_path: Path) -> None:
    rows = random_rows(5, NAMES, 200)
    trial = write(tmp_path, rows, manifest(profile(NAMES, ["a"])))
    calls = last_attempts(rows)
    series = series_of(trial, frame_of(trial))
    ends = np.append(series.starts_s[1:], series.end_s)
    lengths = ends - np.array(series.starts_s)
    assert len(series.starts_s) <= MOST_BINS
    for line in series.lines:
        mine = [c for c in calls if c["tenant"] == line.tenant]
        sent = sum(c["outcome"] not in ("held_back", "dropped") for c in mine)
        assert float(np.array(line.offered_per_s) @ lengths) == pytest.approx(sent, abs=0.01)
        served = [c for c in mine if c["outcome"] == "served"]
        assert float(np.array(line.served_per_s) @ lengths) == pytest.approx(len(served), abs=0.01)
        first = [c for c in mine if c["due_ns"] / 1e9 < series.width_s]
        assert line.replan_share[0] == pytest.approx(sum(c["round"] > 0 for c in first) / len(first), abs=1e-4)


def test_bins_are_bounded_whatever_the_length() -> None:
    for span_s in (0.001, 1, 59, 120, 3_600, 86_400, 30 * 86_400, 10**9):
        span = int(span_s * 1e9)
        assert span / bin_width_ns(span) <= MOST_BINS
    assert bin_width_ns(120 * 10**9) == 500 * MS


def test_the_last_bin_is_never_a_sliver(tmp_path: Path) -> None:
    trial = write(tmp_path, [call(0, "a", 0, 9_850)], manifest(profile(["a"], [])))
    series = series_of(trial, frame_of(trial))
    assert series.width_s == 0.5
    assert series.end_s == pytest.approx(10.05, abs=1e-5)
    assert series.end_s - series.starts_s[-1] == pytest.approx(0.55, abs=1e-5)


def test_few_calls_get_wide_bins(tmp_path: Path) -> None:
    widths = []
    for calls in (40, 400, 4_000):
        rows = [call(0, "a", seq, seq * 9_700 / calls) for seq in range(calls)]
        trial = write(tmp_path / str(calls), rows, manifest(profile(["a"], [])))
        widths.append(series_of(trial, frame_of(trial)).width_s)
    assert widths == [0.5, 0.1, 0.05]


def test_the_hurt_and_the_loud_get_a_chart(tmp_path: Path) -> None:
    names = [f"t{i:02}" for i in range(20)]
    rows = []
    for i, name in enumerate(names):
        loud = 200 if name == "t19" else 0
        for seq in range(10 + i + loud):
            hurt = name == "t03" and seq >= 5
            rows.append(call(i, name, seq, 1_000 if seq < 5 else 5_000, "abandoned" if hurt else "served"))
    trial = write(tmp_path, rows, manifest(profile(names, names[:10])))
    chosen = charted(summarise(trial))
    assert {"t03", "t19"} <= chosen
    assert len(chosen) == 7
    lines = [line.tenant for line in series_of(trial, frame_of(trial), chosen).lines]
    assert lines == [*sorted(chosen), "13 other tenants"]


def test_the_story_hurts_alice(tmp_path: Path) -> None:
    rows = {(row.tenant, row.phase): row for row in summarise(story_trial(tmp_path)).rows}
    assert rows["alice", "calm"].served_share == 1
    assert rows["alice", "burst"].served_share == 0.75
    assert rows["loop", WHOLE].held_back == 24
