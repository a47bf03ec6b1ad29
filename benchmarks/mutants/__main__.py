from __future__ import annotations

import argparse
import glob
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

import benchmarks.mutants
from benchmarks.mutants import record, table
from benchmarks.mutants.laid import lay, load_again
from benchmarks.mutants.operators import ROOT, Mutant, modules, mutants, source
from benchmarks.mutants.session import TESTS, Seen, Session
from harness.checks import CHECKS
from stub_service.defects.registry import DEFECTS


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.mutants", description=benchmarks.mutants.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    made.add_argument("--results", type=Path, default=record.RESULTS, help="the record (default: %(default)s)")
    commands = made.add_subparsers(dest="command", required=True)
    for name, about in (
        ("plan", "counts mutants"), ("run", "tries those that are not on record"),
        ("survivors", "prints those that nothing noticed, nor anybody justified"), ("table", "prints the figures"),
    ):  # fmt: skip
        one = commands.add_parser(name, help=about)
        one.add_argument("--only", default="", help="beginnings of modules' paths below harness/, with commas")
        if name != "run":
            continue
        one.add_argument("--share", type=float, default=1.0, help="of each module's mutants (%(default)s)")
        one.add_argument("--seed", type=int, default=1, help="which of them (%(default)s)")
        one.add_argument("--again", action="store_true", help="also those that have survived before")
        one.add_argument("--tests", default=",".join(TESTS), help="files, with commas (default: all that judge)")
        one.add_argument("--cells", default="", help="cells of these checks, families or defects; all: of every one "
                         "(default: those of the checks in --only)")  # fmt: skip
        one.add_argument("--most-cpu", type=float, default=10.0, help="seconds of tests for a mutant (%(default)s)")
        one.add_argument("--minutes", type=float, default=None, help="stop after so long")
        one.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "overload-mutants",
                         help="where trials are kept (%(default)s)")  # fmt: skip
    return made


def _chosen(only: str) -> list[Mutant]:
    names = modules(tuple(word.strip() for word in only.split(",") if word.strip()))
    return [mutant for name in names for mutant in mutants(name)]


def _sample(all_of_them: Sequence[Mutant], share: float, seed: int) -> list[Mutant]:
    """The same for the same seed, and a larger share holds the smaller."""
    return [m for m in all_of_them if Random(f"{seed}:{m.key}").random() < share]


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Run:
    """What `run` does once the tests are collected."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._until = time.monotonic() + given.minutes * 60 if given.minutes is not None else float("inf")
        self._killers: dict[tuple[str, str], Counter[str]] = {}

    def __call__(self, session: Session) -> None:
        seen = session.look(list(session.items), _tell)
        broken = [nodeid for nodeid, each in seen.items() if not each.passed]
        if broken:
            _tell(f"left out, they fail without a mutant: {', '.join(broken)}")
        seen = {nodeid: each for nodeid, each in seen.items() if each.passed}
        rows = record.read(self._given.results)
        todo = _sample(_chosen(self._given.only), self._given.share, self._given.seed)
        todo = [m for m in todo if (row := record.of(m, rows)) is None or (self._given.again and not row.by)]
        _tell(f"{len(todo)} mutants, {len(seen)} tests")
        last = ""
        for number, mutant in enumerate(todo):
            if time.monotonic() > self._until:
                _tell(f"time is over; {len(todo) - number} are left")
                return
            if mutant.module != last:
                last = mutant.module
                self._control(session, last, seen)
            self._try(session, mutant, seen)

    def _control(self, session: Session, module: str, seen: dict[str, Seen]) -> None:
        """The module laid over itself: nothing may notice."""
        tests, cpu_s = self._tests(Mutant(module, "", range(0), "", "", 0, 0, 0, True, ""), seen)
        name = module.replace("/", ".")
        code = compile(source(module), str(ROOT / f"{module}.py"), "exec", dont_inherit=True)
        found = session.against(lambda: load_again(sys.modules[name], code), tests, cpu_s)
        _tell(f"{module}: {len(tests)} tests" + (f"; laid over itself it fails {found.by}" if found.by else ""))

    def _tests(self, mutant: Mutant, seen: dict[str, Seen]) -> tuple[list[str], float]:
        """Those that run its line, as many as fit: what has killed others of its function first, then the cheapest."""
        module, killers = mutant.module, self._killers.get((mutant.module, mutant.function), Counter[str]())
        here = {nodeid: each for nodeid, each in seen.items() if module in each.lines}
        running = {
            n: each for n, each in here.items() if mutant.loading or not each.lines[module].isdisjoint(mutant.lines)
        }
        chosen, cpu_s = [], 0.0
        for nodeid in sorted(running, key=lambda n: (-killers[n], running[n].cpu_s)):
            if cpu_s + running[nodeid].cpu_s > self._given.most_cpu:
                break
            chosen.append(nodeid)
            cpu_s += running[nodeid].cpu_s
        return chosen, cpu_s

    def _try(self, session: Session, mutant: Mutant, seen: dict[str, Seen]) -> None:
        tests, cpu_s = self._tests(mutant, seen)
        found = session.against(lambda: lay(mutant), tests, cpu_s)
        if found.by.startswith(("tests/", "cell ")):
            self._killers.setdefault((mutant.module, mutant.function), Counter())[found.by] += 1
        row = record.Row(mutant.key, mutant.line, found.by, found.ran, found.of, found.cpu_s, mutant.body)
        record.append(row, self._given.results)


def _cells(given: argparse.Namespace) -> list[str]:
    """Those of the checks that the chosen modules hold: of helpers, of every check that the kill matrix puts to the
    test."""
    caught = list(dict.fromkeys(check for one in DEFECTS.values() for check in (*one.caught_by, *one.twin_of)))
    if given.cells:
        return [] if given.cells == "none" else caught if given.cells == "all" else given.cells.split(",")
    chosen = {name.replace("/", ".") for name in modules(tuple(given.only.split(",")))}
    own = [name for name, check in CHECKS.items() if check.judge.__module__ in chosen]
    return [name for name in own if name in caught] if len(own) == len(chosen) else caught


def _run(given: argparse.Namespace) -> int:
    files = [path for pattern in given.tests.split(",") for path in sorted(glob.glob(pattern, root_dir=ROOT))]
    work = given.work / record.fingerprint()
    work.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory() as base:
        return int(pytest.main(
            ["-q", "-s", "-p", "no:xdist", "-p", "no:cacheprovider", "-p", "no:faulthandler", f"--basetemp={base}/t",
             "--assert=plain", "--tb=native", *files],
            plugins=[Session(work, _cells(given), Run(given))],
        ))  # fmt: skip


def main() -> int:
    given = _parser().parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if given.command == "run":
            return _run(given)
        chosen, rows = _chosen(given.only), record.read(given.results)
        print({"plan": table.plan, "survivors": table.survivors, "table": table.figures}[given.command](chosen, rows))
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
