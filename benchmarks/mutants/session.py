"""One process that has collected the tests once, and forks for each mutant: the fork lays the mutant and runs the tests
that run its line, cheapest first, until one fails. The process itself runs no test, so that nothing stale is in it.

Which tests run which line is found out once, by running them all with a trace, and kept, as are the trials that tests
and the kill matrix simulate: a trial is the same whatever mutant will judge it.
"""

from __future__ import annotations

import gc
import hashlib
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest

from benchmarks.judge.cells import asked_by, loaded
from benchmarks.mutants.operators import PLACES, ROOT
from harness import matrix
from harness.checks.judge import ALWAYS, judge_all, judge_one
from harness.ledger.reader import Trial, read_trial
from stub_service.defects.registry import DEFECTS

TESTS = (
    "tests/unit/test_measure_*.py", "tests/unit/test_checks_*.py", "tests/property/test_measure_properties.py",
    "tests/property/test_limit_held.py", "tests/unit/test_forecast_error.py", "tests/unit/test_tiers.py",
    "tests/unit/test_stalls.py", "tests/unit/test_runs_audit.py", "tests/unit/test_callers_judge.py",
    "tests/unit/test_target_judged.py",
)  # fmt: skip
_LEAST_CPU_S = 1.5
_MEMORY = 6 << 30
_simulate = matrix.trial_in_virtual_time


@dataclass(frozen=True, slots=True)
class Seen:
    """What a test did when nothing was wrong. lines: module -> lines that it ran."""

    cpu_s: float
    passed: bool
    lines: dict[str, frozenset[int]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """by: the test that failed; "" if none did. ran, of: tests that were run, and that could have been."""

    by: str
    ran: int
    of: int
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Cell:
    """A trial of the kill matrix as the profile is written, and the checks that have to be right about it."""

    job: matrix.Job
    trial: Trial
    checks: tuple[str, ...]

    def right(self) -> bool:
        verdicts = (*judge_all(self.trial, self.checks), *(judge_one(self.trial, name, {}) for name in ALWAYS))
        return matrix.row_of(self.job, matrix.Cell("", self.job.defect, verdicts), self.checks).right


class Session:
    """A pytest plugin: `go` is called once the tests are collected."""

    def __init__(self, work: Path, cells: Sequence[str], go: Callable[[Session], None]) -> None:
        """cells: checks, families or defects whose cells of the kill matrix are tests too."""
        self.work, self._wanted, self._go = work, cells, go
        self.items: dict[str, pytest.Item | Cell] = {}
        self._failed = False

    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings  # pytest warns of what was loaded before it

        quick = settings(settings.get_profile("same"), phases=[Phase.explicit, Phase.generate], database=None)
        settings.register_profile("mutants", quick)
        settings.load_profile("mutants")
        matrix.trial_in_virtual_time = self._kept  # before the tests import it

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        for job in matrix.jobs(self._wanted) if self._wanted else ():
            self.items[f"cell {job.path.stem}, {job.defect or 'healthy'}"] = self._cell(job)
        gc.collect()
        gc.freeze()
        self._go(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or report.failed

    def run(self, item: pytest.Item | Cell, after: pytest.Item | Cell | None) -> bool:
        """Whether it passed."""
        if isinstance(item, Cell):
            return item.right()
        self._failed = False
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after if isinstance(after, pytest.Item) else None)
        return not self._failed

    def _cell(self, job: matrix.Job) -> Cell:
        defect = DEFECTS[job.defect] if job.defect is not None else None
        folder = self.work / "cells" / f"{job.path.stem}-{job.defect or 'healthy'}"
        folder.mkdir(parents=True, exist_ok=True)
        trial = self._kept(folder, loaded(job.path.stem).document, job.defect)
        must = (*defect.caught_by, *defect.twin_of) if defect else ()
        return Cell(job, trial, tuple(dict.fromkeys((*must, *asked_by(job.path.stem)))))

    def _kept(
        self, folder: Path, document: Any, defect: Any = None, time_scale: float = 1.0, *doctor: Any, **kw: Any
    ) -> Trial:
        """As the real one, but each trial is simulated once, and copied from then on."""
        tracer = sys.gettrace()
        sys.settrace(None)
        try:
            if doctor or kw:
                return _simulate(folder, document, defect, time_scale, *doctor, **kw)
            said = orjson.dumps([document, defect, time_scale], option=orjson.OPT_SORT_KEYS, default=str)
            kept = self.work / "trials" / hashlib.blake2b(said, digest_size=12).hexdigest()
            if not kept.exists():
                making = kept.with_name(f"{kept.name}.{os.getpid()}")
                making.mkdir(parents=True)
                _simulate(making, document, defect, time_scale)
                making.rename(kept)
            shutil.copytree(kept, folder, dirs_exist_ok=True)
            return read_trial(folder)
        finally:
            sys.settrace(tracer)

    def look(self, only: Sequence[str], tell: Callable[[str], None]) -> dict[str, Seen]:
        """Runs the tests that were not yet looked at, with a trace, in a fork."""
        record = self.work / "seen.jsonl"
        done = _seen(record)
        missing = [nodeid for nodeid in only if nodeid not in done]
        if missing:
            tell(f"looking at {len(missing)} tests")
            _forked(lambda: self._trace(missing, record), float("inf"))
            done = _seen(record)
        return {nodeid: done[nodeid] for nodeid in only if nodeid in done}

    def _trace(self, wanted: Sequence[str], record: Path) -> str:
        inside = {f"{ROOT}/{place}/" for place in PLACES}
        lines: dict[str, set[int]] = {}

        def local(frame: Any, event: str, argument: Any) -> Any:
            lines.setdefault(frame.f_code.co_filename, set()).add(frame.f_lineno)
            return local

        def entered(frame: Any, event: str, argument: Any) -> Any:
            name = frame.f_code.co_filename
            return local(frame, event, argument) if name.rpartition("/")[0] + "/" in inside else None

        with record.open("ab") as file:
            for place, nodeid in enumerate(wanted):
                lines.clear()
                after = self.items[wanted[place + 1]] if place + 1 < len(wanted) else None
                begun = time.process_time()
                sys.settrace(entered)
                passed = self.run(self.items[nodeid], after)
                sys.settrace(None)
                ran = {Path(n).relative_to(ROOT).with_suffix("").as_posix(): sorted(each) for n, each in lines.items()}
                took_s = round(time.process_time() - begun, 4)
                row = {"test": nodeid, "of": _written(nodeid), "cpu_s": took_s, "passed": passed, "lines": ran}
                file.write(orjson.dumps(row) + b"\n")
                file.flush()
        return ""

    def against(self, lay: Callable[[], None], tests: Sequence[str], cpu_s: float) -> Outcome:
        """The tests, in this order, against what `lay` changes. cpu_s: what they take when nothing is wrong."""
        chosen = [(nodeid, self.items[nodeid]) for nodeid in tests]

        def child() -> str:
            try:
                lay()
            except Exception as error:
                return f"0|does not load: {type(error).__name__}"
            for place, (nodeid, item) in enumerate(chosen):
                if not self.run(item, chosen[place + 1][1] if place + 1 < len(chosen) else None):
                    return f"{place + 1}|{nodeid}"
            return f"{len(chosen)}|"

        said, took_s = _forked(child, 3 * cpu_s + _LEAST_CPU_S)
        ran, _, by = said.partition("|")
        return Outcome(by, int(ran or 0), len(tests), took_s)


def _seen(record: Path) -> dict[str, Seen]:
    if not record.exists():
        return {}
    rows = [orjson.loads(line) for line in record.read_bytes().splitlines()]
    return {
        row["test"]: Seen(row["cpu_s"], row["passed"], {m: frozenset(n) for m, n in row["lines"].items()})
        for row in rows
        if row["of"] == _written(row["test"])
    }


@cache
def _written(nodeid: str) -> str:
    """Of the file that a test is in: what it ran when it was written otherwise says nothing. Empty for a cell."""
    path = ROOT / nodeid.partition("::")[0]
    return hashlib.blake2b(path.read_bytes(), digest_size=6).hexdigest() if path.is_file() else ""


def _forked(work: Callable[[], str], cpu_s: float) -> tuple[str, float]:
    """What `work` returns, of a fork that has so much processor time; and what it took. One that never ends, or takes
    the process with it, says so."""
    mine, its = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(mine)
        said = "0|broke"
        try:
            if cpu_s != float("inf"):
                most = int(cpu_s) + 1
                resource.setrlimit(resource.RLIMIT_CPU, (most, most + 1))
                signal.signal(signal.SIGXCPU, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            nothing = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(nothing, number)
            said = work()
        finally:
            os.write(its, said.encode()[:4000])
            os._exit(0)
    os.close(its)
    with os.fdopen(mine, "rb") as pipe:
        said = pipe.read().decode()
    _, _, used = os.wait4(pid, 0)
    return said or "0|ran out of time, or ended the process", used.ru_utime + used.ru_stime
