"""What runs cost, as a profile says it: buckets, forecasts, pools and queues of the layer, and what steps really use.

`capacity.cost:` is what the bundled stub and the simulator run. `usage:` of a step is what its call uses at the
dependency, which the layer learns from the answer only. Words and arithmetic: docs/cost.md.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from harness.profile.base import Count, DurationNs, Name, Part, RatePerS

RequestClass: TypeAlias = Literal["chat_turn", "tool_heavy", "deep_research"]
SizeClass: TypeAlias = Literal["short", "standard", "batch"]
QUEUE_OF: dict[str, SizeClass] = {"chat_turn": "short", "tool_heavy": "standard", "deep_research": "batch"}
UNSAID_TOKENS = 1000
Amount: TypeAlias = Annotated[int, Field(ge=1, le=10**12, strict=True)]
NoneOrMore: TypeAlias = Annotated[int, Field(ge=0, le=1_000_000, strict=True)]


class Draw(Part):
    """How much one call uses. In YAML: a number, or a mapping.

    fixed: `mean`. lognormal: `mean` and `sigma` (of the logarithm; 1.6 spreads over three orders of magnitude), at most
    `most`. recorded: `values`, one after another, over and over.
    """

    distribution: Literal["fixed", "lognormal", "recorded"] = "fixed"
    mean: Amount | None = None
    sigma: Annotated[float, Field(gt=0, le=3, strict=True)] | None = None
    most: Amount | None = None
    values: Annotated[list[Annotated[int, Field(ge=0, le=10**12, strict=True)]], Field(max_length=100_000)] = []

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return value if isinstance(value, dict) else {"mean": value}

    @model_validator(mode="after")
    def _complete(self) -> Self:
        allowed = {"fixed": ("mean",), "lognormal": ("mean", "sigma", "most"), "recorded": ("values",)}
        needed = {"fixed": ("mean",), "lognormal": ("mean", "sigma"), "recorded": ("values",)}[self.distribution]
        given = [name for name in ("mean", "sigma", "most", "values") if getattr(self, name)]
        missing = [name for name in needed if name not in given]
        extra = [name for name in given if name not in allowed[self.distribution]]
        if missing:
            raise ValueError(f"a {self.distribution} usage needs {' and '.join(missing)}")
        if extra:
            raise ValueError(f"a {self.distribution} usage does not use {' or '.join(extra)}")
        return self

    @property
    def typical(self) -> float:
        """What a call uses on average."""
        return sum(self.values) / len(self.values) if self.values else float(self.mean or 0)


class Usage(Part):
    """What a call of this step uses at its dependency."""

    tokens: Draw | None = None
    bytes: Draw | None = None


class Quota(Part):
    """Tokens that a dependency serves to all tenants together; beyond it answers 429."""

    rate: RatePerS
    burst: Amount


class Bucket(Part):
    """Cost of one tenant: what is added a second, and the most that it may hold."""

    rate: RatePerS
    burst: Amount


class ClassForecast(Part):
    """What a request of this class is expected to cost before anything is learned. tool_heavy: `tokens`, and `per_tool`
    for each tool call; deep_research: depth x fan-out x `tokens`. floor: never less. queue: where it waits."""

    tokens: Amount = UNSAID_TOKENS
    per_tool: NoneOrMore = 0
    floor: Amount = 1
    queue: SizeClass | None = None


class Learning(Part):
    """How much of an error the next forecast takes over, and the bounds of the learned factor."""

    weight: Annotated[float, Field(ge=0, le=1)] = 0.2
    least: Annotated[float, Field(gt=0, le=1)] = 0.1
    most: Annotated[float, Field(ge=1, le=1000)] = 10.0


class Pools(Part):
    """Most sessions, memory writes and tool calls that all runs hold at once; left out: without limit."""

    sessions: Count | None = None
    memory: Count | None = None
    tools: Count | None = None


class SizeQueue(Part):
    """kept: sessions that no other size class may take. queue: most runs that wait."""

    kept: NoneOrMore = 0
    queue: NoneOrMore = 50


class Cost(Part):
    """tenants: a bucket for each that is named; each: one of its own for every other tenant. lease: how long a run may
    ask for nothing before its caller counts as gone; left out: until its deadline."""

    tenants: dict[Name, Bucket] = {}
    each: Bucket | None = None
    classes: dict[RequestClass, ClassForecast] = {}
    learning: Learning = Learning()
    pools: Pools = Pools()
    queues: dict[SizeClass, SizeQueue] = {}
    lease: DurationNs | None = None

    def bucket_of(self, tenant: str) -> Bucket | None:
        return self.tenants.get(tenant, self.each)

    def basis(self, request_class: str, hints: Hints) -> int:
        """The forecast before anything is learned [tokens]; the layer's own is stub_service/capacity/forecast.py."""
        one = next((told for name, told in self.classes.items() if name == request_class), ClassForecast())
        if request_class == "tool_heavy":
            return one.tokens + hints.tools * one.per_tool
        return one.tokens * (hints.depth * hints.fan_out if request_class == "deep_research" else 1)

    def queue_of(self, request_class: str) -> str:
        one = next((told for name, told in self.classes.items() if name == request_class), None)
        return one.queue if one is not None and one.queue is not None else QUEUE_OF[request_class]


class Hints(Part):
    """What the agent says of its run when it opens it: a forecast is made from it, and pools are claimed by it."""

    depth: Count = 1
    fan_out: Count = 1
    tools: NoneOrMore = 1
    memory: NoneOrMore = 0
