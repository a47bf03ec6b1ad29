"""What a trial shows of the cost of runs (docs/cost.md): admitted, refused at which pool, and how it was settled.

Made of the layer's own decisions of kind `cost`, its words and no judgement; what arrived is held against them by the
checks of cost. Pure. Rows may lack any key.

- forecast, used: tokens that runs were admitted for, and that they were charged when settled;
- lowest balance: of the tenant's bucket, just after a decision; below zero: a debt. None: it has no bucket;
- session wait: of runs that were admitted, by size class, as the layer tells it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from harness.checks.cost_rows import KIND, MEMORY, POOLS, SESSIONS, TOOLS
from harness.ledger.evidence import Row
from harness.report.summary import Times, times_of

REFUSED_AT = (*POOLS, "deadline")
MOST_TENANTS, MOST_OTHERS = 40, 4


@dataclass(frozen=True, slots=True)
class CostRow:
    """One tenant. refused: pool (or `deadline`) -> runs."""

    tenant: str
    admitted: int
    refused: dict[str, int]
    settled: int
    forecast: int
    used: int
    lowest_balance: float | None


@dataclass(frozen=True, slots=True)
class SizeRow:
    """One size class: `short`, `standard` or `batch`."""

    size_class: str
    admitted: int
    refused: int
    wait: Times


@dataclass(frozen=True, slots=True)
class Costs:
    """most: sessions, memory, tools in use, and runs in the queue at once. left_out: tenants without a row."""

    tenants: tuple[CostRow, ...]
    sizes: tuple[SizeRow, ...]
    most: dict[str, int]
    oldest_ns: int
    left_out: int

    @property
    def pools(self) -> list[str]:
        """Those that refused a run, in the order in which they are claimed; a layer of its own may have others."""
        named = {pool for row in self.tenants for pool in row.refused}
        known = [pool for pool in REFUSED_AT if pool in named]
        return [*known, *sorted(named - set(known))[:MOST_OTHERS]]

    @property
    def refused(self) -> int:
        return sum(sum(row.refused.values()) for row in self.tenants)


def costs_of(decisions: Iterable[Row]) -> Costs | None:
    """None where cost is not counted."""
    rows = [row for row in decisions if row.get("kind") == KIND]
    if not rows:
        return None
    by_tenant: dict[str, list[Row]] = defaultdict(list)
    by_size: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_tenant[str(row.get("tenant", "(not told)"))].append(row)
        by_size[str(row.get("size_class", "(not told)"))].append(row)
    busiest = sorted(by_tenant, key=lambda tenant: -len(by_tenant[tenant]))
    return Costs(
        tenants=tuple(_tenant(tenant, by_tenant[tenant]) for tenant in sorted(busiest[:MOST_TENANTS])),
        sizes=tuple(_size(size, by_size[size]) for size in sorted(by_size, key=_order)),
        most={what: max((_whole(row, what) for row in rows), default=0) for what in (SESSIONS, MEMORY, TOOLS, "queue")},
        oldest_ns=max((_whole(row, "queue_age_ns") for row in rows), default=0),
        left_out=max(0, len(busiest) - MOST_TENANTS),
    )


def _whole(row: Row, key: str) -> int:
    value = row.get(key)
    return int(value) if isinstance(value, int | float) else 0


def _order(size: str) -> tuple[int, str]:
    known = ("short", "standard", "batch")
    return (known.index(size) if size in known else len(known), size)


def _tenant(tenant: str, rows: Sequence[Row]) -> CostRow:
    admitted = [row for row in rows if row.get("outcome") == "admitted"]
    settled = [row for row in rows if row.get("outcome") == "settled"]
    refused = Counter(str(row.get("reason")) for row in rows if row.get("outcome") == "refused")
    balances = [float(row["balance"]) for row in rows if isinstance(row.get("balance"), int | float)]
    return CostRow(
        tenant=tenant,
        admitted=len(admitted),
        refused=dict(refused.most_common()),
        settled=len(settled),
        forecast=sum(_whole(row, "forecast") for row in admitted),
        used=sum(_whole(row, "actual") for row in settled),
        lowest_balance=min(balances, default=None),
    )


def _size(size: str, rows: Sequence[Row]) -> SizeRow:
    admitted = [row for row in rows if row.get("outcome") == "admitted"]
    waits = [_whole(row, "queue_wait_ns") for row in admitted if row.get("queue_wait_ns") is not None]
    refused = sum(row.get("outcome") == "refused" for row in rows)
    return SizeRow(size, len(admitted), refused, times_of(np.array(waits, dtype=np.int64)))


def costs_json(costs: Costs) -> dict[str, Any]:
    """Keys as in `Costs`."""
    return asdict(costs)
