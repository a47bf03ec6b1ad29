"""The pytest plugin: `overload_case` drives one verification situation in a test; options begin with `--overload-`.

    def test_retries_have_one_owner(overload_case):
        overload_case("v05")

FAIL, INCONCLUSIVE and INVALID are failures with different words, because pytest owns its exit codes. It is loaded in
every pytest run of a project that names it (`-p harness.pytest_plugin`), so nothing but pytest is imported before a
test asks for a situation. It must never import locust, which patches the process.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from harness.checks.verdict import Verdict
    from harness.verify import Outcome

TARGET, ALLOW, REPORTS = "--overload-target", "--overload-allow-inconclusive", "--overload-reports"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("overload", "overload: verification of a capacity layer")
    group.addoption(TARGET, default="stub", metavar="stub|URL|FILE", help="What is verified; default: a stub.")
    group.addoption(ALLOW, action="store_true", help="INCONCLUSIVE skips a test instead of failing it.")
    group.addoption(REPORTS, metavar="DIR", help="Where the trials' folders are made; default: a temporary folder.")


@pytest.fixture
def overload_case(
    request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Outcome]:
    """overload_case(name) drives the situation over HTTP, judges it, and fails the test unless all is PASS.

    Under pytest-xdist each worker has a stub of its own, and a situation that measures latency has no other beside it.
    """

    def drive(name: str) -> Outcome:
        from harness import verify
        from harness.cli.verify import target_of
        from harness.errors import BadInput

        config = request.config
        target, folder = str(config.getoption(TARGET)), config.getoption(REPORTS)
        try:
            options = verify.Options(Path(folder) if folder else tmp_path, target_of(target))
            (case,) = verify.chosen(name)
            if (withheld := verify.withheld(case, options)) is not None:
                tell([withheld], options.reports, bool(config.getoption(ALLOW)))
            with beside_others(tmp_path_factory.getbasetemp().parent / "overload.lock", case.alone):
                (outcome,) = verify.run([case], options)
        except BadInput as error:
            pytest.fail(f"BAD INPUT: {error}", pytrace=False)
        tell([outcome.verdict, *outcome.judged.verdicts], outcome.judged.trial.folder, bool(config.getoption(ALLOW)))
        return outcome

    return drive


@contextmanager
def beside_others(lock: Path, alone: bool) -> Iterator[None]:
    """Waits until the situation may run: `alone`, or beside others that need not be. Nothing without workers."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    with lock.open("a") as file:  # closing it gives it back, however the test ends
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


def tell(verdicts: list[Verdict], folder: Path, allow_inconclusive: bool) -> None:
    """Fails the running test with the worst verdict's word, or skips it if that is INCONCLUSIVE and may be."""
    from harness.checks.verdict import Word, worst
    from harness.report.junit import details

    word = worst(verdict.word for verdict in verdicts)
    if word is Word.PASS:
        return
    telling = next(verdict for verdict in verdicts if verdict.word is word)
    said = "\n  ".join([f"{word.value} {telling.check}", *details(telling, str(folder))])
    if word is Word.INCONCLUSIVE and allow_inconclusive:
        pytest.skip(said)
    pytest.fail(said, pytrace=False)
