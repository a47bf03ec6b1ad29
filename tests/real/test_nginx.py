"""nginx with limit_req and limit_conn, keyed by tenant (fair) and by address (not): docs/examples/nginx."""

from __future__ import annotations

import pytest

from harness.checks.verdict import Word
from tests.real.services import example, nginx, sound, stub

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("services")]


@pytest.fixture
def one(tmp_path):
    return example("nginx", tmp_path)


def test_limits_by_tenant_keep_a_runaway_to_itself(one):
    with stub(one), nginx(one, "by-tenant.conf"):
        verdicts = one.drive()
    sound(verdicts)
    assert verdicts["fairness.ordinary_unmoved"].word is Word.PASS, verdicts["fairness.ordinary_unmoved"].sentence
    refusals = verdicts["fairness.refusals_structured"]
    assert refusals.word is Word.FAIL
    assert "without a readable Retry-After" in refusals.sentence


def test_a_limit_by_address_is_one_for_all(one):
    with stub(one), nginx(one, "by-address.conf"):
        verdicts = one.drive()
    sound(verdicts)
    unmoved = verdicts["fairness.ordinary_unmoved"]
    assert unmoved.word is Word.FAIL
    broken = {finding.quantity for finding in unmoved.findings if finding.word is Word.FAIL}
    assert {"served share down", "refusals up"} <= broken  # whichever is the larger is in the sentence


def test_refusals_that_say_when_to_come_back(one):
    """The fair limits, and a refusal that a program can act on."""
    with stub(one), nginx(one, "told.conf"):
        verdicts = one.drive()
    sound(verdicts)
    assert [v.sentence for v in verdicts.values() if v.word is not Word.PASS] == []
