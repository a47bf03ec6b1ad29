"""Every downstream call of a workflow, listed: what it depends on, how often, how slowly, and how often again.

The first thing to know before a rollout. A row is a dependency, a method and a path whose ids are collapsed:

    /v1/customers/1234/bills -> /v1/customers/{id}/bills

A retry is told where the evidence tells of it (an attempt above 1, `http.request.resend_count`), and otherwise
inferred: the same call of the same workflow that begins after one of them failed, at most RETRY_WITHIN_NS later.
Quantiles are good to 5 %. Bounded: beyond MOST_ROWS rows, a dependency's further paths share one; beyond
MOST_WORKFLOWS, workflows are no longer told apart. Paths only ever come in without their query.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from harness.recorded.learn import Waits

MOST_ROWS = 2_000
MOST_WORKFLOWS = 200_000
RETRY_WITHIN_NS = 60_000_000_000
OTHER_PATHS = "(other paths)"
_MOST_PARTS = 12
_REMEMBERED = 100_000

_ID = re.compile(
    r"\d+|[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
    r"|(?=[^0-9]*\d)[0-9a-fA-F]{8,}|(?=\D*\d)[A-Za-z0-9_=-]{20,}|[A-Za-z]{1,12}[_-]\d[A-Za-z0-9_-]*|.*[@%].*|.{60,}",
    re.ASCII | re.DOTALL,
)


def template(path: str) -> str:
    """The path with what looks like an id collapsed; at most _MOST_PARTS parts."""
    parts = path.partition("?")[0].split("/")
    shown = ["{id}" if part and _ID.fullmatch(part) else part for part in parts[: _MOST_PARTS + 1]]
    return "/".join(shown) + ("/…" if len(parts) > _MOST_PARTS + 1 else "")


@dataclass(frozen=True, slots=True)
class Seen:
    """One call to a dependency. workflow: the run, trace or page that it belongs to. same: what makes it the same call
    when it is tried again. took_ns: -1 unknown. attempt: from 1, 0: not told."""

    at_ns: int
    dependency: str
    method: str
    path: str
    workflow: str
    same: str
    took_ns: int = -1
    failed: bool = False
    attempt: int = 0


@dataclass(slots=True)
class Row:
    """retries: told or inferred. in_workflows: calls of each workflow."""

    dependency: str
    method: str
    path: str
    calls: int = 0
    errors: int = 0
    retries: int = 0
    took: Waits = field(default_factory=Waits)
    in_workflows: dict[str, int] = field(default_factory=dict)

    @property
    def most(self) -> int:
        return max(self.in_workflows.values(), default=0)

    @property
    def mean(self) -> float:
        """Calls of a workflow that makes any."""
        return sum(self.in_workflows.values()) / len(self.in_workflows) if self.in_workflows else 0.0


@dataclass(slots=True)
class Listing:
    """rows: by dependency, method and path. workflows: all calls of each. pooled: calls whose path got no row."""

    rows: dict[tuple[str, str, str], Row] = field(default_factory=dict)
    workflows: dict[str, int] = field(default_factory=dict)
    calls: int = 0
    pooled: int = 0

    def ranked(self) -> list[Row]:
        return sorted(self.rows.values(), key=lambda row: (-row.calls, row.dependency, row.path, row.method))


def listing(seen: Iterable[Seen]) -> Listing:
    """seen: in order of time within a workflow."""
    found = Listing()
    failed_at: dict[tuple[str, str], int] = {}
    for one in seen:
        row = _row(found, one)
        found.calls += 1
        row.calls += 1
        row.errors += one.failed
        if one.took_ns >= 0:
            row.took.add(one.took_ns)
        again = (one.workflow, one.same)
        before_ns = failed_at.pop(again, None)
        inferred = before_ns is not None and 0 <= one.at_ns - before_ns <= RETRY_WITHIN_NS
        row.retries += one.attempt > 1 if one.attempt else inferred
        if one.failed:
            if len(failed_at) >= _REMEMBERED:
                failed_at.clear()
            failed_at[again] = one.at_ns + max(0, one.took_ns)
        workflow = one.workflow
        if workflow not in found.workflows and len(found.workflows) >= MOST_WORKFLOWS:
            workflow = ""
        found.workflows[workflow] = found.workflows.get(workflow, 0) + 1
        row.in_workflows[workflow] = row.in_workflows.get(workflow, 0) + 1
    return found


def _row(found: Listing, one: Seen) -> Row:
    key = (one.dependency, one.method, template(one.path))
    row = found.rows.get(key)
    if row is None:
        if len(found.rows) >= MOST_ROWS:
            found.pooled += 1
            known = (one.dependency, "", OTHER_PATHS)
            key = known if len(found.rows) < 2 * MOST_ROWS or known in found.rows else ("(others)", "", OTHER_PATHS)
        row = found.rows.setdefault(key, Row(*key))
    return row


def as_json(found: Listing) -> dict[str, Any]:
    per_workflow = list(found.workflows.values())
    return {
        "calls": found.calls,
        "workflows": len(per_workflow),
        "calls_per_workflow": {
            "mean": found.calls / len(per_workflow) if per_workflow else None,
            "max": max(per_workflow, default=None),
        },
        "pooled_calls": found.pooled,
        "downstream": [
            {
                "dependency": row.dependency,
                "method": row.method,
                "path": row.path,
                "calls": row.calls,
                "share": row.calls / found.calls,
                "p50_ns": row.took.quantile_ns(0.5),
                "p95_ns": row.took.quantile_ns(0.95),
                "timed_calls": row.took.count,
                "errors": row.errors,
                "retries": row.retries,
                "workflows": len(row.in_workflows),
                "per_workflow": {"mean": row.mean, "max": row.most},
            }
            for row in found.ranked()
        ],
    }
