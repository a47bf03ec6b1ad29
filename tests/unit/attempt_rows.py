"""Calls of several attempts for ledgers that are written row by row (`written`): when each was, and how it ended."""

from __future__ import annotations

from typing import Any

from harness.checks.verdict import Finding, Verdict
from tests.unit.ledgers import Rows

MS, S = 1_000_000, 1_000_000_000


def tried(call: str, *attempts: tuple[int, str], **told: Any) -> Rows:
    """The rows of one call. attempts: (when it is due, how it ends); it ends at once. told: of each row."""
    rows: Rows = []
    for number, (at_ns, outcome) in enumerate(attempts, start=1):
        row = {"call": call, "attempt": number, "due_ns": attempts[0][0], "sent_ns": at_ns, "done_ns": at_ns}
        again = {"again_ns": at_ns} if number > 1 else {}
        followed = {"retried": True} if number < len(attempts) else {}
        rows.append({**row, "outcome": outcome, "status": 200, **again, **followed, **told})
    return rows


def finding(verdict: Verdict, quantity: str, subject: str | None = None) -> Finding:
    return next(f for f in verdict.findings if f.quantity == quantity and subject in (None, f.subject))
