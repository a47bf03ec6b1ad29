"""What a capacity controller and the dependencies behind it are made of: frozen values that travel as JSON.

All times in integer nanoseconds. The harness makes these from a profile's `capacity:` and `faults:`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from stub_service.capacity.cost_config import CostConfig, Quota, Usage, cost_from_json, usages_from_json
from stub_service.capacity.tree import NO_LIMITS, Prices, TreeLimits

TRAFFIC_CLASSES = ("interactive", "approval_resume", "autonomous", "maintenance")
"""In order of precedence: foreground first."""
FOREGROUND = frozenset(("interactive", "approval_resume"))


@dataclass(frozen=True, slots=True)
class Bulkhead:
    """Calls of one dependency and one kind (reads or writes): most running, most waiting, longest a call may take."""

    limit: int
    queue: int
    timeout_ns: int


@dataclass(frozen=True, slots=True)
class Circuit:
    """Over the last `window_ns`, from `min_calls` on: opens when the share of failures reaches `failure_share`, or the
    share of calls slower than `slow_ns` reaches `slow_share`. Open for `open_ns`; then at most `probes` probes in
    flight, and in total until they settle, each holding a lease of `lease_ns`; closes after `close_after` successes in
    a row; a failed probe reopens it."""

    window_ns: int
    min_calls: int
    failure_share: float
    slow_ns: int
    slow_share: float
    open_ns: int
    probes: int
    close_after: int
    lease_ns: int


@dataclass(frozen=True, slots=True)
class Adaptive:
    """AIMD on a bulkhead's limit: plus `increase` after each `window_ns` without trouble, times `decrease` after one
    with latency over `slow_ns` or errors. Never below `lowest` (interactive reserve) or above `highest` (tested)."""

    lowest: int
    highest: int
    increase: int
    decrease: float
    slow_ns: int
    window_ns: int


@dataclass(frozen=True, slots=True)
class Dependency:
    """workers, service_ns and quota: the dependency itself, as the stub serves it. expected_ns: what the controller
    expects of a call (deadline arithmetic). reads, writes: the controller's bulkheads in front of it."""

    name: str
    workers: int
    service_ns: int
    expected_ns: int
    reads: Bulkhead
    writes: Bulkhead
    circuit: Circuit
    adaptive: Adaptive | None = None
    quota: Quota | None = None


@dataclass(frozen=True, slots=True)
class Reserve:
    """Slots of every bulkhead kept for a traffic class. What is unused may be lent to lower classes, down to `floor`
    slots that never are; it is taken back as soon as the class has demand again, or its latency rises."""

    traffic_class: str
    slots: int
    floor: int


@dataclass(frozen=True, slots=True)
class TenantShare:
    """Of a bulkhead's non-reserved slots: how many are kept for this tenant; `queue`: most of its waiting steps."""

    tenant: str
    slots: int
    queue: int


@dataclass(frozen=True, slots=True)
class EnvelopeDefaults:
    """What a run gets that asks for nothing. budgets: (dependency, calls). tree: of a run and all sub-agents below it.
    delegate_cost, tool_cost: what each takes of its credits, 1 unless stated; where cost is counted, a delegation also
    claims a delegate_cost that is stated of its tenant's bucket."""

    deadline_ns: int = 90_000_000_000
    attempts: int = 20
    parallel: int = 3
    retry_tokens: int = 2
    budgets: tuple[tuple[str, int], ...] = ()
    tree: TreeLimits = NO_LIMITS
    delegate_cost: int | None = None
    tool_cost: int | None = None

    @property
    def prices(self) -> Prices:
        return Prices(
            1 if self.delegate_cost is None else self.delegate_cost, 1 if self.tool_cost is None else self.tool_cost
        )


@dataclass(frozen=True, slots=True)
class Retry:
    """Delay before attempt n + 1: base * 2^(n-1), at most `most_ns`, times 1 + uniform(-jitter, +jitter), seeded."""

    base_ns: int
    most_ns: int
    jitter: float


@dataclass(frozen=True, slots=True)
class Recovery:
    """After an outage: starts per second of one dependency while its backlog drains, ramping from `from_per_s` to
    `to_per_s` (the tested capacity) over `ramp_ns`."""

    from_per_s: float
    to_per_s: float
    ramp_ns: int


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong in a dependency, between two instants and for so many calls (0: all).

    kind: `slow` (service time times `factor`), `error` (answers `status`), `retry_after` (answers 429 or `status` with
    the raw header `retry_after`), `commit_then_timeout` (a write commits, and its answer never comes), `outage` (no
    answer but 503 at once), `hang` (no answer ever).
    """

    dependency: str
    kind: str
    from_ns: int = 0
    to_ns: int = 2**62
    times: int = 0
    operation: str = ""
    factor: float = 1.0
    status: int = 0
    retry_after: str = ""


@dataclass(frozen=True, slots=True)
class CapacityConfig:
    """ceiling: most calls in flight to all dependencies together. seed: of every draw. cost: None: nobody counts it.
    usages: what calls use at the dependencies, which the controller learns from their answers only."""

    ceiling: int
    dependencies: tuple[Dependency, ...]
    reserves: tuple[Reserve, ...]
    shares: tuple[TenantShare, ...]
    tenant_queue: int
    envelope: EnvelopeDefaults
    retry: Retry
    recovery: Recovery
    coalesce: bool = True
    seed: int = 1
    faults: tuple[Fault, ...] = ()
    cost: CostConfig | None = None
    usages: tuple[Usage, ...] = ()


def to_json(config: CapacityConfig) -> dict[str, Any]:
    return asdict(config)


def from_json(document: dict[str, Any]) -> CapacityConfig:
    """The inverse of `to_json`. Raises KeyError, TypeError or ValueError on anything else."""
    return CapacityConfig(
        **{
            **document,
            "dependencies": tuple(_dependency(d) for d in document["dependencies"]),
            "reserves": tuple(Reserve(**r) for r in document["reserves"]),
            "shares": tuple(TenantShare(**s) for s in document["shares"]),
            "envelope": _envelope(document["envelope"]),
            "retry": Retry(**document["retry"]),
            "recovery": Recovery(**document["recovery"]),
            "faults": tuple(Fault(**f) for f in document["faults"]),
            "cost": cost_from_json(document.get("cost")),
            "usages": usages_from_json(document.get("usages", [])),
        }
    )


def _dependency(document: dict[str, Any]) -> Dependency:
    return Dependency(
        **{
            **document,
            "reads": Bulkhead(**document["reads"]),
            "writes": Bulkhead(**document["writes"]),
            "circuit": Circuit(**document["circuit"]),
            "adaptive": Adaptive(**document["adaptive"]) if document["adaptive"] else None,
            "quota": Quota(**document["quota"]) if document.get("quota") else None,
        }
    )


def _envelope(document: dict[str, Any]) -> EnvelopeDefaults:
    budgets = tuple((str(d), int(n)) for d, n in document["budgets"])
    return EnvelopeDefaults(**{**document, "budgets": budgets, "tree": TreeLimits(**document.get("tree", {}))})
