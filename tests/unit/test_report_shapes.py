"""Distributions, rounds, waiting calls and drawings of the report, held against counting by hand."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from harness.report import svg
from harness.report.distributions import MOST_POINTS, distributions_of
from harness.report.frame import frame_of
from harness.report.html_shapes import distribution_section, rounds_section
from harness.report.rounds import MOST_ROUNDS, MOST_TENANTS, Flow, flows_of
from harness.report.series import series_of
from harness.report.summary import summarise
from tests.unit.report_trials import HOSTILE, MS, call, manifest, profile, random_rows, story_trial, write


def test_a_distribution_ends_at_the_served_share_and_never_falls(tmp_path: Path) -> None:
    names = ["a", "b", "c"]
    trial = write(tmp_path, random_rows(5, names, 400), manifest(profile(names, ["a"])))
    frame = frame_of(trial)
    drawn = distributions_of(trial, frame)
    shares = {(row.tenant, row.phase): row.served_share for row in summarise(trial).rows if row.kind == "tenant"}
    assert len(drawn.scale_ms) == MOST_POINTS
    for one in drawn.spreads:
        assert [curve.phase for curve in one.answered] == ["calm", "burst"]
        for curve in (*one.answered, *one.queued):
            assert list(curve.shares) == sorted(curve.shares)
        for curve in one.answered:
            assert curve.shares[-1] == pytest.approx(shares[one.tenant, curve.phase], abs=1e-5)
        assert all(curve.shares[-1] == 1 for curve in one.queued)


def test_a_distribution_by_hand(tmp_path: Path) -> None:
    """Of four calls one is served after 200 ms, one after 1.2 s, one gives up after its 2 s, and one is refused."""
    rows = [
        call(0, "a", 0, 5_000),
        call(0, "a", 1, 5_100, wait_ms=1_000),
        call(0, "a", 2, 5_200, "abandoned", wait_ms=2_000),
        call(0, "a", 3, 5_300, "throttled", queue_wait_ns=None),
    ]
    trial = write(tmp_path, rows, manifest(profile(["a"], ["a"])))
    drawn = distributions_of(trial, frame_of(trial))
    (spread,) = drawn.spreads
    (answered,), (queued,) = spread.answered, spread.queued

    def at(curve_shares: tuple[float, ...], ms: float) -> float:
        return curve_shares[int(np.searchsorted(drawn.scale_ms, ms, side="right")) - 1]

    assert (answered.samples, queued.samples) == (4, 3)
    assert [at(answered.shares, ms) for ms in (150, 250, 1_100, 1_400, 9_000)] == [0, 0.25, 0.25, 0.5, 0.5]
    assert [at(queued.shares, ms) for ms in (500, 1_200, 1_800, 2_400)] == pytest.approx(
        [1 / 3, 2 / 3, 2 / 3, 1], abs=1e-5
    )


def test_without_phases_the_whole_trial_is_one_curve(tmp_path: Path) -> None:
    trial = write(tmp_path, [call(0, "a", 0, 0)], manifest(profile(["a"], [], phases={})))
    (spread,) = distributions_of(trial, frame_of(trial)).spreads
    assert [curve.phase for curve in spread.answered] == ["whole"]


def test_without_calls_there_is_no_distribution(tmp_path: Path) -> None:
    trial = write(tmp_path, [], manifest(profile(["a"], [])))
    assert distribution_section(distributions_of(trial, frame_of(trial)), [0]) == ""


def replanned(depth: int, width: int = 2) -> list[dict[str, object]]:
    """One original call, refused; each refused call leads to `width` more, `depth` rounds deep; the last are served."""
    rows, seq, level = [], 0, [None]
    for number in range(depth + 1):
        after = []
        for parent in level:
            for _ in range(width if number else 1):
                outcome = "served" if number == depth else "throttled"
                rows.append(call(0, "loop", seq, 5_000 + seq, outcome, round=number, parent=parent, run=0))
                after.append(f"0.{seq}")
                seq += 1
        level = after
    return rows


def test_rounds_by_hand(tmp_path: Path) -> None:
    trial = write(tmp_path, [*replanned(3), call(1, "calm", 0, 0)], manifest(profile(["loop", "calm"], ["calm"])))
    flows, left_out = flows_of(trial)
    assert [flow.tenant for flow in flows] == ["loop"]
    assert left_out == 0
    told = [(one.number, one.calls, one.refused, one.served, one.replanned, one.led_to) for one in flows[0].rounds]
    assert told == [(0, 1, 1, 0, 1, 2), (1, 2, 2, 0, 2, 4), (2, 4, 4, 0, 4, 8), (3, 8, 0, 8, 0, 0)]
    assert (flows[0].traced, flows[0].cut, flows[0].rounds[0].growth) == (True, False, 2.0)


def test_rounds_are_conserved_and_bounded(tmp_path: Path) -> None:
    names = [f"t{i}" for i in range(6)]
    rows = random_rows(3, names, 200)
    rows.append(call(0, "t0", 999, 9_000, round=MOST_ROUNDS + 5))
    trial = write(tmp_path, rows, manifest(profile(names, [])))
    flows, left_out = flows_of(trial)
    assert (len(flows), left_out) == (MOST_TENANTS, 2)
    for flow in flows:
        mine = trial.calls.tenant == trial.tenants.index(flow.tenant)
        assert sum(one.calls for one in flow.rounds) == np.count_nonzero(mine)
        for one in flow.rounds:
            ends = (one.served, one.refused, one.abandoned, one.failed, one.held_back, one.other)
            assert sum(ends) == one.calls
            assert sum(number for _, number in svg.parts_of(one)) == one.calls
    cut = next(flow for flow in flows if flow.tenant == "t0")
    assert (cut.cut, len(cut.rounds), cut.traced) == (True, MOST_ROUNDS + 1, False)
    text = rounds_section(flows, left_out)
    assert "2 more tenants re-planned" in text
    assert f"Rounds from {MOST_ROUNDS} on are counted together" in text
    assert "does not say which call led to which" in text


def test_waiting_calls_are_those_that_wait_at_each_instant(tmp_path: Path) -> None:
    """The mean of a bin, against looking at every millisecond of it."""
    rows = random_rows(11, ["a", "b"], 60)
    trial = write(tmp_path, rows, manifest(profile(["a", "b"], [])))
    series = series_of(trial, frame_of(trial))
    calls = trial.calls
    edges = [*series.starts_s, series.end_s]
    for place, line in enumerate(series.lines):
        mine = (calls.tenant == place) & (calls.sent_ns >= 0) & (calls.queue_wait_ns >= 0)
        begins, ends = calls.sent_ns[mine] / 1e6, (calls.sent_ns[mine] + calls.queue_wait_ns[mine]) / 1e6
        for number, told in enumerate(line.waiting):
            at = np.arange(edges[number] * 1e3, edges[number + 1] * 1e3) + 0.5
            level = ((begins[:, None] <= at) & (at < ends[:, None])).sum(axis=0).mean()
            assert told == pytest.approx(level, abs=0.15)


def test_a_tenant_whose_waits_are_not_told_has_no_waiting_calls_rather_than_none_waiting(tmp_path: Path) -> None:
    rows = [call(0, "a", i, i * 100, queue_wait_ns=None) for i in range(20)]
    trial = write(tmp_path, rows, manifest(profile(["a"], [])))
    (line,) = series_of(trial, frame_of(trial)).lines
    assert set(line.waiting) == {None}
    assert any(line.served_per_s)


def parsed(text: str) -> ElementTree.Element:
    assert "nan" not in text
    assert "inf" not in text
    return ElementTree.fromstring(text)


@pytest.mark.parametrize("tenant", HOSTILE)
def test_drawings_are_whole_and_their_names_only_text(tmp_path: Path, tenant: str) -> None:
    rows = [{**row, "tenant": tenant} for row in replanned(2)]
    trial = write(tmp_path, rows, manifest(profile([tenant], [tenant])))
    (flow,), _ = flows_of(trial)
    drawn = distributions_of(trial, frame_of(trial))
    lane = svg.Lane(tenant, (("open", 1.0, 2.0), (tenant, 2.0, 2.0), ("open", 3.0, 99.0)))
    texts = [
        svg.flow(flow),
        svg.curves(drawn.spreads[0].answered, drawn.scale_ms, tenant, 3),
        svg.lanes([lane], 5.0, [(tenant, 0.0, 5.0)]),
        svg.lanes([lane], 0.0, []),
    ]
    for text in texts:
        root = parsed(text)
        assert root.get("role") == "img"
        assert root.get("aria-label")
        assert {one.tag for one in root.iter()} <= {"svg", "rect", "line", "path", "text", "title", "defs", "pattern"}


def test_a_flow_of_nothing_is_drawn_too() -> None:
    assert parsed(svg.flow(Flow("a", (), False, False))).get("role") == "img"


def test_the_sections_say_in_words_what_they_draw(tmp_path: Path) -> None:
    trial = story_trial(tmp_path)
    text = distribution_section(distributions_of(trial, frame_of(trial)), [0, 4])
    assert "Answered at all: 100.0 % of 32 in calm, 75.0 % of 32 in burst." in text
    assert 'aria-label="alice: answered within. calm, 32 calls: 0 % within' in text
    assert "burst</span>" in text


def test_the_scale_bears_any_duration(tmp_path: Path) -> None:
    rows = [call(0, "a", i, 5_000, done_ns=5_000 * MS + late) for i, late in enumerate((0, 1, 10**15))]
    trial = write(tmp_path, rows, manifest(profile(["a"], [])))
    drawn = distributions_of(trial, frame_of(trial))
    assert np.isfinite(drawn.scale_ms).all()
    parsed(svg.curves(drawn.spreads[0].answered, drawn.scale_ms, "a", 0))
