"""The vendored chart library is the one that docs/decisions/0002-charts.md says it is."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUMS = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uPlot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}


@pytest.mark.parametrize("name", SUMS)
def test_assets_are_as_published(name: str) -> None:
    content = (ROOT / "harness/report/assets" / name).read_bytes()
    assert hashlib.sha256(content).hexdigest() == SUMS[name]
    assert f"`{name}` |" in (ROOT / "docs/decisions/0002-charts.md").read_text("utf-8")
    assert SUMS[name] in (ROOT / "docs/decisions/0002-charts.md").read_text("utf-8")
