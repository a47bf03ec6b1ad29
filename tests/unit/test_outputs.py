"""What CI reads: one set of options for every command that judges, and text that nobody can write markup with."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from harness.checks.verdict import Verdict, Word
from harness.report.annotations import github
from harness.report.markdown import MOST_CASES, markdown, md
from harness.report.results import Case, Results
from tests.unit.ledgers import simulated
from tests.unit.report_trials import HOSTILE
from tests.unit.test_cli import overload

COMMANDS = ("run", "verify", "burst", "check", "diff")
OPTIONS = ("--junit", "--skip-inconclusive", "--markdown", "--step-summary", "--annotations")


def verdict(word: Word, check: str = "v05.one_retry_owner", sentence: str = "It said so.") -> Verdict:
    return Verdict(check, word, 1.0, 2.0, "runs", 3, sentence, ("r1",), "more runs")


def results(*verdicts: Verdict, **more) -> Results:
    cases = tuple(Case(one, folder="reports/x") for one in verdicts)
    word = next(
        (w for w in (Word.INVALID, Word.FAIL, Word.INCONCLUSIVE) if any(v.word is w for v in verdicts)), Word.PASS
    )
    return Results("overload run", "about", word, "What it means.", cases, **more)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_judges_has_the_same_options(command):
    said = overload(command, "--help").stdout
    assert all(option in said for option in OPTIONS)


@pytest.mark.parametrize("command", ["run profiles/steady.yaml", "verify", "burst --tenant D --rate 40/s", "check x"])
def test_what_cannot_be_written_is_told_before_anything_is_sent(command, tmp_path):
    for option in ("--junit", "--markdown"):
        done = overload(*command.split(), option, "/nowhere/out")
        assert (done.returncode, done.stderr) == (
            2, "/nowhere/out: cannot be written; give a file in a folder that exists and is writable\n",
        )  # fmt: skip


def test_check_writes_all_of_it(tmp_path, monkeypatch):
    trial = simulated(tmp_path / "t", {"checks": ["fairness.ordinary_unmoved"]})
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    done = overload("check", trial.folder, "--junit", tmp_path / "o.xml", "--markdown", tmp_path / "o.md",
                    "--step-summary", "--annotations", "github")  # fmt: skip
    assert done.returncode == 1
    assert f"junit   {tmp_path / 'o.xml'}" in done.stdout
    cases = {case.get("name"): case for case in ET.parse(tmp_path / "o.xml").getroot().iter("testcase")}
    assert set(cases) == {"ordinary_unmoved", "conserved", "on_time"}
    assert cases["ordinary_unmoved"].get("classname") == "overload.fairness"
    assert cases["ordinary_unmoved"].find("failure").get("type") == "FAIL"
    text = (tmp_path / "o.md").read_text()
    assert text.startswith("### ❌ FAIL: overload check\n")
    assert summary.read_text() == "before\n" + text + "\n"
    assert len(re.findall(r"^::error title=FAIL fairness\.ordinary_unmoved::The burst moved", done.stdout, re.M)) == 1


def test_outside_of_ci_the_step_summary_is_no_reason_to_stop(tmp_path, monkeypatch):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    trial = simulated(tmp_path / "t", {"checks": ["agent.replan_share"]})
    done = overload("check", trial.folder, "--step-summary")
    assert done.returncode == 0
    assert "GITHUB_STEP_SUMMARY is not set" in done.stderr


def test_several_trials_have_cases_of_their_own(tmp_path):
    done = overload(
        "verify", "--simulate", "--only", "v09,coalesced", "--junit", tmp_path / "o.xml", "--reports", tmp_path
    )
    assert done.returncode == 0
    cases = [(c.get("classname"), c.get("name")) for c in ET.parse(tmp_path / "o.xml").getroot().iter("testcase")]
    assert len(cases) == len(set(cases)) >= 4


def test_the_worst_is_first_and_what_held_is_folded():
    text = markdown(
        results(verdict(Word.PASS, "a.held"), verdict(Word.FAIL, "b.broke"), verdict(Word.INVALID, "c.late"))
    )
    assert [text.index(name) for name in ("c.late", "b.broke", "a.held")] == sorted(
        text.index(name) for name in ("c.late", "b.broke", "a.held")
    )
    assert text.index("<details>") < text.index("a.held") < text.index("</details>")
    assert "to add: more runs" in text
    assert "Exit code 4" in text


@pytest.mark.parametrize(
    "text", [*HOSTILE, "@org/team", "[x](http://evil)", "a|b", "![i](x)", "# h", "#12", "<b>", "::error::x\n::stop"]
)
def test_hostile_text_is_nothing_but_text(text):
    made = results(verdict(Word.FAIL, f"v05.{text}", text), verdict(Word.PASS, text, text))
    said = markdown(made)
    assert not re.search(r"<(?!/?(code|details|summary)>)", said)
    assert "@" not in said
    assert not re.search(r"(?<!\\)\]\(", said)
    assert "\x1b" not in said
    for row in [line for line in said.splitlines() if line.startswith("|")]:
        assert len(re.findall(r"(?<!\\)\|", row)) == 6
    lines = github(made)
    assert len(lines) == 1
    assert "\n" not in lines[0]
    assert lines[0].startswith("::error title=FAIL v05.")
    assert md(text).count("\n") == 0


def test_annotations_are_bounded_and_inconclusive_is_a_warning():
    many = results(*[verdict(Word.FAIL, f"a.n{n}") for n in range(30)], verdict(Word.INCONCLUSIVE, "b.thin"))
    lines = github(many)
    assert sum(line.startswith("::error ") for line in lines) == 10
    assert lines[-1] == "::warning title=INCONCLUSIVE b.thin::It said so. To add: more runs"
    assert github(results(verdict(Word.PASS))) == []
    odd = github(results(verdict(Word.FAIL, "a.b,c:d", "50% of\r\nit")))
    assert odd == ["::error title=FAIL a.b%2Cc%3Ad::50%25 of\\x0d\\x0ait To add: more runs"]


def test_a_summary_is_bounded():
    text = markdown(results(*[verdict(Word.FAIL, f"a.n{n}", "x" * 5_000) for n in range(2_000)]))
    assert len(text) < 65_536  # a comment of GitHub
    assert text.count("\n| ") <= MOST_CASES + 2
    assert "\nand 1,800 more\n" in text or "\nand 1,900 more\n" in text


@pytest.mark.parametrize("character", ["x", "@", "|", "<", "\x1b", "https://"])
def test_a_summary_of_the_longest_texts_is_bounded_and_whole(character):
    long = character * 5_000
    word = {0: Word.FAIL, 1: Word.PASS}
    cases = [replace(verdict(word[n % 2], f"a.{long}", long), add=long, witnesses=(long,) * 9) for n in range(400)]
    made = replace(results(*cases), about=long, headline=long, notes=(long,) * 400)
    text = markdown(made)
    assert len(text) < 65_536
    assert text.count("<details>") == text.count("</details>") == 1
    assert re.search(r"and \d+ notes more\n$", text)
