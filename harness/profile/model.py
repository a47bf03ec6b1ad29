"""What a profile may say: the frozen models behind the YAML, the JSON Schema and every error message.

A Profile is complete and consistent once it exists: contradictions are found here, so that no later part has to ask.
Durations are integer nanoseconds, rates exact fractions per second (units.py). Files, lines, variants and `--set` are
loader.py; `--time-scale` is scale.py; what a profile means, in sentences, is describe.py.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from harness.profile.base import (
    Count,
    DurationNs,
    Name,
    Part,
    RatePerS,
    RetriedOutcome,
    Share,
    ToolName,
    TrafficClass,
    written,
)
from harness.profile.capacity import Capacity, Fault, RunGroup
from harness.profile.over_time import Rates, Workers
from harness.profile.rules import Contradictions, contradictions
from harness.profile.tree import Loop
from harness.profile.units import NS_PER_S

PhaseName = Literal["calm", "burst", "recovery"]
PHASES: tuple[PhaseName, ...] = ("calm", "burst", "recovery")
WINDOW_BUCKETS = 60
"""A caller's moving window (throttle, retry budget) is kept as so many equal parts."""


class Window(Part):
    """Half open, [from, to), nanoseconds since the trial began. In YAML: `[30s, 70s]`."""

    from_ns: DurationNs = Field(alias="from")
    to_ns: DurationNs = Field(alias="to")

    @model_validator(mode="before")
    @classmethod
    def _pair(cls, value: Any) -> Any:
        if isinstance(value, list):
            if len(value) != 2:
                raise ValueError("a window is [from, to], two durations")
            return {"from": value[0], "to": value[1]}
        return value

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.from_ns >= self.to_ns:
            raise ValueError("a window must end after it begins")
        return self


class ServiceTime(Part):
    """How long a worker is busy with one call. In YAML: `200ms`, or a mapping.

    fixed: `mean`. lognormal: `mean` and `sigma` (of the logarithm). recorded_cost: `base + per_unit * cost`, at most
    `cap`. `load_slope` s makes it grow with load: multiplied by 1 + s * running / workers.
    """

    distribution: Literal["fixed", "lognormal", "recorded_cost"] = "fixed"
    mean: DurationNs | None = None
    sigma: Annotated[float, Field(gt=0, le=3, strict=True)] | None = None
    base: DurationNs | None = None
    per_unit: DurationNs | None = None
    cap: DurationNs | None = None
    load_slope: Annotated[float, Field(ge=0, le=100, strict=True)] = 0.0

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return value if isinstance(value, dict) else {"mean": value}

    @model_validator(mode="after")
    def _complete(self) -> Self:
        needed = {"fixed": ("mean",), "lognormal": ("mean", "sigma"), "recorded_cost": ("base", "per_unit")}
        allowed = {"fixed": ("mean",), "lognormal": ("mean", "sigma"), "recorded_cost": ("base", "per_unit", "cap")}
        missing = [f for f in needed[self.distribution] if getattr(self, f) is None]
        if missing:
            raise ValueError(f"service time '{self.distribution}' needs {' and '.join(missing)}")
        extra = [
            f
            for f in ("mean", "sigma", "base", "per_unit", "cap")
            if getattr(self, f) is not None and f not in allowed[self.distribution]
        ]
        if extra:
            raise ValueError(f"service time '{self.distribution}' does not use {' or '.join(extra)}")
        if self.distribution == "recorded_cost" and not (self.base or self.per_unit):
            raise ValueError("a service time must be above zero: give base or per_unit a duration")
        if self.distribution != "recorded_cost" and not self.mean:
            raise ValueError("a service time must be above zero")
        return self


class Admission(Part):
    """Which calls wait, and in which order they start.

    shared_fifo: one `queue`. tenant_cap: and at most `cap` running of a tenant. fair_queues: a queue for each tenant;
    `weights` say how many calls a tenant's turn is long, 1 for others. shuffle_sharded: so many `queues` for all, each
    of length `queue`; every tenant is dealt a `hand` of them and joins the shortest.
    """

    policy: Literal["shared_fifo", "tenant_cap", "fair_queues", "shuffle_sharded"]
    queue: Annotated[int, Field(ge=0, le=10_000_000, strict=True)] | None = None
    queue_per_tenant: Annotated[int, Field(ge=0, le=10_000_000, strict=True)] | None = None
    cap: Count | None = None
    weights: dict[Name, Annotated[int, Field(ge=1, le=100, strict=True)]] = {}
    queues: Annotated[int, Field(ge=1, le=4096, strict=True)] | None = None
    hand: Annotated[int, Field(ge=1, le=32, strict=True)] | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        needed = {
            "shared_fifo": {"queue"},
            "tenant_cap": {"queue", "cap"},
            "fair_queues": {"queue_per_tenant"},
            "shuffle_sharded": {"queues", "hand", "queue"},
        }
        given = {f for f in ("queue", "queue_per_tenant", "cap", "queues", "hand") if getattr(self, f) is not None}
        given |= {"weights"} if self.weights else set()
        missing, extra = needed[self.policy] - given, given - needed[self.policy]
        extra -= {"weights"} if self.policy == "fair_queues" else set()
        if missing:
            raise ValueError(f"policy {self.policy} needs {' and '.join(sorted(missing))}")
        if extra:
            raise ValueError(f"policy {self.policy} does not use {' or '.join(sorted(extra))}")
        for key in ("queue", "queue_per_tenant"):
            if getattr(self, key) == 0:
                rule = f"policy {self.policy} needs a queue of at least 1 (a queue of 0 has nothing to order)"
                raise Contradictions([((key,), rule)])
        if self.hand is not None and self.queues is not None and self.hand > self.queues:
            raise Contradictions([(("hand",), f"a hand of {self.hand} cannot be dealt from {self.queues} queues")])
        return self


class Service(Part):
    """What the stub and the simulator run. A staging target ignores it. shadow: another policy, which decides nothing;
    what it would have decided is recorded."""

    workers: Workers
    service_time: ServiceTime
    admission: Admission
    shadow: Admission | None = None


class Replans(Part):
    """Each refused or abandoned call becomes `calls` new ones, `after` later, for at most `rounds` rounds.

    tools: where they go, in turn, beginning with the one after the tool that failed; none: where the failed call went.
    order: all at once, or each `after` the end of the one before.
    """

    calls: Annotated[int, Field(ge=0, le=100, strict=True)]
    after: DurationNs
    rounds: Annotated[int, Field(ge=0, le=20, strict=True)]
    tools: Annotated[list[ToolName], Field(max_length=20)] = []
    order: Literal["parallel", "sequence"] = "parallel"


class Budget(Part):
    """The caller's own token bucket, asked before a call leaves. `run` scope: a bucket per original call and its
    re-plans; `tenant` scope: one for all of the tenant."""

    rate: RatePerS
    burst: Count
    scope: Literal["tenant", "run"] = "tenant"


def _one_or_several(value: Any) -> Any:
    """A single budget stands for the list of it."""
    return value if isinstance(value, list) else [] if value is None else [value]


class Adaptive(Part):
    """The client rejects a call by itself with probability (requests - k x accepts) / (requests + 1), of the last
    `window`."""

    k: Annotated[float, Field(ge=1, le=100)] = 2.0
    window: DurationNs = 120 * NS_PER_S


class Throttle(Part):
    """How a client that is refused much sends less."""

    adaptive: Adaptive


class Retries(Part):
    """A call that ends in one of `on` is tried again, `delay` x 2^n later (times 0.5 to 1.5) and never before what
    Retry-After says: at most `attempts` of one call, and retries at most `budget` of the calls of the last `window`
    (none: no such bound)."""

    attempts: Annotated[int, Field(ge=2, le=20, strict=True)] = 3
    budget: Share | None = None
    window: DurationNs = 10 * NS_PER_S
    delay: DurationNs = 100_000_000
    on: Annotated[list[RetriedOutcome], Field(min_length=1)] = ["throttled", "dependency_unavailable", "failed"]


class Recorded(Part):
    """Arrivals from a schedule file: JSON Lines sorted by `due_ns` (harness/recorded/schedule.py)."""

    file: Annotated[str, Field(min_length=1, max_length=4096)]


class Claims(Part):
    """A header in which the tenant claims with each call to be another one, of so many; its credential stays."""

    header: Annotated[
        str,
        written(r"^[A-Za-z][A-Za-z0-9-]{0,63}$", "expected a header's name: letters, digits and '-', a letter first"),
    ] = "X-Tenant"
    values: Annotated[int, Field(ge=1, le=1_000_000, strict=True)]

    @model_validator(mode="after")
    def _only_a_claim(self) -> Self:
        own = ("authorization", "host", "connection", "content-length", "content-type", "transfer-encoding")
        if self.header.lower() in own or self.header.lower().startswith("overload-"):
            raise ValueError(f"the header {self.header} is one that every request needs for itself")
        return self


class Tenant(Part):
    """Who is charged, what it offers, and how it takes a refusal. count: so many of its like, NAME-1 and so on; the
    name then stands for all of them in `ordinary` and in weights."""

    count: Annotated[int, Field(ge=1, le=100_000, strict=True)] = 1
    rate: Rates | None = None
    pace: Literal["even", "poisson"] = "even"
    phase: DurationNs = 0
    recorded: Recorded | None = None
    runs: list[RunGroup] = []
    replans: Replans | None = None
    on_refusal: Literal["error", "result"] = "error"
    budget: Annotated[list[Budget], BeforeValidator(_one_or_several)] = []
    loop: Loop | None = None
    throttle: Throttle | None = None
    retries: Retries | None = None
    patience: DurationNs | None = None
    claims: Claims | None = None
    traffic_class: TrafficClass = "interactive"

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if sum((self.rate is not None, self.recorded is not None, bool(self.runs))) != 1:
            raise ValueError("a tenant needs one of a rate, recorded arrivals or runs, and not more than one")
        if self.patience == 0:
            raise ValueError("a patience of 0 abandons every call; leave it out for endless patience")
        return self

    @property
    def open_loop(self) -> bool:
        """Its calls are those of its rate or recording: nothing is kept from one to the next, and none follows."""
        plain = self.replans is None and not self.budget and not self.runs
        return plain and not self.is_agent

    @property
    def is_agent(self) -> bool:
        """It has what only an agent runtime has (harness/workload/agents.py)."""
        own = self.loop or self.throttle or self.retries or self.on_refusal == "result" or len(self.budget) > 1
        again = self.replans
        return bool(own or (again is not None and (again.tools or again.order == "sequence")))


class CheckRef(Part):
    """A check to judge, with parameters that differ from its defaults. In YAML: a name, or `{name: {param: value}}`."""

    name: str
    params: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"name": value}
        if isinstance(value, dict) and len(value) == 1 and "name" not in value:
            ((name, params),) = value.items()
            return {"name": name, "params": {} if params is None else params}
        if not isinstance(value, dict) or "name" not in value:
            raise ValueError("a check is its name, or its name with parameters: {name: {parameter: value}}")
        return value


class Phases(Part):
    """Named windows of the trial; a call belongs to the one in which it was due."""

    calm: Window | None = None
    burst: Window | None = None
    recovery: Window | None = None

    def items(self) -> list[tuple[PhaseName, Window]]:
        return [(name, window) for name in PHASES if (window := getattr(self, name)) is not None]

    def at(self, due_ns: int) -> PhaseName | None:
        for name, window in self.items():
            if window.from_ns <= due_ns < window.to_ns:
                return name
        return None


class Profile(Part):
    """One trial, completely described. Field order here is the order in error messages and in the schema."""

    name: ToolName
    about: str = ""
    duration: DurationNs
    phases: Phases = Phases()
    patience: DurationNs | None = None
    patience_until: Literal["start", "done"] = "done"
    drain: DurationNs = 10 * NS_PER_S
    seed: Annotated[int, Field(ge=0, lt=2**63, strict=True)] = 1
    service: Service | None = None
    capacity: Capacity | None = None
    faults: list[Fault] = []
    tenants: Annotated[dict[Name, Tenant], Field(min_length=1, max_length=100_000)]
    ordinary: list[Name] = []
    variants: dict[Name, dict[str, Any]] = {}
    checks: list[CheckRef] = []

    def patience_of(self, tenant: str) -> int | None:
        """Nanoseconds that this tenant waits before it abandons; None: for ever."""
        own = self.tenants[tenant].patience
        return own if own is not None else self.patience

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        problems = list(contradictions(dict(self)))
        if problems:
            raise Contradictions(problems)
        return self
