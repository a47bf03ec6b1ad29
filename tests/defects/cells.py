"""What the tests of the kill matrix share: which defects and twins are a family's, and what a cell got wrong."""

from __future__ import annotations

from stub_service.defects.registry import DEFECTS


def broken_of(checks):
    """Defects whose first check is one of these."""
    return [name for name, defect in DEFECTS.items() if set(defect.caught_by[:1]) & set(checks)]


def twins_of(checks):
    """Healthy twins that look suspicious to one of these first."""
    return [name for name, defect in DEFECTS.items() if set(defect.twin_of[:1]) & set(checks)]


def told(row):
    """((), []) where a cell is as it must be."""
    return row.missed, [(verdict.check, verdict.word.value, verdict.sentence) for verdict in row.alarms]
