"""The kill matrix of callers: each check of the family `agent` fails its defects and passes the twins, three times."""

from __future__ import annotations

import pytest

from harness import matrix
from harness.checks import CHECKS
from stub_service.defects.registry import CALLER, DEFECTS

OF_CALLERS = [defect for defect in DEFECTS.values() if defect.part == CALLER]
HEALTHY = sorted({matrix.profile_of_defect(defect) for defect in OF_CALLERS})


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("defect", OF_CALLERS, ids=lambda defect: defect.name)
def test_a_defect_is_caught_and_a_twin_is_not(defect, number):
    row = matrix.judge_job(matrix.Job(matrix.profile_of_defect(defect), defect.name, number))
    assert row.right, (row.missed, [verdict.sentence for verdict in row.alarms])


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.stem)
def test_callers_that_keep_their_rules_pass(path, number):
    row = matrix.judge_job(matrix.Job(path, None, number))
    assert row.right, [verdict.sentence for verdict in row.alarms]


def test_every_check_of_callers_has_defects_and_a_twin():
    asked = {check for check in CHECKS if check.startswith("agent.")} - {"agent.replan_share", "agent.budget_at_source"}
    assert {check for defect in OF_CALLERS for check in defect.caught_by} == asked
    assert {check for defect in OF_CALLERS for check in defect.twin_of} == asked
