"""What a run and all the sub-agents below it may use together, as a profile says it: part of `envelope:`.

Words and arithmetic: docs/trees.md. Without any of these nothing of a tree is counted.
"""

from __future__ import annotations

from typing import Annotated, Self, TypeAlias

from pydantic import Field, model_validator

from harness.profile.base import Count, Part

NoneOrMore: TypeAlias = Annotated[int, Field(ge=0, le=1_000_000, strict=True)]
Amount: TypeAlias = Annotated[int, Field(ge=1, le=10**15, strict=True)]
LIMITS = (
    "depth", "fan_out", "sessions", "bytes", "payload", "context_tokens", "credits", "agent_tokens"
)  # fmt: skip
"""Beside those of a loop: as the layer's API calls them, too."""
UNSAID_PAYLOAD = 100_000_000


class Loop(Part):
    """What ends an agent's own loop: attempts of one run, and tokens (a call's cost, else 1) along one branch of it. In
    an envelope: batches of one run, and tokens that its own calls have used."""

    iterations: Count | None = None
    branch_tokens: Annotated[int, Field(ge=1, le=1_000_000_000, strict=True)] | None = None

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.iterations is None and self.branch_tokens is None:
            raise ValueError("a loop guard needs iterations, branch_tokens or both")
        return self


class TreeLimits(Part):
    """Of a run and all sub-agents below it; a sub-agent's are carved out of its parent's.

    depth: levels of sub-agents below it. fan_out: sub-agents in all. sessions: runs that are open at once, itself
    included. bytes: of all answers. payload: that one branch hands up (100 MB unless stated). context_tokens: that are
    streamed up into its context window. credits: what delegations and calls cost. agent_tokens: that all calls use.
    """

    depth: NoneOrMore | None = None
    fan_out: NoneOrMore | None = None
    sessions: Count | None = None
    bytes: Amount | None = None
    payload: Amount | None = None
    context_tokens: Amount | None = None
    credits: NoneOrMore | None = None
    agent_tokens: Amount | None = None
    loop: Loop | None = None

    @property
    def tree(self) -> dict[str, int]:
        """What is named, by the names of the layer's API."""
        named = {name: getattr(self, name) for name in LIMITS}
        if self.loop is not None:
            named |= {"iterations": self.loop.iterations, "branch_tokens": self.loop.branch_tokens}
        return {name: n for name, n in named.items() if n is not None}
