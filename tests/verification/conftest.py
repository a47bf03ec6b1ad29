"""The ten as `overload verify` drives them: those that measure no latency two at a time, when one is asked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness import trial, verify
from harness.pytest_plugin import ALLOW, REPORTS, tell


@pytest.fixture(scope="session")
def side_by_side(request, overload_target, tmp_path_factory):
    """Name -> outcome, of the selected situations that need not be alone; none where they may not, or where each worker
    runs tests of its own choice."""
    config = request.config
    spread = "PYTEST_XDIST_WORKER" in os.environ and not getattr(config.option, "loadgroup", False)
    if overload_target != trial.STUB or spread:
        return {}
    asking = [item.name for item in request.session.items if "overload_case" in item.fixturenames]
    selected = {name.removeprefix("test_") for name in asking}
    cases = [case for case in verify.CASES if case.name in selected and not case.alone]
    folder = Path(config.getoption(REPORTS) or tmp_path_factory.mktemp("verification"))
    return {outcome.case.name: outcome for outcome in verify.run(cases, verify.Options(folder, overload_target))}


@pytest.fixture
def overload_case(request, overload_case, side_by_side):
    """The plugin's own, which drives a situation now, unless it has been driven."""

    def drive(name):
        if name not in side_by_side:
            return overload_case(name)
        outcome = side_by_side[name]
        tell(
            [outcome.verdict, *outcome.judged.verdicts], outcome.judged.trial.folder,
            bool(request.config.getoption(ALLOW)),
        )  # fmt: skip
        return outcome

    return drive
