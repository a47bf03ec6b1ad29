"""The controller's two sides as values: what a run asks of it, and how it reaches a dependency.

The driver gives the controller a `CallDependency`: over real HTTP in the live stub, a function call in virtual time.
What is made for every step is a named tuple: a frozen dataclass takes several times as long to make.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from stub_service.capacity.forecast import Hints
from stub_service.capacity.tree import TreeLimits

READ, WRITE, READBACK = "read", "write", "readback"
_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class RunWish:
    """What a run asks for when it opens; None: the configured default. request_class, forecast: what it will cost.
    tree: what it and all sub-agents below it may use together."""

    traffic_class: str = "autonomous"
    task_class: str | None = None
    priority: int = 0
    release: str | None = None
    deadline_ns: int | None = None
    attempts: int | None = None
    parallel: int | None = None
    retry_tokens: int | None = None
    budgets: Mapping[str, int] | None = None
    parent_run: str | None = None
    request_class: str | None = None
    forecast: Hints | None = None
    tree: TreeLimits | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One logical action. coalesce: equal reads of one tenant with the same text may share one call."""

    step: str
    dependency: str
    operation: str = READ
    tool: str = "call"
    idempotency_key: str | None = None
    coalesce: str | None = None
    may_wait: bool = True
    high_risk: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """Steps submitted together. round: how many re-plans deep; request: id of the request that brought it."""

    batch: str
    steps: tuple[Step, ...]
    round: int = 0
    request: str | None = None


class StepResult(NamedTuple):
    """How a step ended. attempts: how often a dependency was called for it."""

    step: str
    outcome: str
    reason: str | None
    user_status: str
    attempts: int = 0
    queue_wait_ns: int = 0
    retry_after_s: float | None = None
    body: Mapping[str, Any] = _NOTHING


class BatchResult(NamedTuple):
    """outcome: that of the worst step, or of the whole batch if it was refused before any step started."""

    run: str
    batch: str
    outcome: str
    reason: str | None
    user_status: str
    steps: tuple[StepResult, ...]


class DependencyCall(NamedTuple):
    """One attempt, as it leaves the controller. timeout_ns: when it stops waiting for the answer."""

    dependency: str
    operation: str
    run: str
    step: str
    attempt: int
    owner: str
    layer: str
    round: int
    tenant: str
    traffic_class: str
    tool: str
    deadline_ns: int
    timeout_ns: int
    probe: bool = False
    idempotency_key: str | None = None

    @property
    def via(self) -> None:
        """Nobody is between the controller and its dependencies."""
        return None


class DependencyAnswer(NamedTuple):
    """status: HTTP status; 0: no answer within the timeout, or the connection broke. date: the answer's own Date."""

    status: int
    retry_after: str | None = None
    date: str | None = None
    body: Mapping[str, Any] = _NOTHING


CallDependency = Callable[[DependencyCall], Awaitable[DependencyAnswer]]
