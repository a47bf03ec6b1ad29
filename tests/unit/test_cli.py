"""The commands as people meet them: exit codes, messages, JSON. Nothing here opens a socket."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass

import pytest

from harness.cli import COMMANDS, main
from tests.conftest import ROOT

WORKED = "profiles/worked_example.yaml"


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def overload(*args):
    """The command line in this process, as a shell would see it."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), chdir(ROOT), pytest.raises(SystemExit) as ended:
        main([str(arg) for arg in args])
    return Done(ended.value.code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """One simulated trial of the fair variant: (folder, completed process)."""
    reports = tmp_path_factory.mktemp("reports")
    done = overload("simulate", WORKED, "--variant", "fair_queues", "--reports", reports, "--json")
    (folder,) = reports.iterdir()
    return folder, done


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS), ("profile", "check"), ("profile", "schema")])
def test_help_says_what_it_does_and_shows_examples(command):
    done = overload(*command, "--help")
    assert done.returncode == 0
    assert "Usage: overload" in done.stdout
    if command not in {("profile",), ("demo",)}:
        assert "overload " + (command[0] if command else "run") in done.stdout.split("Usage:")[1].partition("\n")[2]


def test_the_verdict_is_the_exit_code(simulated, tmp_path):
    assert simulated[1].returncode == 0
    assert overload("simulate", WORKED, "--variant", "tenant_cap", "--reports", tmp_path).returncode == 1


def test_json_is_one_document_and_nothing_else(simulated):
    document = json.loads(simulated[1].stdout)
    assert document["exit_code"] == 0
    assert document["rows"][0]["name"] == "fair_queues"
    assert document["rows"][0]["ordinary_served"] == 1.0


def test_check_and_report_need_the_folder_only(simulated, tmp_path):
    folder = simulated[0]
    checked = overload("check", folder, "--json")
    assert checked.returncode == 0
    verdicts = {v["check"]: v["word"] for v in json.loads(checked.stdout)["trials"][0]["verdicts"]}
    assert verdicts["fairness.ordinary_unmoved"] == "PASS"
    only = overload("check", folder, "--only", "trial.conserved")
    assert only.returncode == 0
    assert "ordinary_unmoved" not in only.stdout
    (folder / "report.html").unlink()
    assert overload("report", folder).returncode == 0
    assert (folder / "report.html").exists()


def test_a_trial_that_was_cut_short_is_invalid(simulated, tmp_path):
    folder = tmp_path / "cut"
    folder.mkdir()
    for path in simulated[0].iterdir():
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "ended": None}))
    calls = (folder / "calls.jsonl").read_bytes()
    (folder / "calls.jsonl").write_bytes(calls[: len(calls) // 2])
    done = overload("check", folder)
    assert done.returncode == 4
    assert "INVALID" in done.stdout


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("run", "nowhere.yaml"), "nowhere.yaml"),
        (("run", WORKED, "--variant", "fair_queue"), "did you mean 'fair_queues'"),
        (("run", WORKED, "--set", "tenants.D.rate=40"), "such as 8/s"),
        (("run", WORKED, "--target", "http://example.com"), "loopback"),
        (("run", WORKED, "--target", "http://127.0.0.1:9"), "127.0.0.1:9"),
        (("run", WORKED, "--time-scale", "0.1"), "the bundled stub is trusted up to"),
        (("run", WORKED, "--defect", "no_such"), "unknown defect"),
        (("simulate", WORKED, "--set", "service=null"), "or give the address of a service with --target"),
        (("simulate", WORKED, "--seed", 10**18), "--seed"),
        (("simulate", WORKED, "--time-scale", "0.0001"), "0.001<=x<=100"),
        (("simulate", WORKED, "--defect", "refusal_hang"), "did you mean refusal_hangs"),
        (("check", "."), "manifest.json"),
        (("check", "nowhere"), "nowhere"),
        (("report", "nowhere"), "nowhere"),
        (("replay", "nowhere.log"), "nowhere.log"),
        (("learn", "nowhere.log"), "nowhere.log"),
        (("stub", "nowhere.yaml"), "nowhere.yaml"),
        (("profile", "check", "README.md"), "README.md"),
        (("nonsense",), "nonsense"),
    ],
)
def test_bad_input_is_one_clear_message_and_exit_code_2(args, says, tmp_path):
    reports = ("--reports", tmp_path / "r") if args[0] in ("run", "simulate", "replay") else ()
    done = overload(*args, *reports)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert done.stdout == ""
    assert not list((tmp_path / "r").glob("*"))


def test_rates_that_the_stub_cannot_be_trusted_with_are_refused_for_the_stub_only():
    fast = ("profile", "check", WORKED, "--time-scale", "0.01")
    refused = overload(*fast)
    assert refused.returncode == 2
    assert "the bundled stub is trusted up to" in refused.stderr
    assert "62,400" in refused.stdout
    assert overload(*fast, "--target", "simulator").returncode == 0
    assert overload("profile", "check", WORKED, "--time-scale", "0.25").returncode == 0


def test_unknown_check_names_are_offered(simulated):
    done = overload("check", simulated[0], "--only", "fairness.ordinary_unmovd")
    assert done.returncode == 2
    assert (
        "there is no check 'fairness.ordinary_unmovd': did you mean fairness.ordinary_unmoved? (known: " in done.stderr
    )
    assert "there is no check 'nope' (known: " in overload("check", simulated[0], "--only", "nope").stderr


def test_a_manifest_that_cannot_be_read_says_why(tmp_path):
    (tmp_path / "manifest.json").mkdir()
    done = overload("check", tmp_path)
    assert (done.returncode, done.stderr) == (2, f"{tmp_path}/manifest.json: cannot be read (Is a directory)\n")


def test_a_bug_is_named_as_one_without_a_traceback():
    code = "import harness.cli as c; c.overload.main = lambda **k: 1 / 0; c.main([])"
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert done.returncode == 70
    assert "a bug of overload: ZeroDivisionError" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_ensemble_is_the_same_with_one_process_and_with_two(tmp_path):
    args = ("simulate", WORKED, "--variant", "budget", "--ensemble", "6", "--json", "--reports", tmp_path)
    rows = [json.loads(overload(*args, "--jobs", jobs).stdout)["rows"] for jobs in (1, 2)]
    assert rows[0] == rows[1]
    assert rows[0][0]["ensemble"]["trials"] == 6


def test_a_time_scale_says_that_a_target_is_not_scaled():
    done = overload("run", WORKED, "--target", "http://127.0.0.1:9", "--time-scale", "0.5")
    assert done.returncode == 2
    assert f"a stub is scaled alike by: overload stub {WORKED} --time-scale 0.5" in done.stderr
    assert "note" not in overload("run", WORKED, "--target", "http://127.0.0.1:9").stderr


@pytest.mark.parametrize(("words", "code"), [("FP", 0), ("FF", 1), ("PP", 1), ("IP", 4), ("FI", 4)])
def test_the_demo_claims_nothing_when_a_trial_is_invalid(monkeypatch, tmp_path, words, code):
    from harness.checks.verdict import Word
    from harness.cli import demo

    class Judged:
        interrupted = False

        def __init__(self, letter):
            self.word = {"F": Word.FAIL, "P": Word.PASS, "I": Word.INVALID}[letter]

    letters = iter(words)
    monkeypatch.setattr(demo.trial, "run", lambda *args: Judged(next(letters)))
    monkeypatch.setattr(demo, "show_judged", lambda judged, as_json: 0)
    done = overload("demo", "--reports", tmp_path)
    assert done.returncode == code
    assert ("nothing is claimed" in done.stdout) == (code == 4)
    assert ("What differs is the queue" in done.stdout) == (code != 4)


@pytest.mark.parametrize(("last", "noted"), [("00:29", False), ("10:00", True)])
def test_a_replay_of_hours_says_so_before_it_begins(tmp_path, last, noted):
    log = tmp_path / "a.csv"
    log.write_text(f"time,tenant\n2024-01-01T00:00:00Z,A\n2024-01-01T{last}:00Z,A\n")
    reports = ("--reports", tmp_path / "r", "--workers", 2)
    done = overload("replay", log, *reports, "--target", "http://127.0.0.1:9")
    assert done.returncode == 2
    assert ("note: a trial takes 10.0 h; --squeeze-gaps 5s, --speed 60" in done.stderr) == noted
