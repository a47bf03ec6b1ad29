"""What a report shows of the evidence itself: witnesses with their calls, the decision log, costs, plan and target."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from harness.checks.tiers import ADD, Tier
from harness.checks.verdict import Finding, Verdict, Word
from harness.ledger.reader import CALLS, DECISIONS, Trial, rows_of
from harness.ledger.stalls import STALLS
from harness.report import decision_log
from harness.report.capacity import capacity_of, rows_beside
from harness.report.capacity_html import capacity_section
from harness.report.capacity_text import show_capacity
from harness.report.decision_log import FIRST, MOST_AROUND, MOST_OF_ONE, NEIGHBOURS, log_data, log_of
from harness.report.html import page
from harness.report.html_log import log_section
from harness.report.html_plan import plan_section
from harness.report.html_witnesses import witness_anchors, witness_section
from harness.report.stories import MOST_LED_TO, MOST_STORIES, stories_of
from harness.report.summary import summarise
from tests.unit.capacity_trials import trial as capacity_trial
from tests.unit.report_trials import HOSTILE, call, manifest, profile, story_trial, story_verdicts, write
from tests.unit.test_report_html import Elements
from tests.unit.test_report_terminal import plain_console, read


def decided(trial: Trial, rows: list[dict[str, Any]]) -> Trial:
    (trial.folder / DECISIONS).write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return trial


def decision(number: int, outcome: str = "served", **more: Any) -> dict[str, Any]:
    return {
        "t_ns": number,
        "call": f"0.{number}",
        "attempt_id": f"0.{number}.1",
        "tenant": "a",
        "outcome": outcome,
    } | more


def small(folder: Path, calls: int = 1) -> Trial:
    return write(folder, [call(0, "a", i, i) for i in range(calls)], manifest(profile(["a"], [])))


# The decision log


def test_a_small_log_is_whole(tmp_path: Path) -> None:
    trial = decided(small(tmp_path), [decision(i) for i in range(20)])
    log = log_of(trial, [])
    assert log is not None
    assert log.whole
    assert "All 20 decisions of this trial." in log_section(log)


def test_a_large_log_is_a_sample_and_says_so(tmp_path: Path) -> None:
    rows = [decision(i, "throttled" if i % 3 else "served") for i in range(5_000)]
    log = log_of(decided(small(tmp_path), rows), ["0.2000", "0.4000.1"])
    assert log is not None
    around = {place + off for place in (2_000, 4_000) for off in range(-NEIGHBOURS, NEIGHBOURS + 1)}
    assert {entry.place for entry in log.entries} == {*range(FIRST), *around}
    assert {entry.place for entry in log.entries if entry.named} == {2_000, 4_000}
    assert log.outcomes == {"throttled": 3_333, "served": 1_667}
    assert list(log.of_witness) == ["0.2000", "0.4000.1"]
    said = log_section(log)
    assert f"A sample: 514 of 5,000 decisions: the first {FIRST}, the 2 that are about witnesses" in said
    assert "In all: 3,333 throttled, 1,667 served." in said


def test_what_a_log_leaves_out_about_witnesses_is_counted(tmp_path: Path) -> None:
    rows = [decision(i) for i in range(FIRST)] + [decision(7, t_ns=i) for i in range(2_000)]
    log = log_of(decided(small(tmp_path), rows), ["0.7"])
    assert log is not None
    assert len(log.of_witness["0.7"]) == MOST_OF_ONE
    assert log.more_of["0.7"] == 2_001 - MOST_OF_ONE
    assert len(log.entries) <= FIRST + MOST_AROUND
    assert sum(entry.named for entry in log.entries) + log.around_left_out == 2_001
    assert f"{log.around_left_out:,} more about witnesses are left out." in log_section(log)


def test_a_huge_log_is_read_at_its_beginning_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_log, "MOST_BYTES", 1_000)
    log = log_of(decided(small(tmp_path), [decision(i) for i in range(3 * FIRST)]), ["0.1400"])
    assert log is not None
    assert (log.total, log.cut, log.whole, log.of_witness) == (FIRST, True, False, {})
    assert f"A sample: the first {FIRST} decisions. The log is larger than" in log_section(log)


def test_without_a_log_the_page_says_what_to_add(tmp_path: Path) -> None:
    trial = small(tmp_path)
    assert log_of(trial, []) is None
    text = Elements(page(trial, [])).text
    assert f"To see them, add {ADD[Tier.DECISIONS]}." in text


def test_the_data_of_the_log_holds_each_text_once(tmp_path: Path) -> None:
    log = log_of(decided(small(tmp_path), [decision(i, reason="why") for i in range(50)]), ["0.3"])
    assert log is not None
    data = json.loads(orjson.dumps(log_data(log)))
    assert len(set(data["texts"])) == len(data["texts"])
    third = [data["texts"][place] for place in data["rows"][3][:-1]]
    assert third == ["0.000", "a", "served", "call", "0.3.1", "", "why", ""]
    assert [row[-1] for row in data["rows"][:5]] == [0, 0, 0, 1, 0]


# Witnesses


def family(folder: Path) -> Trial:
    """0.1 was refused and led to 0.2 and 0.3; 0.2 was tried twice, and led to more than are shown."""
    rows = [
        call(0, "a", 1, 0, "throttled", reason="queue_full"),
        call(0, "a", 2, 500, "failed", round=1, parent="0.1", run=1, retried=True),
        call(0, "a", 2, 500, "abandoned", round=1, parent="0.1", run=1, attempt=2, again_ns=700_000_000),
        call(0, "a", 3, 500, round=1, parent="0.1", run=1),
        *(call(0, "a", 10 + i, 900, round=2, parent="0.2", run=1) for i in range(MOST_LED_TO + 3)),
    ]
    trial = write(folder, rows, manifest(profile(["a"], [])))
    return decided(trial, [decision(1, "throttled"), decision(2, "queued"), decision(2, "expired"), decision(9)])


def test_a_witness_comes_with_its_parent_its_attempts_what_it_led_to_and_what_was_decided(tmp_path: Path) -> None:
    trial = family(tmp_path)
    log = log_of(trial, ["0.2", "0.1"])
    stories = stories_of(trial, ["0.2", "0.1", "0.2"], log)
    story = stories["0.2"]
    assert [(relation, row["call"], row["attempt"]) for relation, row in story.calls] == [
        ("led to this", "0.1", 1), ("this", "0.2", 1), ("this", "0.2", 2),
        *(("it led to", f"0.{10 + i}", 1) for i in range(MOST_LED_TO)),
    ]  # fmt: skip
    assert [row["outcome"] for row in story.decisions] == ["queued", "expired"]
    assert dict(story.left_out) == {"calls that it led to": 3}
    assert [row["call"] for relation, row in stories["0.1"].calls] == ["0.1", "0.2", "0.3"]


def test_each_witness_is_told_once_and_linked_from_every_verdict(tmp_path: Path) -> None:
    trial = family(tmp_path)
    verdicts = [Verdict(name, Word.FAIL, 1, 0, "", 1, "s", ("0.2", "nobody")) for name in ("one", "two")]
    stories = stories_of(trial, ["0.2", "nobody", "0.2"], log_of(trial, ["0.2"]))
    anchors = witness_anchors(verdicts, stories)
    assert anchors == [{"0.2": "w0-0"}, {"0.2": "w0-0"}]
    text = witness_section(verdicts, stories, anchors)
    assert text.count('id="w0-0"') == 1
    elements = Elements(text)
    assert "abandoned at" in elements.text
    assert "2 attempts" in elements.text
    assert "Not shown: 3 calls that it led to. They are in the ledger." in elements.text


def test_stories_are_bounded(tmp_path: Path) -> None:
    trial = small(tmp_path, MOST_STORIES + 50)
    assert len(stories_of(trial, [f"0.{i}" for i in range(MOST_STORIES + 50)], None)) == MOST_STORIES


def test_steps_runs_and_circuits_are_witnesses_too(tmp_path: Path) -> None:
    trial = capacity_trial("v08", tmp_path)
    step = next(row for row in rows_of(trial.folder / DECISIONS) if row.get("kind") == "step")
    ids = [f"{step['run']}/{step['step']}", step["run"], "billing", "nothing"]
    stories = stories_of(trial, ids, log_of(trial, ids), *rows_beside(trial))
    assert {id_: story.kind for id_, story in stories.items()} == {
        ids[0]: "step",
        ids[1]: "run",
        "billing": "dependency",
    }
    assert {row["step"] for row in stories[ids[0]].decisions} == {step["step"]}
    assert {row["step"] for row in stories[ids[0]].arrivals} == {step["step"]}
    assert {relation for relation, _ in stories[ids[0]].calls} == {"open", "submit"}
    assert {row["kind"] for row in stories["billing"].decisions} == {"circuit"}


# Refused runs, and costs


def test_refused_runs_and_costs_are_those_of_the_raw_rows(tmp_path: Path) -> None:
    trial = capacity_trial("cost_unwound", tmp_path)
    made = capacity_of(trial)
    assert made is not None
    assert made.cost is not None
    opens = [row for row in rows_of(trial.folder / CALLS) if row.get("action") == "open"]
    refused = Counter((row["outcome"], row["reason"]) for row in opens if row["outcome"] == "throttled")
    told: Counter[tuple[str, str]] = Counter()
    for who, outcome, reason, number in made.refused_runs:
        assert who in ("chat_turn", "tool_heavy", "deep_research")
        told[outcome, reason] += number
    assert told == refused
    assert made.cost.refused == sum(refused.values()) > 1_000
    rows = [row for row in rows_of(trial.folder / DECISIONS) if row.get("kind") == "cost"]
    assert sum(row.admitted for row in made.cost.tenants) == sum(row["outcome"] == "admitted" for row in rows)
    assert sum(row.used for row in made.cost.tenants) == sum(row["actual"] for row in rows if "actual" in row)
    assert made.cost.most["sessions"] == max(row["sessions"] for row in rows)
    assert sum(size.admitted for size in made.cost.sizes) == sum(row.admitted for row in made.cost.tenants)


def test_refused_runs_are_said_everywhere(tmp_path: Path) -> None:
    made = capacity_of(capacity_trial("cost_unwound", tmp_path))
    assert made is not None
    console, stream = plain_console()
    show_capacity(made, console)
    said = read(stream)
    assert re.search(r"^refused runs: \d+ chat_turn throttled \(tokens\), ", said, re.M)
    assert "refused: nothing" not in said
    assert re.search(r"^tenant +admitted +refused_at_sessions +refused_at_tokens ", said, re.M)
    text = Elements(capacity_section(made)).text
    assert "run chat_turn throttled tokens" in text
    assert "Cost of runs" in text
    assert "Most at once: 8 sessions" in text


def test_where_nothing_is_refused_that_is_said_of_runs_and_steps(tmp_path: Path) -> None:
    made = capacity_of(capacity_trial("v08", tmp_path))
    assert made is not None
    assert (made.refused_runs, made.cost) == ((), None)
    assert "Cost of runs" not in capacity_section(made)


def test_cost_rows_that_lack_everything_break_nothing(tmp_path: Path) -> None:
    def stripped(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        keep = ("t_ns", "part", "kind", "outcome")
        return [{key: row[key] for key in keep if key in row} if row.get("kind") == "cost" else row for row in rows]

    made = capacity_of(capacity_trial("cost_unwound", tmp_path, decisions=stripped))
    assert made is not None
    assert made.cost is not None
    assert [row.tenant for row in made.cost.tenants] == ["(not told)"]
    assert "(not told)" in capacity_section(made)


# What ran

LAG = {"p50_ns": 10**5, "p99_ns": 10**6, "max_ns": 10**7}


def test_the_plan_and_the_target_are_shown(tmp_path: Path) -> None:
    trial = story_trial(tmp_path)
    trial.manifest.update(
        plan={"alice": {"calm": 32, "burst": 32, "": 3}, "loop": {"calm": 16, "burst": 20}},
        target={"kind": "file", "name": "staging", "url": "https://staging.example"},
        evidence={"typed": True, "decisions": False},
        clock_domain="separate",
        clock={"samples": 9, "offset_ns": 1_000_000, "error_ns": 2_500_000},
        workers=[{"name": "w<1>", "host": "one", "calls": 100, "clock_error_ns": 1_000_000}],
        ended={"reason": "completed", "at_ns": 10**10, "stub_loop_lag": LAG},
        driver="live",
    )  # fmt: skip
    (trial.folder / STALLS).write_bytes(
        b'{"from_ns": -9000000, "to_ns": -1000000}\n{"from_ns": 1000000, "to_ns": 41000000}\n'
    )
    text = Elements(plan_section(trial, summarise(trial))).text
    for said in (
        "alice 32 32 32 32 67 64", "loop 16 16 20 120 36 136", "staging https://staging.example",
        "typed outcomes told apart, and how long calls waited yes",
        f"decisions the service's own log, joined by attempt no add {ADD[Tier.DECISIONS]}",
        "separate: the service has a clock of its own", "clock is good to 2.5 ms", "w<1> one 100 1.0",
        "the stub's loop lag median 0.10 ms, p99 1.0 ms, most 10.0 ms",
        "the stub stood still 1 times, 40.0 ms in all, 40.0 ms at most",
        "calls sent late median 0.0 ms", "patience: 2s",
    ):  # fmt: skip
        assert said in text, said


def test_the_tiers_of_the_stub_are_no_news(tmp_path: Path) -> None:
    trial = story_trial(tmp_path)
    assert "lets be seen" not in plan_section(trial, summarise(trial))


@pytest.mark.parametrize("broken", [{"plan": {"alice": {"calm": "x"}}}, {"ended": {"at_ns": "x"}}, {"workers": [3]}])
def test_a_manifest_that_was_edited_breaks_nothing(tmp_path: Path, broken: dict[str, Any]) -> None:
    trial = story_trial(tmp_path)
    summary = summarise(trial)
    trial.manifest.update(broken)
    assert "What" not in plan_section(trial, summary)


# All of it, hostile and large


def hostile_trial(folder: Path) -> tuple[Trial, list[Verdict]]:
    """Every text that a profile, a caller, a service or a worker may choose, in every section."""
    names = [*HOSTILE, '"><svg onload=x()>', "<!--<script>"]
    rows: list[dict[str, Any]] = []
    for place, name in enumerate(names):
        rows.append(call(place, name, 0, 5_000, "throttled", reason=name, retry_after=name))
        rows.append(call(place, name, 1, 5_500, round=1, parent=f"{place}.0", reason=name, tool=name))
    head = manifest(
        profile(names, names, about=names[3]), variant=names[3], driver="live",
        target={"kind": "file", "name": names[5], "url": names[5], "defect": names[5]}, evidence={},
        clock_domain=names[3], versions={names[3]: names[5]}, plan={name: {"calm": 3} for name in names},
        workers=[{"name": names[3], "host": names[5], "calls": 1}],
    )  # fmt: skip
    trial = write(folder, rows, head)
    decisions = [
        {"t_ns": i, "call": f"{place}.0", "attempt_id": f"{place}.0.1", "tenant": name, "outcome": name, "kind": name,
         "reason": name, name: name, "queue_wait_ns": name}
        for i in range(3) for place, name in enumerate(names)
    ]  # fmt: skip
    decided(trial, decisions)
    findings = tuple(Finding(n, n, Word.FAIL, 1.0, 0.5, 1.5, 0.0, n, 1, n) for n in names)
    ids = tuple(f"{i}.{k}" for i in range(len(names)) for k in (0, 1))
    return trial, [Verdict(n, Word.FAIL, 1.0, 0.0, n, 1, n, (*ids, n), n, findings) for n in names]


def test_hostile_texts_stay_text_in_every_section(tmp_path: Path) -> None:
    text = page(*hostile_trial(tmp_path))
    elements = Elements(text)
    sections = {attrs.get("id") for tag, attrs in elements.seen if tag == "section"}
    assert sections >= {"verdicts", "time", "shapes", "rounds", "witnesses", "log", "unseen", "trial"}
    assert {tag for tag, _ in elements.seen}.isdisjoint({"img", "b", "iframe", "marquee"})
    for _, attrs in elements.seen:
        assert not any(name.startswith("on") or name == "style" for name in attrs)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u2028\u2029\u202a-\u202e\u2066-\u2069]", text)
    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    assert "</script><img src=x onerror=x()>" in data["log"]["texts"]
    assert not any(re.search("[\x00-\x1f\u202a-\u202e]", shown) for shown in data["log"]["texts"])


def test_a_large_trial_with_all_its_evidence_stays_under_two_megabytes(tmp_path: Path) -> None:
    """100,000 calls, most of them re-planned, 200 witnesses with decisions, every text as long as it may be shown."""
    names = [f"tenant-{'x' * 80}-{i}" for i in range(50)]
    rows = []
    for place, name in enumerate(names):
        for seq in range(2_000):
            deep = seq % 4
            more = {"round": deep, "parent": f"{place}.{seq - 1}"} if deep else {}
            rows.append(
                call(place, name, seq, seq * 4.9, "throttled" if deep < 3 else "served", reason="r" * 200, **more)
            )
    trial = write(tmp_path, rows, manifest(profile(names, names[:40])))
    kinds = ("queued", "started", "served")
    ids = [(place, seq) for place in range(50) for seq in range(2_000)]
    decided(trial, [
        {"t_ns": 10**6 * n, "call": f"{p}.{s}", "attempt_id": f"{p}.{s}.1", "tenant": names[p], "outcome": kinds[n % 3],
         "reason": f"{n} " + "why " * 60, "waiting": n, "running": n}
        for n, (p, s) in enumerate(ids)
    ])  # fmt: skip
    verdicts = [
        Verdict(f"check.{i}", Word.FAIL, 1.0, 0.0, "pp", 1, "So.", tuple(f"{i}.{1_000 + k}" for k in range(20)))
        for i in range(10)
    ]
    text = page(trial, verdicts)
    assert len(text.encode()) < 2_000_000
    assert "of 100,000 decisions" in text
    assert Elements(text).text.count("Calls, as their caller saw them") == MOST_STORIES


def test_the_report_of_a_story_names_its_witnesses(tmp_path: Path) -> None:
    trial = decided(
        story_trial(tmp_path), [decision(32, "queued", tenant="alice"), decision(32, "expired", tenant="alice")]
    )
    text = Elements(page(trial, story_verdicts())).text
    assert "0.32 alice round 0 due 4.000 s abandoned at 6.200 s queued 2,000.0 ms" in text
    assert "All 2 decisions of this trial." in text


def test_outcomes_that_are_all_different_are_counted_together(tmp_path: Path) -> None:
    log = log_of(decided(small(tmp_path), [decision(i, f"{HOSTILE[1]}{i}") for i in range(1_000)]), [])
    assert log is not None
    assert len(log.outcomes) <= 201
    assert sum(log.outcomes.values()) == 1_000
    assert "\x1b" not in log_section(log)
