"""The checks by name. A check is a pure function of a trial and its parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.checks.verdict import Verdict
from harness.ledger.reader import Trial
from harness.profile.base import Part


@dataclass(frozen=True, slots=True)
class Check:
    """name: `family.rule`. judges: one line. needs: the evidence without which it is INCONCLUSIVE."""

    name: str
    judges: str
    needs: str
    params: type[Part]
    judge: Callable[[Trial, Any], Verdict]


CHECKS: dict[str, Check] = {}
"""Filled by `harness.checks` (its __init__ names every check module)."""
