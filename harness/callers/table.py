"""Who retried and how often, in figures: one row a kind of call, for the report and for machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.callers.calls import Call
from harness.callers.layers import layers_of

MOST_ROWS = 40
SIDE_BY_SIDE = "nothing: side by side"


@dataclass(frozen=True, slots=True)
class Row:
    """what: method, path and operation. owners: layers that retry, at most seen. gaps_s: shortest and longest pause
    before a further attempt. keys: `none`, `same`, `new each time`. by: what joined the attempts. agent: user agent."""

    what: str
    identity: str
    agent: str
    calls: int
    attempts: int
    most: int
    served: int
    owners: int
    inner: int
    outer: int
    inferred: bool
    shortest_s: float | None
    longest_s: float | None
    keys: str
    effects: int
    by: str


def rows_of(calls: Sequence[Call]) -> list[Row]:
    """The busiest first, at most MOST_ROWS."""
    groups: dict[tuple[str, str, str], list[Call]] = {}
    for call in calls:
        first = call.attempts[0]
        what = f"{first.method} {first.path}" + (f" {first.operation}" if first.operation else "")
        groups.setdefault((what, first.identity, first.said.get("agent", "")), []).append(call)
    rows = [_row(*name, group) for name, group in groups.items()]
    return sorted(rows, key=lambda row: -row.attempts)[:MOST_ROWS]


def _row(what: str, identity: str, agent: str, calls: list[Call]) -> Row:
    layers = max((layers_of(call) for call in calls), key=lambda found: (found.owners, found.inner * found.outer))
    gaps = [gap / 1e9 for call in calls for gap in call.gaps_ns()]
    return Row(
        what,
        identity,
        agent,
        len(calls),
        sum(len(call.attempts) for call in calls),
        max(len(call.attempts) for call in calls),
        sum(not call.failed for call in calls),
        layers.owners,
        layers.inner,
        layers.outer,
        layers.inferred or any(call.inferred for call in calls),
        min(gaps, default=None),
        max(gaps, default=None),
        _keys(calls),
        sum(len({a.effect for a in call.attempts if a.effect is not None}) for call in calls),
        ", ".join(dict.fromkeys(SIDE_BY_SIDE if call.crowded else call.by for call in calls)),
    )


def _keys(calls: Sequence[Call]) -> str:
    if all(a.key is None for call in calls for a in call.attempts):
        return "none"
    several = any(len({a.key for a in call.attempts}) > 1 for call in calls)
    return "new each time" if several else "same"
