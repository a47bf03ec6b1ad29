"""What is going to happen to delegation trees, in plain sentences. Asked by run_describe.py."""

from __future__ import annotations

from collections.abc import Iterator

from harness.profile.capacity import Capacity, RunGroup
from harness.profile.model import Profile
from harness.profile.tree_demand import (
    AGENT_TOKENS,
    BRANCH_TOKENS,
    BYTES,
    CONTEXT,
    CREDITS,
    DEPTH,
    FAN_OUT,
    ITERATIONS,
    PAYLOAD,
    SESSIONS,
    limits_of,
    wanted_by,
)

WORDS = {
    DEPTH: "levels of sub-agents", FAN_OUT: "sub-agents", SESSIONS: "runs at once", BYTES: "bytes",
    PAYLOAD: "bytes handed up", CONTEXT: "tokens of context", CREDITS: "credits", AGENT_TOKENS: "tokens of its agents",
    ITERATIONS: "batches of one run", BRANCH_TOKENS: "tokens of one branch",
}  # fmt: skip


def of_layer(capacity: Capacity) -> Iterator[str]:
    told = capacity.envelope
    if told.delegate_cost is None and told.tool_cost is None:
        return
    delegate, tool = told.delegate_cost, told.tool_cost
    yield (
        f"Of the credits of a run a delegation takes {1 if delegate is None else delegate:,}, a call of a tool "
        f"{1 if tool is None else tool:,}."
    )
    if delegate and capacity.cost is not None:
        yield f"Each delegation claims {delegate:,} tokens of its tenant's bucket."


def of_group(profile: Profile, who: str, group: RunGroup) -> Iterator[str]:
    """What a run of the group asks for beyond what its tree may have."""
    limits = limits_of(profile, group)
    if not limits:
        return
    wanted = wanted_by(profile, group).of
    beyond = [f"{round(wanted[what]):,} {WORDS[what]} of {limit:,}" for what, limit in limits.items()
              if wanted[what] > limit]  # fmt: skip
    if beyond:
        yield f"{who}: its tree asks for {', '.join(beyond)}, so some of it will end budget_exhausted."
