"""The part of a profile that describes a capacity layer, what goes wrong behind it, and the agent runs that it serves.

`capacity:` is what the bundled stub and the simulator run (a target of its own ignores it), `faults:` what happens to
its dependencies, and a tenant's `runs:` what its agents do. Words: ARCHITECTURE.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from harness.profile.base import Count, DurationNs, Name, Part, RatePerS, TrafficClass
from harness.profile.cost import Cost, Hints, Quota, RequestClass, Usage
from harness.profile.tree import TreeLimits
from harness.profile.units import NS_PER_S

Share = Annotated[float, Field(ge=0, le=1)]
NonNegative = Annotated[int, Field(ge=0, le=1_000_000, strict=True)]


class Bulkhead(Part):
    """Calls of one dependency and one kind: most running (`limit`), most waiting (`queue`), longest a call may take."""

    limit: Count
    queue: NonNegative = 50
    timeout: DurationNs


class Circuit(Part):
    """When a dependency's circuit opens, and how it closes again."""

    window: DurationNs
    min_calls: Count = 10
    failure_share: Share = 0.5
    slow: DurationNs
    slow_share: Share = 0.5
    open_for: DurationNs
    probes: Count = 1
    close_after: Count = 3
    lease: DurationNs


class Adaptive(Part):
    """AIMD on the limit of reads: between `lowest` and `highest` always."""

    lowest: Count
    highest: Count
    increase: Count = 1
    decrease: Annotated[float, Field(gt=0, lt=1)] = 0.7
    slow: DurationNs
    window: DurationNs

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.lowest > self.highest:
            raise ValueError("lowest is above highest")
        return self


class Dependency(Part):
    """One downstream service: as the stub serves it (workers, service_time, quota), and the bulkheads before it."""

    workers: Count
    service_time: DurationNs
    expected: DurationNs | None = None
    reads: Bulkhead
    writes: Bulkhead
    circuit: Circuit
    adaptive: Adaptive | None = None
    quota: Quota | None = None


class Reserve(Part):
    """Slots of every bulkhead kept for a traffic class; `floor` of them are never lent."""

    slots: NonNegative
    floor: NonNegative = 0

    @model_validator(mode="after")
    def _floor_within(self) -> Self:
        if self.floor > self.slots:
            raise ValueError("the floor is above the reserve itself")
        return self


class TenantShare(Part):
    """Slots of every bulkhead kept for a tenant, and how many of its steps may wait."""

    slots: NonNegative
    queue: NonNegative = 50


class Envelope(TreeLimits):
    """Limits of one run, and of the tree of its sub-agents. What is left out comes from `capacity.envelope`, and there
    from the defaults."""

    deadline: DurationNs | None = None
    attempts: Count | None = None
    parallel: Count | None = None
    retry_tokens: NonNegative | None = None
    budgets: dict[Name, NonNegative] | None = None


class DefaultEnvelope(TreeLimits):
    """What a run gets that asks for nothing. budgets: dependency -> calls; one that is not named has no budget of its
    own. delegate_cost, tool_cost: what each takes of `credits`, 1 unless stated; with `cost`, a delegation claims its
    price of its tenant's bucket, too."""

    deadline: DurationNs = 90 * NS_PER_S
    attempts: Count = 20
    parallel: Count = 3
    retry_tokens: NonNegative = 2
    budgets: dict[Name, NonNegative] = {}
    delegate_cost: NonNegative | None = None
    tool_cost: NonNegative | None = None


class Retry(Part):
    """Delay before attempt n + 1: base * 2^(n-1), at most `most`, jittered by +- `jitter`."""

    base: DurationNs
    most: DurationNs
    jitter: Share = 0.5


class Recovery(Part):
    """Starts per second of one dependency while its backlog drains: from, to (the tested capacity), over `ramp`."""

    from_rate: RatePerS
    to_rate: RatePerS
    ramp: DurationNs


class Capacity(Part):
    """The controller and the dependencies behind it."""

    ceiling: Count
    dependencies: Annotated[dict[Name, Dependency], Field(min_length=1)]
    reserves: dict[TrafficClass, Reserve] = {}
    shares: dict[Name, TenantShare] = {}
    tenant_queue: Count = 50
    envelope: DefaultEnvelope = DefaultEnvelope()
    retry: Retry
    recovery: Recovery
    coalesce: bool = True
    cost: Cost | None = None


class Fault(Part):
    """Something that goes wrong in a dependency; `times`: for so many calls (left out: for as long as it lasts)."""

    dependency: Name
    kind: Literal["slow", "error", "retry_after", "commit_then_timeout", "outage", "hang"]
    from_ns: DurationNs = Field(default=0, alias="from")
    to_ns: DurationNs | None = Field(default=None, alias="to")
    times: Count | None = None
    operation: Literal["read", "write"] | None = None
    factor: Annotated[float, Field(gt=0, le=1000)] | None = None
    status: Annotated[int, Field(ge=400, le=599, strict=True)] | None = None
    retry_after: str | None = None


class Step(Part):
    """One logical action. key: `auto` an idempotency key of its own, `none` without one, or the key itself.

    coalesce: equal reads of one tenant with the same text may share one call. may_wait: it may be queued. repeat: the
    same step so many times in the batch. usage: what each call of it uses at the dependency.
    """

    dependency: Name
    operation: Literal["read", "write"] = "read"
    tool: str = "call"
    key: str = "auto"
    coalesce: str | None = None
    may_wait: bool = True
    high_risk: bool = False
    repeat: Count = 1
    usage: Usage | None = None


class Batch(Part):
    """Steps that are submitted together, in one request."""

    steps: Annotated[list[Step], Field(min_length=1)]

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"steps": value} if isinstance(value, list) else value


class ReplanBatch(Part):
    """What the planner submits after a batch that was not all served: `batch`, `after` later, for `rounds` rounds."""

    batch: Batch
    after: DurationNs = 0
    rounds: Count = 1


MOST_LEVELS = 8
MOST_AGENTS = 10_000


class Child(Part):
    """A sub-agent that the run starts with its first batch: `count` runs with their own batches. Its envelope is carved
    out of the parent's. children: sub-agents of its own."""

    batches: Annotated[list[Batch], Field(min_length=1)]
    envelope: Envelope = Envelope()
    count: Count = 1
    children: list[Child] = []


class RunGroup(Part):
    """Runs of one kind: when they begin, what they may use, what they do.

    Begin: `count` runs at once at `at`, or a `rate` in [from, to). parallel: submit all batches at once instead of one
    after another. cancel_after: cancel the run so long after it began. crash_after: the agent is gone so long after:
    it asks for nothing more, and does not finish. request_class, forecast: what it says that the run will cost.
    """

    name: Name
    traffic_class: TrafficClass = Field(default="autonomous", alias="class")
    priority: NonNegative = 0
    at: DurationNs | None = None
    count: Count = 1
    rate: RatePerS | None = None
    from_ns: DurationNs | None = Field(default=None, alias="from")
    to_ns: DurationNs | None = Field(default=None, alias="to")
    envelope: Envelope = Envelope()
    batches: Annotated[list[Batch], Field(min_length=1)]
    parallel: bool = False
    replans: ReplanBatch | None = None
    children: list[Child] = []
    cancel_after: DurationNs | None = None
    crash_after: DurationNs | None = None
    request_class: RequestClass | None = None
    forecast: Hints | None = None

    @model_validator(mode="after")
    def _one_beginning(self) -> Self:
        if (self.at is None) == (self.rate is None):
            raise ValueError("runs begin either `at` an instant or with a `rate`, and not both")
        if self.rate is None and (self.from_ns is not None or self.to_ns is not None):
            raise ValueError("`from` and `to` belong to a `rate`")
        if self.rate is not None and self.count != 1:
            raise ValueError("`count` belongs to `at`; a rate begins one run at a time")
        return self

    def sub_agents(self) -> Iterator[tuple[Child, int, int]]:
        """(sub-agent, how many of it one run starts, its level: 1 for those of the run itself), at every level."""
        level = [(child, child.count) for child in self.children]
        for depth in range(1, MOST_LEVELS + 1):
            yield from ((child, count, depth) for child, count in level)
            level = [(below, count * below.count) for child, count in level for below in child.children]

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if _levels(self.children) > MOST_LEVELS:
            raise ValueError(f"sub-agents of sub-agents, and so on, may be {MOST_LEVELS} levels deep; nest them less")
        agents = sum(count for _, count, _ in self.sub_agents())
        if agents > MOST_AGENTS:
            raise ValueError(f"one run would start {agents:,} sub-agents; at most {MOST_AGENTS:,}")
        return self


def _levels(children: list[Child]) -> int:
    depth = 0
    while children:
        depth, children = depth + 1, [below for child in children for below in child.children]
    return depth
