"""What people and machines read of a verification: the table, the board, JSON, JUnit, the page, and bad input."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from harness.checks.verdict import Verdict, Word
from harness.pytest_plugin import beside_others, tell
from harness.report.junit import junit
from harness.report.results import of_verification
from harness.report.verification import Row, Verification, document
from harness.report.verification_view import Board, page, show
from tests.unit.report_trials import HOSTILE
from tests.unit.test_cli import overload
from tests.unit.test_report_terminal import plain_console, read, snapshot, terminal_console


def row(case: str, verdict: Verdict, **more) -> Row:
    folder = Path("reports") / f"20250102-030405-{case}"
    values = {"folder": folder, "report": folder / "report.html", "tries": 1, "seconds": 4.25, "with_defect": True}
    return Row(case, "what it is about", verdict, **{**values, **more})


def story(**more) -> Verification:
    """One verdict of each word."""
    failed = Verdict(
        "v05.one_retry_owner", Word.FAIL, 27.0, 3.0, "attempts", 184,
        "Step r60/b0.0: 27 attempts by 3 layers (controller, http_client, sdk) where at most 3 are allowed.",
        tuple(f"r{n}" for n in range(60, 72)),
    )  # fmt: skip
    thin = Verdict(
        "v06.expiry", Word.INCONCLUSIVE, 0.0, 2.0, "steps", 0, "Cannot tell: only 0 of the 2 steps needed.",
        add="steps whose first attempt fails just before the dependency fills up",
    )  # fmt: skip
    held = Verdict("v02.foreground_first", Word.PASS, 10.1, 30.0, "ms", 639, "Interactive p95 moved by 10.1 ms.")
    late = Verdict("v07.retry_after", Word.INVALID, None, None, "", 0, "Not to be trusted (trial.on_time): late.")
    beside = (Verdict("trial.conserved", Word.PASS, 0.0, 0.0, "contradictions", 628, "Held in 4 trials."),)
    rows = (row("v02", held), row("v05", failed), row("v06", thin), row("v07", late, tries=2))
    values = {
        "defect": "three_layer_retry",
        "defect_about": "three layers try three times each",
        "caught_by": ("v05.one_retry_owner",),
    }
    return Verification("the bundled stub", rows, beside, Word.INVALID, **{**values, **more})


def test_the_table_in_a_log():
    console, stream = plain_console()
    show(story(), console, ["junit   out.xml"])
    snapshot("verify_plain.txt", read(stream))


@pytest.mark.parametrize("width", [80, 200])
def test_the_table_on_a_terminal(width):
    console, stream = terminal_console(width, color=False)
    show(story(), console)
    text = stream.getvalue()
    snapshot(f"verify_{width}.txt", text)
    assert max(map(len, text.splitlines())) <= max(width, 90)


def test_what_became_of_a_defect():
    one = story()
    assert one.catch() == (
        "defect three_layer_retry: three layers try three times each. Caught by v05.one_retry_owner."
    )
    assert (
        story(caught_by=("v06.expiry",)).catch().endswith("MISSED by v06.expiry. It breaks, too: v05.one_retry_owner.")
    )
    assert (
        story(caught_by=("v08.circuit",))
        .catch()
        .endswith("None of the checks that must catch it was run (v08.circuit).")
    )
    assert "healthy twin" in story(caught_by=()).catch()
    assert story(defect=None).catch() == ""


def test_the_document_has_stable_keys_and_no_nan():
    made = json.loads(json.dumps(document(story()), allow_nan=False))
    assert list(made) == [
        "schema", "target", "defect", "caught_by", "time_scale", "verdict", "exit_code", "checks", "trials",
    ]  # fmt: skip
    assert list(made["checks"][0]) == [
        "case", "check", "word", "measured", "bound", "unit", "samples", "sentence", "add", "witnesses", "about",
        "trial", "report", "tries", "seconds", "defect",
    ]  # fmt: skip
    assert (made["verdict"], made["exit_code"]) == ("INVALID", 4)
    assert [one["check"] for one in made["trials"]] == ["trial.conserved"]
    odd = Verdict("v08.circuit", Word.FAIL, float("nan"), float("inf"), "", 0, "Odd.")
    (told,) = document(Verification("x", (row("v08", odd),), (), Word.FAIL))["checks"]
    assert (told["measured"], told["bound"]) == (None, None)


# --- JUnit


def cases(data: bytes) -> dict[str, ET.Element]:
    root = ET.fromstring(data)
    return {f"{case.get('classname')}.{case.get('name')}": case for case in root.iter("testcase")}


def test_junit_has_a_case_a_check_and_a_child_a_word():
    data = junit(of_verification(story()))
    suite = ET.fromstring(data).find("testsuite")
    assert {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped", "time")} == {
        "tests": "5", "failures": "2", "errors": "1", "skipped": "0", "time": "17.000",
    }  # fmt: skip
    found = cases(data)
    failed = found["overload.v05.one_retry_owner"].find("failure")
    assert failed.get("type") == "FAIL"
    assert failed.get("message").startswith("FAIL: Step r60/b0.0: 27 attempts by 3 layers")
    assert "measured 27 attempts, bound 3 attempts, 184 samples" in failed.text
    assert "witnesses: r60, r61" in failed.text
    assert "ledger: reports/20250102-030405-v05" in failed.text
    thin = found["overload.v06.expiry"].find("failure")
    assert (thin.get("type"), "to add: steps whose first attempt" in thin.text) == ("INCONCLUSIVE", True)
    assert found["overload.v07.retry_after"].find("error").get("type") == "INVALID"
    assert {child.tag for child in found["overload.v02.foreground_first"]} == {"system-out"}
    assert found["overload.trial.conserved"].get("time") == "0.000"


def test_junit_skips_inconclusive_only_if_asked_for():
    found = cases(junit(of_verification(story()), skip_inconclusive=True))
    assert found["overload.v06.expiry"].find("skipped").get("message").startswith("INCONCLUSIVE: ")
    assert found["overload.v05.one_retry_owner"].find("failure") is not None


@pytest.mark.parametrize("text", [*HOSTILE, "]]>", "a\x00b\x0b\ufffe", "\"&<'", "\ud800"])
def test_junit_and_page_survive_hostile_text(tmp_path, text):
    bad = Verdict(text, Word.FAIL, 1.0, 0.0, text, 1, text, (text,), text)
    made = Verification(text, (row("v05", bad, folder=Path("x"), report=None),), (), Word.FAIL)
    (case,) = cases(junit(of_verification(made))).values()
    assert case.find("failure").get("message").startswith("FAIL: ")
    html = page(made, tmp_path).encode("utf-8", "backslashreplace").decode()
    assert "<img" not in html
    assert "\x1b" not in html
    console, stream = plain_console(encoding="ascii")
    show(made, console)
    assert "\x1b" not in read(stream)


def test_the_page_links_to_the_reports_relative_to_itself(tmp_path):
    report = tmp_path / "reports" / "one" / "report.html"
    one = row("v05", Verdict("v05.one_retry_owner", Word.PASS, 0.0, 0.0, "runs", 3, "Held."), report=report)
    html = page(Verification("the bundled stub", (one,), (), Word.PASS), tmp_path / "pages")
    assert 'href="../reports/one/report.html"' in html
    assert html.count("<tr>") == 2


# --- the board


def test_elsewhere_than_on_a_terminal_each_end_is_one_line():
    console, stream = plain_console()
    with Board([("v05", "retries"), ("v09", "writes")], console, lambda: 0.0) as board:
        board.running("v05")
        board.running("v09")
        board.done("v09", Word.PASS, 3.6, "Held.")
        board.done("v05", Word.FAIL, 4.25, "27 attempts [red]by 3 layers\x1b[0m")
    assert read(stream).splitlines() == [
        "1/2  PASS         v09  3.6 s  Held.",
        r"2/2  FAIL         v05  4.2 s  27 attempts [red]by 3 layers\x1b[0m",
    ]


def test_the_board_tells_each_situations_state_within_the_width():
    console, _ = terminal_console(60, color=False)
    now = [0.0]
    board = Board(
        [("v05", "failures of every kind, retried by one owner"), ("v09", "writes"), ("v10", "")],
        console,
        lambda: now[0],
    )
    board.running("v05")
    now[0] = 2.5
    board.done("v09", Word.PASS, 3.6, "Held.")
    assert board.picture().plain.splitlines() == [
        "running      v05          2.5 s  failures of every kind, ret",
        "PASS         v09          3.6 s  Held.",
        "waiting      v10                 ",
    ]


# --- the command


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "v5"], "--only v5: there is no such situation; did you mean v05?"),
        (["--target", "staging.yaml"], "--target staging.yaml: there is no such file"),
        (["--target", "http://10.0.0.1:80"], "'10.0.0.1' is not a loopback host"),
        (["--simulate", "--target", "http://127.0.0.1:1"], "--simulate runs in virtual time, so it takes no --target"),
        (["--only", "v05", "--preset", "first"], "--only, --preset and --all each choose"),
        (["--defect", "no_such"], "unknown defect 'no_such'"),
        (["--junit", "/nowhere/out.xml"], "/nowhere/out.xml: cannot be written"),
        (["--html", "."], "is a directory"),
        (["--time-scale", "0"], "0"),
    ],
)
def test_bad_input_is_one_message_and_sends_nothing(tmp_path, arguments, message):
    done = overload("verify", "--reports", tmp_path, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_command_writes_what_it_is_asked_for(tmp_path):
    files = {name: tmp_path / name for name in ("out.xml", "out.html")}
    done = overload(
        "verify", "--simulate", "--only", "v09", "--json", "--reports", tmp_path / "reports",
        "--junit", files["out.xml"], "--html", files["out.html"],
    )  # fmt: skip
    made = json.loads(done.stdout)
    assert (done.returncode, made["verdict"], made["target"]) == (0, "PASS", "the simulator")
    assert Path(made["checks"][0]["report"]).exists()
    assert "overload.v09.ambiguous_write" in cases(files["out.xml"].read_bytes())
    assert 'href="reports/' in files["out.html"].read_text()
    assert done.stderr.startswith("1/1  PASS         v09")


def test_the_command_shows_the_table_and_where_to_look(tmp_path):
    done = overload(
        "verify", "--simulate", "--only", "v09", "--defect", "write_reported_failed", "--reports", tmp_path
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout.startswith("FAIL  1 situation against the simulator\n")
    assert "Caught by v09.ambiguous_write." in done.stdout
    assert f"report  v09        {tmp_path}" in done.stdout
    assert f"more    overload report {tmp_path}" in done.stdout


# --- pytest


def verdict(word: Word) -> Verdict:
    return Verdict("v05.one_retry_owner", word, 1.0, 2.0, "runs", 3, "It said so.", add="more runs")


@pytest.mark.parametrize("word", [Word.FAIL, Word.INCONCLUSIVE, Word.INVALID])
def test_under_pytest_each_word_but_pass_is_a_failure_with_that_word(word):
    with pytest.raises(pytest.fail.Exception, match=f"^{word.value} v05.one_retry_owner\n  It said so"):
        tell([verdict(Word.PASS), verdict(word)], Path("reports/x"), allow_inconclusive=False)


def test_inconclusive_may_be_allowed_and_nothing_worse_hides_behind_it():
    tell([verdict(Word.PASS)], Path("x"), allow_inconclusive=False)
    with pytest.raises(pytest.skip.Exception, match="INCONCLUSIVE"):
        tell([verdict(Word.INCONCLUSIVE)], Path("x"), allow_inconclusive=True)
    with pytest.raises(pytest.fail.Exception, match="FAIL"):
        tell([verdict(Word.INCONCLUSIVE), verdict(Word.FAIL)], Path("x"), allow_inconclusive=True)


def test_a_situation_that_measures_latency_has_no_other_beside_it(tmp_path, monkeypatch):
    lock = tmp_path / "lock"

    def taken(how: int) -> bool:
        with lock.open("a") as file:
            try:
                fcntl.flock(file, how | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    with beside_others(lock, alone=True):
        assert (taken(fcntl.LOCK_SH), taken(fcntl.LOCK_EX)) == (True, True)
    with beside_others(lock, alone=False):
        assert (taken(fcntl.LOCK_SH), taken(fcntl.LOCK_EX)) == (False, True)
    assert not taken(fcntl.LOCK_EX)
    monkeypatch.delenv("PYTEST_XDIST_WORKER")
    with beside_others(tmp_path / "none", alone=True):
        assert not (tmp_path / "none").exists()


def test_the_plugin_loads_nothing_that_a_project_does_not_ask_for():
    code = (
        "import harness.pytest_plugin, sys\n"
        "heavy = {'numpy', 'pydantic', 'locust', 'gevent', 'aiohttp', 'rich'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
