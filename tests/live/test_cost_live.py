"""What runs cost over real HTTP: each check passes the healthy stub, and fails one of its defects."""

from __future__ import annotations

import pytest

from harness.ledger.reader import DECISIONS, rows_of
from harness.matrix import profile_of_check
from tests.live.driving import drive_all, loaded, must_fail, must_pass

pytestmark = pytest.mark.live

FAILS = {
    "cost.bucket_per_tenant": "cost_one_bucket",
    "cost.reconciled": "cost_crash_never_settles",
    "cost.unwound": "cost_rate_before_concurrency",
    "cost.size_class": "cost_one_queue",
    "cost.corridor": "cost_admits_too_much",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cost_live")


@pytest.fixture(scope="module")
def driven(folder):
    """All trials, two side by side: what is judged are counts and ratios."""
    trials = [*FAILS.items(), *((check, None) for check in FAILS)]
    return drive_all({(check, defect): (loaded(profile_of_check(check)), defect) for check, defect in trials}, folder)


@pytest.mark.parametrize("check", FAILS)
def test_the_healthy_stub_passes(driven, check):
    must_pass(driven[check, None])


@pytest.mark.parametrize(("check", "defect"), FAILS.items())
def test_its_defect_fails_it(driven, check, defect):
    assert must_fail(driven[check, defect], check).witnesses


def test_the_record_tells_forecast_actual_and_balance(driven, folder):
    must_pass(driven["cost.reconciled", None])
    rows = [row for path in folder.glob(f"*/{DECISIONS}") for row in rows_of(path) if row.get("kind") == "cost"]
    assert {row["outcome"] for row in rows} == {"queued", "admitted", "refused", "settled"}
    for row in rows:
        assert {"tenant", "request_class", "size_class", "forecast", "sessions", "queue_age_ns"} <= row.keys()
        assert ("actual" in row) == (row["outcome"] == "settled")
    assert any("balance" in row for row in rows)
