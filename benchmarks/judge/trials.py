"""One cell run: in virtual time by a process of the pool, or live against the bundled stub."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.judge.cells import (
    LIVE,
    TWIN,
    Cell,
    document_of,
    laid_over,
    loaded,
    may_fail,
    must_see,
    own_check,
    wanted,
)  # fmt: skip
from benchmarks.judge.record import Row
from harness import trial
from harness.checks.judge import judge_all
from harness.checks.verdict import Verdict, Word
from harness.cli.interrupting import begin_worker
from harness.matrix import judge_in_virtual_time, numbered
from stub_service.defects.registry import DEFECTS

MOST_SAID = 300


def quiet_worker(begun: Any) -> None:
    """For a process of the pool. begun: counts them; the first is as greedy as a live trial beside it, and so is its
    burner, the others give way."""
    begin_worker()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with begun.get_lock():
        begun.value += 1
        first = begun.value == 1
    if not first:
        os.nice(10)


def verdicts_of(cell: Cell, reports: Path | None = None) -> list[Verdict]:
    """reports: where a live trial is kept; None: a folder that goes away."""
    if cell.part in LIVE:
        with tempfile.TemporaryDirectory() as kept:
            folder = trial.new_folder(reports or Path(kept), cell.profile)
            defect = None if cell.laid == "-" else cell.laid
            judged = trial.run(loaded(cell.profile), folder, trial.STUB, defect)
            return judge_all(judged.trial, wanted(cell))
    document, defect_ = numbered(document_of(cell), cell.number), laid_over(cell)
    name = None
    if defect_ is not None:
        name = defect_.name
        DEFECTS[name] = defect_  # in this process; a weaker form of one name is another in each length
    return list(judge_in_virtual_time(document, name, wanted(cell)).verdicts)


def run(cell: Cell, reports: Path | None = None) -> Row:
    begun = time.process_time()
    verdicts = verdicts_of(cell, reports)
    words = {verdict.check: verdict.word.value for verdict in verdicts}
    return Row(cell.key, words, time.process_time() - begun, [_told(v) for v in surprising(cell, verdicts)])


def surprising(cell: Cell, verdicts: list[Verdict]) -> list[Verdict]:
    """Verdicts that somebody will want to read: anything but PASS on the healthy service and its twins; of a defect its
    own checks, and what others say of it that they ought not to."""
    if cell.laid in ("-", "0") or cell.part == TWIN:
        return [verdict for verdict in verdicts if verdict.word is not Word.PASS]
    own, may = (own_check(cell), *must_see(cell)), may_fail(cell)
    return [
        v
        for v in verdicts
        if (v.check in own and v.word is not Word.FAIL)
        or (v.word is Word.FAIL and v.check not in (*own, *may))
        or v.word is Word.INVALID
    ]


def _told(verdict: Verdict) -> str:
    return f"{verdict.check} {verdict.word.value}: {verdict.sentence}"[:MOST_SAID]
