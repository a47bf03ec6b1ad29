"""Half of a defect: laid over every other decision it is still a breach, and still seen.

Only those of which half is a breach in every trial of this length; the others, and weaker forms, are counted by
`benchmarks.judge` (docs/trust.md)."""

from __future__ import annotations

import pytest

from harness.checks.verdict import Word
from harness.matrix import judge_in_virtual_time, numbered, profile_of_defect
from harness.profile.loader import load
from stub_service.defects import strengths
from stub_service.defects.registry import DEFECTS

HALF = (
    "holds_slot_while_waiting",
    "expiry_with_grace",
    "circuit_blind_to_failures",
    "circuit_blind_to_latency",
    "refusals_unrecorded",
)


@pytest.mark.parametrize("name", HALF)
def test_every_other_decision_wrong_is_seen(monkeypatch, name):
    half = strengths.diluted(DEFECTS[name], 2)
    monkeypatch.setitem(DEFECTS, half.name, half)
    check = half.caught_by[0]
    for number in (1, 2):
        document = numbered(load(profile_of_defect(DEFECTS[name])).document, number)
        found = judge_in_virtual_time(document, half.name, [check]).of(check)
        assert found.word is Word.FAIL, (number, found.sentence)
