"""What a run of a group asks of its tree at most, against what it may have. Asked by tree_describe.py and the checks.

By reason of a refusal (`REASONS`): what the tree had too little of. Re-plans, cancellations, vanished agents make the
figures inexact, and so does usage that is drawn; then they are what a run asks for on average, if all goes well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.profile.capacity import Batch, Child, RunGroup
from harness.profile.model import Profile
from harness.profile.tree import UNSAID_PAYLOAD

DEPTH, FAN_OUT, SESSIONS, BYTES, PAYLOAD, CONTEXT = "depth", "fan_out", "sessions", "bytes", "payload", "context"
CREDITS, AGENT_TOKENS, ITERATIONS, BRANCH_TOKENS = "credits", "agent_tokens", "iterations", "branch_tokens"
REASONS = (
    DEPTH, FAN_OUT, SESSIONS, BYTES, PAYLOAD, CONTEXT, CREDITS, AGENT_TOKENS, ITERATIONS, BRANCH_TOKENS
)  # fmt: skip
FIELD = {**{name: name for name in REASONS}, CONTEXT: "context_tokens"}
"""Reason -> the name of the limit."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """of: by REASONS. steps: calls of all its runs. exact: it is known."""

    of: Mapping[str, float]
    steps: int
    exact: bool


def limits_of(profile: Profile, group: RunGroup | None, bundled: bool = True) -> dict[str, int]:
    """By REASONS: as the group asks for them, else as the profile's capacity layer has them, where that is what runs
    (bundled). Nothing if nothing of the tree is limited."""
    own = group.envelope.tree if group is not None else {}
    common = profile.capacity.envelope.tree if bundled and profile.capacity is not None else {}
    named = {**common, **own}
    if not named:
        return {}
    named.setdefault(PAYLOAD, UNSAID_PAYLOAD)
    return {what: named[name] for what, name in FIELD.items() if name in named}


def prices_of(profile: Profile) -> tuple[int, int]:
    """(of a delegation, of a call of a tool), in credits."""
    told = profile.capacity.envelope if profile.capacity is not None else None
    prices = (told.delegate_cost, told.tool_cost) if told is not None else (None, None)
    return (1 if prices[0] is None else prices[0], 1 if prices[1] is None else prices[1])


def wanted_by(profile: Profile, group: RunGroup) -> Wanted:
    """Of one run and all its sub-agents."""
    parts: list[tuple[RunGroup | Child, int]] = [(group, 1), *((child, n) for child, n, _ in group.sub_agents())]
    steps = sum(n * _steps(part.batches) for part, n in parts)
    tokens, bytes_ = (sum(n * _used(part.batches, what) for part, n in parts) for what in ("tokens", "bytes"))
    agents = sum(n for _, n in parts) - 1
    delegate, tool = prices_of(profile)
    of = {
        DEPTH: max((level for _, _, level in group.sub_agents()), default=0),
        FAN_OUT: agents,
        SESSIONS: 1 + agents,
        BYTES: bytes_,
        PAYLOAD: bytes_,
        CONTEXT: tokens,
        CREDITS: delegate * agents + tool * steps,
        AGENT_TOKENS: tokens,
        ITERATIONS: max(len(part.batches) for part, _ in parts),
        BRANCH_TOKENS: max(_used(part.batches, "tokens") for part, _ in parts),
    }
    plain = group.replans is None and group.cancel_after is None and group.crash_after is None
    return Wanted(of, steps, plain and all(_fixed(part.batches) for part, _ in parts))


def _steps(batches: Sequence[Batch]) -> int:
    return sum(step.repeat for batch in batches for step in batch.steps)


def _used(batches: Sequence[Batch], what: str) -> float:
    draws = [(step.repeat, getattr(step.usage, what)) for batch in batches for step in batch.steps if step.usage]
    return float(sum(n * draw.typical for n, draw in draws if draw is not None))


def _fixed(batches: Sequence[Batch]) -> bool:
    usages = [step.usage for batch in batches for step in batch.steps if step.usage is not None]
    draws = [draw for usage in usages for draw in (usage.tokens, usage.bytes) if draw is not None]
    return all(draw.distribution == "fixed" for draw in draws)
