"""`overload defects` as people meet it: what is shown, what goes wrong said in full, exit codes."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from rich.console import Console

from harness.bracket import Bracket, Step
from harness.checks.verdict import Verdict, Word
from harness.cli import main
from harness.cli.defects import lines_of, show, show_brackets, summary, wrong
from harness.matrix import Job, Row, jobs, profile_of_check, profile_of_defect
from harness.shipped import VERIFICATION
from stub_service.defects.registry import DEFECTS

V08 = VERIFICATION / "v08.yaml"


def overload(*args):
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main([str(arg) for arg in args])
    return ended.value.code, out.getvalue(), err.getvalue()


def verdict(check, word):
    return Verdict(check, Word(word), 3.0, 0.0, "calls", 9, f"3 calls of {check}.")


def row(defect, number=0, own="FAIL", missed=(), alarms=(), also=()):
    about = DEFECTS[defect].about if defect else ""
    made = [verdict(check, word) for check, word in alarms]
    return Row(
        Job(V08, defect, number), "v08-circuit", about, verdict("v08.circuit", own), missed, tuple(made), also, ()
    )


RIGHT = [row(None, own="PASS"), row("twin_circuit_careful", own="PASS"), row("circuit_for_all")]
WRONG = [
    row(None, own="PASS"),
    row(None, 1, own="FAIL", alarms=[("v08.circuit", "FAIL")]),
    row("circuit_closes_on_one", own="PASS", missed=("v08.circuit",)),
    row("circuit_closes_on_one", 1, also=("v10.outage_recovery",)),
    row("circuit_for_all", alarms=[("trial.conserved", "INVALID")]),
]


def shown(rows):
    out = io.StringIO()
    show(lines_of(rows), Console(file=out, width=130))
    return out.getvalue()


def test_what_is_right_is_a_line_each_and_one_sentence():
    text = shown(RIGHT)
    assert "one circuit for all dependencies" in text
    assert text.endswith("1 defects and 2 healthy ones in 3 trials: none missed, no false alarms\n")


def test_what_is_wrong_is_said_for_each_trial():
    lines = lines_of(WRONG)
    assert [(line.name, line.said) for line in lines] == [
        ("v08-circuit", "1 false alarm of 2"),
        ("circuit_closes_on_one", "1 missed of 2"),
        ("circuit_for_all", "1 false alarm of 1"),
    ]
    assert list(wrong(lines)) == [
        "FALSE ALARM  v08-circuit, trial 1: v08.circuit FAIL: 3 calls of v08.circuit.",
        "MISSED       circuit_closes_on_one, trial 0: v08.circuit did not fail it",
        "FALSE ALARM  circuit_for_all, trial 0: trial.conserved INVALID: 3 calls of trial.conserved.",
    ]
    assert summary(lines) == "2 defects and 1 healthy ones in 5 trials: 1 missed, 2 false alarms"
    assert "v10.outage_recovery" in shown(WRONG)


def test_a_check_that_catches_all_of_its_defects_ends_with_0_and_says_so_in_json():
    code, out, _ = overload("defects", "--only", "v07", "--jobs", 1, "--json")
    document = json.loads(out)
    assert (code, document["exit_code"], document["seeds"]) == (0, 0, 1)
    by_kind = {
        kind: [r["name"] for r in document["rows"] if r["kind"] == kind] for kind in ("healthy", "twin", "defect")
    }
    assert by_kind["healthy"] == ["v07-retry-after"]
    assert {"retry_after_ignored", "retry_after_clipped"} <= {*by_kind["defect"]}
    assert all(r["right"] for r in document["rows"])
    words = {r["kind"]: {t["verdict"] for t in r["trials"]} for r in document["rows"]}
    assert words == {"healthy": {"PASS"}, "twin": {"PASS"}, "defect": {"FAIL"}}


def test_a_miss_ends_with_1(monkeypatch):
    monkeypatch.setattr("harness.cli.defects.lines_of", lambda rows: lines_of(WRONG))
    assert overload("defects", "--only", "circuit_for_all", "--jobs", 1)[0] == 1


def test_a_name_that_is_not_known_is_said_before_anything_runs():
    code, out, err = overload("defects", "--only", "v07,circuit_for_al")
    assert (code, out) == (2, "")
    assert err == "--only circuit_for_al: no defect or check has this name; did you mean circuit_for_all?\n"


def test_every_defect_has_a_profile_that_is_there():
    assert [name for name, defect in DEFECTS.items() if not profile_of_defect(defect).exists()] == []
    assert profile_of_check("capacity.adaptive_bounded").stem == "adaptive"
    assert profile_of_check("trial.leak_free").stem == "decisions"


def test_a_profile_of_a_defect_is_named_as_the_defect():
    stray = [path.stem for path in Path(VERIFICATION / "defects").glob("*.yaml") if path.stem not in DEFECTS]
    assert stray == []


def test_jobs_begin_with_the_healthy_service():
    planned = jobs(["v08"], seeds=2)
    assert [job.defect for job in planned[:2]] == [None, None]
    assert [job.number for job in planned[:4]] == [0, 1, 0, 1]
    assert {job.path for job in planned} == {V08}


def test_the_bracket_of_recovery_is_run_with_its_check():
    code, out, _ = overload("defects", "--only", "replans_keep_overload_alive", "--jobs", 1)
    assert code == 0
    assert "bracket trigger_small: healthy PASS, badly protected PASS" in out
    assert "bracket as written: healthy PASS, badly protected FAIL (must collapse)" in out
    code, out, _ = overload("defects", "--only", "replans_keep_overload_alive", "--jobs", 1, "--json")
    assert [step["badly_protected"] for step in json.loads(out)["brackets"][0]["steps"]] == ["PASS", "PASS", "FAIL"]


def test_a_bracket_that_does_not_hold_is_said():
    step = Step("small", verdict("fairness.recovers", "PASS"), verdict("fairness.recovers", "PASS"))
    out = io.StringIO()
    show_brackets([Bracket((step,))], Console(file=out, width=130))
    assert "BRACKET      trial 0: small: the badly protected one did not collapse" in out.getvalue()
