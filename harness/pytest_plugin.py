"""The pytest plugin: `overload_case` drives one verification situation in a test; options begin with `--overload-`.

    def test_retries_have_one_owner(overload_case):
        overload_case("v05")

FAIL, INCONCLUSIVE and INVALID are failures with different words, because pytest owns its exit codes. It is loaded in
every pytest run of a project that names it (`-p harness.pytest_plugin`), so nothing but pytest is imported before a
test asks for a situation. It must never import locust, which patches the process.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from harness.checks.verdict import Verdict
    from harness.verify import Outcome

TARGET, ALLOW, REPORTS = "--overload-target", "--overload-allow-inconclusive", "--overload-reports"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("overload", "overload: verification of a capacity layer")
    group.addoption(TARGET, default="stub", metavar="stub|URL", help="What is verified; default: a stub of its own.")
    group.addoption(ALLOW, action="store_true", help="INCONCLUSIVE skips a test instead of failing it.")
    group.addoption(REPORTS, metavar="DIR", help="Where the trials' folders are made; default: a temporary folder.")


@pytest.fixture
def overload_case(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Outcome]:
    """overload_case(name) drives the situation over HTTP, judges it, and fails the test unless all is PASS."""

    def drive(name: str) -> Outcome:
        from harness import verify
        from harness.cli.verify import check_target
        from harness.errors import BadInput

        config = request.config
        target, folder = str(config.getoption(TARGET)), config.getoption(REPORTS)
        try:
            check_target(target)
            options = verify.Options(Path(folder) if folder else tmp_path, target)
            (outcome,) = verify.run(verify.chosen(name), options)
        except BadInput as error:
            pytest.fail(f"BAD INPUT: {error}", pytrace=False)
        tell([outcome.verdict, *outcome.judged.verdicts], outcome.judged.trial.folder, bool(config.getoption(ALLOW)))
        return outcome

    return drive


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
