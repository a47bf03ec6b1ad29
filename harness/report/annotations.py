"""Annotations: lines that a CI shows beside the job, one for each check that did not PASS.

GitHub's workflow commands: `::error title=...::message`, `::warning ...` for INCONCLUSIVE. It shows ten of each kind
for a step, so no more are written, the worst first. SARIF is left out on purpose: it places findings in source files,
and a verdict on a running service has no line to stand at.

Source: docs.github.com, "Workflow commands for GitHub Actions": `%`, CR and LF are escaped in a message, and `:` and
`,` in a property as well. Foreign text is made one line first, so that it can begin no command of its own.
"""

from __future__ import annotations

from harness.checks.verdict import Word
from harness.report.results import Results
from harness.report.text import clean

MOST = 10
_KIND = {Word.INVALID: "error", Word.FAIL: "error", Word.INCONCLUSIVE: "warning"}


def github(results: Results) -> list[str]:
    lines: list[str] = []
    for word, kind in _KIND.items():
        for case in results.cases:
            verdict = case.verdict
            if verdict.word is not word or sum(line.startswith(f"::{kind} ") for line in lines) >= MOST:
                continue
            name = f"{case.situation}: {verdict.check}" if case.situation else verdict.check
            title = _property(f"{word.value} {name}")
            said = verdict.sentence + (f" To add: {verdict.add}" if verdict.add else "")
            lines.append(f"::{kind} title={title}::{_message(clean(said, 1_000))}")
    return lines


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(clean(text, 200)).replace(":", "%3A").replace(",", "%2C")
