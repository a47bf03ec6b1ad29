"""The capacity layer's part of the report, held against the raw rows that it is made of."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.checks.judge import judge_all
from harness.ledger.reader import ARRIVALS, CALLS, DECISIONS, rows_of
from harness.report import write_reports
from harness.report.capacity import (
    Bulk,
    Capacity,
    ClassRow,
    Transition,
    capacity_json,
    capacity_of,
    lines_of,
    most_in_bins,
)
from harness.report.capacity_html import capacity_section
from harness.report.capacity_text import attempts, show_capacity, variants_table
from harness.report.cost import CostRow, Costs, SizeRow
from harness.report.frame import frame_of
from harness.report.html import page
from harness.report.json_report import report_json
from harness.report.series import series_of
from harness.report.summary import Times
from tests.unit.capacity_trials import trial
from tests.unit.report_trials import HOSTILE, story_trial
from tests.unit.test_cli import overload
from tests.unit.test_report_terminal import plain_console, read, snapshot, terminal_console

REFUSED = {"throttled", "expired", "budget_exhausted", "dependency_unavailable"}


def rows(mine, name):
    return list(rows_of(mine.folder / name))


@pytest.fixture(scope="module")
def decisions(tmp_path_factory):
    """Every kind of decision in one trial."""
    return trial("decisions", tmp_path_factory.mktemp("decisions"))


def test_counts_are_those_of_the_raw_rows(decisions):
    made = capacity_of(decisions)
    raw = rows(decisions, DECISIONS)
    arrivals = rows(decisions, ARRIVALS)
    ends = Counter(
        row["outcome"] for row in raw if row["kind"] == "step" and row["outcome"] not in ("queued", "admitted")
    )
    assert Counter({k: v for row in made.classes for k, v in row.outcomes.items()}) <= ends
    assert sum(sum(row.outcomes.values()) for row in made.classes) == sum(ends.values())
    refused = Counter(
        (row["outcome"], row["reason"]) for row in raw if row["kind"] in ("step", "batch") and row["outcome"] in REFUSED
    )
    told: Counter = Counter()
    for _, outcome, reason, number in made.refusals:
        told[outcome, reason] += number
    assert told == refused
    assert made.expired == ends["expired"] > 0
    assert made.retries == sum(row["kind"] == "retry" and row["outcome"] == "scheduled" for row in raw) > 0
    assert made.read_backs == sum(row["operation"] == "readback" for row in arrivals) > 0
    reached = Counter((row["run"], row["step"]) for row in arrivals if row["operation"] != "readback")
    assert made.steps == sum(made.attempts.values())
    assert {n: k for n, k in made.attempts.items() if n} == Counter(reached.values())
    assert [(one.t_ns, one.dependency) for one in made.transitions] == [
        (row["t_ns"], row["dependency"]) for row in raw if row["kind"] == "circuit"
    ]
    assert sum(one.arrivals for one in made.bulkheads) == sum(reached.values())
    assert all(one.limit is None or one.peak <= one.limit for one in made.bulkheads)
    assert made.peak <= made.ceiling


def test_latency_of_a_class_is_what_its_callers_felt(tmp_path):
    mine = trial("v02", tmp_path)
    made = {row.traffic_class: row for row in capacity_of(mine).classes}
    assert list(made) == ["interactive", "approval_resume", "autonomous", "maintenance"]
    opened = {row["run"]: row["traffic_class"] for row in rows(mine, DECISIONS) if row["outcome"] == "opened"}
    felt = [
        row["done_ns"] - row["due_ns"]
        for row in rows(mine, CALLS)
        if row.get("action") == "submit" and row["outcome"] == "served" and opened[row["run_id"]] == "interactive"
    ]
    latency = made["interactive"].latency
    assert (latency.samples, latency.p95_firm) == (len(felt), True)
    assert latency.p99_ms == pytest.approx(float(np.quantile(felt, 0.99)) / 1e6)
    assert made["interactive"].wait.samples == made["interactive"].steps
    assert sum(row.runs for row in made.values()) == len(opened)


def test_a_call_after_its_deadline_is_counted(tmp_path):
    def late(found):
        deadline = next(row for row in rows(whole, DECISIONS) if row.get("run") == found[0]["run"])["deadline_ns"]
        found[0]["t_ns"] = deadline

    whole = trial("v06", tmp_path / "whole")
    assert capacity_of(whole).started_late == 0
    assert capacity_of(trial("v06", tmp_path, arrivals=late)).started_late == 1


def test_a_trial_without_a_capacity_layer_has_no_such_part(tmp_path):
    mine = story_trial(tmp_path)
    assert capacity_of(mine) is None
    assert report_json(mine, [], series=True)["capacity"] is None
    assert 'id="capacity"' not in page(mine, [])


def test_evidence_that_is_withheld_is_left_out_and_breaks_nothing(tmp_path):
    made = capacity_of(trial("v08", tmp_path / "a", arrivals=None))
    assert (made.attempts, made.bulkheads, made.peak) == ({0: made.steps}, (), 0)
    made = capacity_of(trial("v08", tmp_path / "b", decisions=None))
    assert (made.refusals, made.transitions, made.retries) == ((), (), 0)
    assert made.bulkheads
    assert capacity_of(trial("v08", tmp_path / "c", decisions=None, arrivals=lambda found: [])) is not None
    console, stream = plain_console()
    show_capacity(made, console)
    assert "circuits: none moved" in read(stream)


def test_over_time_a_circuit_that_is_open_lets_nothing_in(tmp_path):
    mine = trial("v08", tmp_path)
    series = series_of(mine, frame_of(mine))
    lines = {line.name: line for line in lines_of(mine, series)}
    billing = lines["billing reads"]
    assert len(billing.in_use) == len(billing.limit) == len(series.starts_s)
    assert {state for state, _, _ in billing.circuit} == {"open", "half-open"}
    assert lines["customer reads"].circuit == ()
    for state, from_s, to_s in billing.circuit:
        inside = [
            used
            for used, start in zip(billing.in_use, series.starts_s, strict=True)
            if state == "open" and start > from_s + 0.05 and start + series.width_s < to_s
        ]
        assert not any(inside)


def test_a_limit_that_adapts_is_drawn_as_it_moved(tmp_path):
    mine = trial("adaptive", tmp_path)
    (line,) = lines_of(mine, series_of(mine, frame_of(mine)))
    assert (min(line.limit), max(line.limit)) == (3, 8)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 30)), max_size=12))
def test_most_in_bins_is_the_most_at_any_instant_of_each_bin(spans):
    begins = np.array([begin for begin, _ in spans], dtype=np.int64)
    ends = np.array([begin + length for begin, length in spans], dtype=np.int64)
    edges = np.arange(0, 151, 15)
    held = [sum(b <= at < e for b, e in zip(begins, ends, strict=True)) for at in range(150)]
    assert most_in_bins(begins, ends, edges) == tuple(max(held[at : at + 15]) for at in range(0, 150, 15))


def test_the_document_says_the_same_and_is_json(decisions):
    made = capacity_of(decisions)
    document = json.loads(orjson.dumps(capacity_json(made)))
    assert list(document) == [
        "runs", "steps", "classes", "refusals", "refused_runs", "cost", "expired", "attempts", "retries",
        "circuits", "circuits_left_out",
        "bulkheads", "in_flight",
    ]  # fmt: skip
    assert document["expired"] == {"steps": made.expired, "started_late": 0}
    assert document["retries"]["tokens_spent"] == made.retries
    report = report_json(decisions, judge_all(decisions), series=True)
    assert report["capacity"]["steps"] == made.steps
    assert set(report["series"]["bulkheads"][0]) == {"name", "in_use", "waiting", "limit", "circuit"}


STORY = Capacity(
    classes=(
        ClassRow(
            "interactive", 114, 456, {"served": 350, "dependency_unavailable": 98, "failed": 8},
            Times(350, 40.1, 31.2, 300.4, 304.0), Times(456, 0.3, 0.0, 1.5, 12.0),
        ),
        ClassRow(
            "autonomous", 20, 80, {"throttled": 30, "served": 28, "expired": 22},
            Times(0), Times(80, 61.0, 40.0, 205.0, 310.0),
        ),
    ),
    refusals=(
        ("interactive", "dependency_unavailable", "circuit_open", 98),
        ("autonomous", "throttled", "tenant_queue_full", 30),
        ("autonomous", "expired", "deadline", 22),
    ),
    expired=22, started_late=1, attempts={0: 128, 1: 392, 2: 12, 3: 4}, retries=20,
    denied={"no_retry_tokens": 5, "circuit_open": 3}, read_backs=2,
    transitions=(
        Transition(1_120_000_000, "billing", "open", "failures"),
        Transition(1_520_000_000, "billing", "half-open", "cooled_down"),
        Transition(1_600_000_000, "billing", "closed", ""),
    ),
    left_out=0,
    bulkheads=(Bulk("billing", "read", 40, 12, 8, 300, 8, 0), Bulk("billing", "write", None, 2, 0, 128, 0, 120)),
    ceiling=50, peak=14, steps=536, runs=134,
)  # fmt: skip


COSTS = Costs(
    tenants=(
        CostRow("crowd", 1, {"sessions": 325}, 1, 1_000, 100, 900.0),
        CostRow("a tenant with a long name", 412, {"tokens": 337, "deadline": 12}, 40, 1_648_000, 2_120_300, -31_250.5),
        CostRow("holder", 2, {}, 2, 2_000, 0, None),
    ),
    sizes=(SizeRow("short", 413, 337, Times(413, 3.0, 0.0, 12.0, 40.0)), SizeRow("batch", 2, 325, Times(2))),
    most={"sessions": 20, "memory": 10, "tools": 60, "queue": 30}, oldest_ns=1_250_000_000, left_out=3,
)  # fmt: skip
COSTLY = replace(STORY, cost=COSTS, refused_runs=(("chat_turn", "throttled", "tokens", 337),))


@pytest.mark.parametrize("width", [80, 200])
def test_the_terminal_snapshot_of_costs(width):
    console, stream = terminal_console(width, color=False)
    show_capacity(COSTLY, console)
    text = stream.getvalue().partition("Cost")
    snapshot(f"cost_{width}.txt", text[1] + text[2].partition("refused steps")[0])
    assert max(map(len, stream.getvalue().splitlines())) <= width


def test_variants_of_runs_count_the_runs_refused_where_there_are_any():
    console, stream = terminal_console(200, color=False)
    variants_table([("base", "PASS", STORY), ("dear", "FAIL", COSTLY)], console)
    lines = stream.getvalue().splitlines()
    assert "runs" in lines[0]
    place = lines[1].split().index("refused", 5)
    assert [line.split()[place] for line in lines[2:]] == ["0", "337"]


@pytest.mark.parametrize("width", [80, 200])
def test_the_terminal_snapshot(width):
    console, stream = terminal_console(width, color=False)
    show_capacity(STORY, console)
    text = stream.getvalue()
    snapshot(f"capacity_{width}.txt", text)
    assert max(map(len, text.splitlines())) <= width


def test_the_page_has_every_table_and_the_data_of_its_charts(decisions):
    html = page(decisions, judge_all(decisions))
    for title in ("By traffic class", "In use against limits", "Refused, and why", "Attempts and retries", "Circuits"):
        assert f"<h3>{title}</h3>" in html
    assert 'id="bulkheads"' in html
    data = json.loads(html.split('id="data">')[1].split("</script>")[0])
    assert {one["name"] for one in data["bulkheads"]} >= {"customer reads", "payment writes"}


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_and_reasons_stay_text(decisions, text):
    made = capacity_of(decisions)
    bad = replace(
        made,
        classes=(replace(made.classes[0], traffic_class=text),),
        refusals=((text, text, text, 3),),
        refused_runs=((text, text, text, 3),),
        cost=replace(
            COSTS, tenants=(CostRow(text, 1, {text: 2}, 1, 1, 1, 1.0),), sizes=(SizeRow(text, 1, 1, Times(0)),)
        ),
        denied={text: 2},
        transitions=(replace(made.transitions[0], dependency=text, reason=text),),
        bulkheads=(Bulk(text, "read", 1, 1, 0, 1, 0, 0),),
    )
    html = capacity_section(bad)
    assert "<img" not in html
    assert "\x1b" not in html
    assert "\u202e" not in html
    console, stream = plain_console()
    show_capacity(bad, console)
    assert "\x1b" not in read(stream)


def test_attempts_in_words():
    assert attempts({0: 102, 1: 354}) == "0 for 102, 1 for 354"
    assert attempts({}) == "no step"


def test_simulating_runs_shows_the_capacity_layer_and_no_table_of_the_worked_example(tmp_path):
    done = overload("simulate", "profiles/verification/v09.yaml", "--reports", tmp_path)
    assert done.returncode == 0
    assert "ordinary" not in done.stdout
    assert re.search(r"^Capacity  \d+ runs, \d+ steps$", done.stdout, re.MULTILINE)
    done = overload("simulate", "profiles/verification/v09.yaml", "--ensemble", "2", "--reports", tmp_path / "no")
    assert (done.returncode, "--ensemble draws the phases" in done.stderr) == (2, True)


def test_variants_of_runs_are_compared_by_what_means_something_for_them(tmp_path):
    text = Path("profiles/verification/v09.yaml").read_text() + "\nvariants: {other: {seed: 7}}\n"
    (tmp_path / "two.yaml").write_text(text)
    done = overload("simulate", tmp_path / "two.yaml", "--reports", tmp_path)
    head, base, other = done.stdout.splitlines()[:3]
    assert head.split() == [
        "row", "verdict", "steps", "served", "refused", "expired", "retry_tokens", "most_in_flight", "ceiling",
    ]  # fmt: skip
    assert (base.split()[:2], other.split()[:2]) == (["base", "PASS"], ["other", "PASS"])
    done = overload("simulate", tmp_path / "two.yaml", "--reports", tmp_path, "--json")
    assert [one["variant"] for one in json.loads(done.stdout)["trials"]] == [None, "other"]


def test_both_reports_are_written(decisions, tmp_path):
    written = write_reports(replace(decisions, folder=decisions.folder), [])
    assert b'"capacity"' in written["json"].read_bytes()
