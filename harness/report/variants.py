"""Rows of a table that compares variants of one profile: what was measured, what an ensemble gave, what was published.

Plain values, filled by whoever ran the variants; shown by terminal.worked_example_table and as JSON here. A single
trajectory of an overloaded service is not a prediction: that is why a row can carry an ensemble's median and range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FIELDS = ("ordinary_served", "worst_ordinary", "agent_offers", "replans", "held_back", "worker_seconds")
SHARES = ("ordinary_served", "worst_ordinary")
"""Fields between 0 and 1; the others are counts, worker_seconds a time."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Of one field over an ensemble."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class VariantRow:
    """One variant. A field that was not measured is None. word: its verdict, if it was judged.

    ensemble: field -> Spread over `trials` trials. published: field -> published value; None or no key: not published.
    """

    name: str
    ordinary_served: float | None
    worst_ordinary: float | None
    agent_offers: int | None
    replans: int | None
    held_back: int | None
    worker_seconds: float | None
    word: str | None = None
    trials: int = 0
    ensemble: Mapping[str, Spread] = field(default_factory=dict)
    published: Mapping[str, float | None] = field(default_factory=dict)

    def values(self) -> dict[str, float | None]:
        return {name: getattr(self, name) for name in FIELDS}


def variants_json(rows: Sequence[VariantRow]) -> list[dict[str, Any]]:
    """The table for machines: shares between 0 and 1, `worker_seconds` in seconds, null where not measured."""
    return [
        {
            "name": row.name,
            "verdict": row.word,
            **row.values(),
            "ensemble": {
                "trials": row.trials,
                **{name: {"median": s.median, "low": s.low, "high": s.high} for name, s in row.ensemble.items()},
            }
            if row.ensemble
            else None,
            "published": {name: row.published.get(name) for name in FIELDS if name in row.published} or None,
        }
        for row in rows
    ]
