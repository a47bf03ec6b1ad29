"""Reports of a trial: in the terminal, as one HTML file that opens offline, as JSON; and the progress of a running one.

Everything is made from the trial's folder and its verdicts alone. Nothing here judges.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import orjson

from harness.checks.verdict import Verdict
from harness.ledger.reader import LedgerError, Trial
from harness.report.html import page
from harness.report.json_report import report_json
from harness.report.notes import named_in
from harness.report.summary import summarise

HTML, JSON = "report.html", "report.json"


def write_reports(trial: Trial, verdicts: Sequence[Verdict]) -> dict[str, Path]:
    """Writes `report.html` and `report.json` into the trial's folder, whole or not at all. Raises LedgerError."""
    summary = summarise(trial, keep=named_in(trial, verdicts))
    document = report_json(trial, verdicts, series=True, summary=summary)
    data = orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS)
    html = page(trial, verdicts, summary).encode("utf-8", "backslashreplace")
    paths = {"html": trial.folder / HTML, "json": trial.folder / JSON}
    for path, content in ((paths["html"], html), (paths["json"], data)):
        _write(path, content)
    return paths


def write_html(trial: Trial, verdicts: Sequence[Verdict], path: Path) -> None:
    """Writes the HTML report to `path`. Raises LedgerError."""
    _write(path, page(trial, verdicts).encode("utf-8", "backslashreplace"))


def _write(path: Path, content: bytes) -> None:
    part = path.with_name(path.name + ".part")
    try:
        part.write_bytes(content)
        os.replace(part, path)
    except OSError as error:
        raise LedgerError(f"{path}: cannot be written ({error.strerror}); is the folder writable?") from None
