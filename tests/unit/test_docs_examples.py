"""What the pages promise of the examples: the verdicts beside command lines, and the figures that are quoted.

Lines that run in virtual time are run; those that load a service over HTTP are tried by tests/live.
"""

from __future__ import annotations

import re
import shlex

import pytest

from harness.checks.verdict import EXIT_CODES, Word
from harness.cli import overload
from harness.target.file import load_target
from tests.conftest import ROOT
from tests.unit.docs_pages import PAGES, prose_and_blocks

YOURS = ROOT / "docs" / "examples" / "your_service"
LOG = "docs/examples/access.log"


def told() -> list[tuple[str, str]]:
    """(command line, word) of lines in virtual time beside which a page says what comes out."""
    found = []
    for page in PAGES:
        for block in prose_and_blocks(page.read_text())[1]:
            joined = re.sub(r"\\\n\s*", " ", block)
            for line, word in re.findall(r"^\s*overload (\S.*?)\s+# (PASS|FAIL)\b", joined, re.M):
                if "--simulate" in line or line.startswith("simulate"):
                    found.append((line, word))
    return found


def run(words: list[str]) -> int:
    code = overload.main(args=words, prog_name="overload", standalone_mode=False)
    return code if isinstance(code, int) else 0


@pytest.mark.parametrize(("line", "word"), told(), ids=lambda value: value)
def test_the_verdict_is_the_one_that_the_page_names(line, word, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert run([*shlex.split(line), "--reports", str(tmp_path)]) == EXIT_CODES[Word[word]]


def test_there_are_such_lines():
    assert len(told()) >= 8
    assert {word for _, word in told()} == {"PASS", "FAIL"}


@pytest.mark.parametrize(("variants", "word"), [((), Word.FAIL), (("--variant", "fair_queues"), Word.PASS)])
def test_your_service_fails_with_one_queue_and_passes_with_one_a_tenant(variants, word, tmp_path):
    """Without a variant all rows are run, the worst of which is the shared queue."""
    # In virtual time patience is the queue's affair.
    sets = ("patience_until=start", "checks=[fairness.ordinary_unmoved, fairness.refusals_structured]")
    words = ["simulate", str(YOURS / "profile.yaml"), *variants, "--reports", str(tmp_path)]
    assert run([*words, *(word for told_set in sets for word in ("--set", told_set))]) == EXIT_CODES[word]


@pytest.mark.parametrize("name", ["target.yaml", "behind.yaml"])
def test_the_target_files_of_your_service_are_sound(name):
    assert load_target(YOURS / name).target.url.startswith("http://127.0.0.1:80")


def test_what_is_quoted_of_the_sample_log(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert run(["learn", LOG, "--tenant", "user"]) == 0
    said = capsys.readouterr().out
    quoted = re.findall(r"^    ([A-D] +[\d,]+ +\S+/s .*)$", (ROOT / "docs" / "six_steps.md").read_text(), re.M)
    assert len(quoted) == 2
    assert all(" ".join(line.split()) in " ".join(said.split()) for line in quoted)
    assert run(["watch", LOG, "--tenant", "user", "--once", "--fail"]) == 1
    assert "ALERT" in capsys.readouterr().out
    assert run(["shadow", LOG, "--tenant", "user", "--policy", "fair_queues", "--find", "workers", "--noisy", "D"]) == 0
    assert "fair_queues: 4 workers" in capsys.readouterr().out
