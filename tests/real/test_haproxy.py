"""HAProxy with a queue, limits by tenant and priority classes: docs/examples/haproxy."""

from __future__ import annotations

import pytest

from harness.checks.verdict import Word
from tests.real.services import example, installed, running, sound, stub

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("services")]
UNMOVED, REFUSALS, HELD = "fairness.ordinary_unmoved", "fairness.refusals_structured", "fairness.limit_held"


def judged(tmp_path, config):
    one = example("haproxy", tmp_path)
    command = [installed("haproxy"), "-f", str(one.folder / "common.cfg"), "-f", str(one.folder / config)]
    with stub(one), running(command, one.address(8080), one.folder):
        verdicts = one.drive()
    sound(verdicts)
    return verdicts


def test_limits_by_tenant_keep_a_runaway_to_itself(tmp_path):
    verdicts = judged(tmp_path, "limits.cfg")
    assert [v.sentence for v in verdicts.values() if v.word is not Word.PASS] == []


def test_a_queue_alone_shares_the_wait(tmp_path):
    verdicts = judged(tmp_path, "fifo.cfg")
    assert verdicts[UNMOVED].word is Word.FAIL
    broken = {finding.quantity for finding in verdicts[UNMOVED].findings if finding.word is Word.FAIL}
    assert "mean wait up" in broken
    assert verdicts[REFUSALS].word is Word.INCONCLUSIVE  # nobody was refused
    assert verdicts[HELD].word is Word.FAIL  # there is no limit


def test_a_limit_that_counts_what_it_refuses_is_a_ban(tmp_path):
    verdicts = judged(tmp_path, "ban.cfg")
    assert verdicts[UNMOVED].word is Word.PASS
    assert verdicts[HELD].word is Word.FAIL
    assert "counts refused calls" in verdicts[HELD].sentence
