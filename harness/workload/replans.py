"""What an agent makes of a failure: n other calls, to other tools, all at once or one after another.

- `parallel`: n calls of round r + 1, all due `after` later.
- `sequence`: the first of them due `after` later; each further one `after` the end of the one before, as a search is
  followed by a fetch. One that fails ends its sequence: the agent plans anew, from there, one round deeper. One that
  was held back ends it too.
- With `tools`, they go to the others in turn, from the one that comes after the tool that failed.
- All calls of a plan name the failed call as their parent, and have its round + 1, whatever tool they go to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.ledger.call import Call
from harness.ledger.outcomes import REFUSED, REPLANNED


@dataclass(frozen=True, slots=True)
class PlanRule:
    """n calls `after_ns` later, for at most `rounds` rounds. refusals: what a refusal is to the model: `error` makes it
    plan anew; `result` does not."""

    calls: int
    after_ns: int
    rounds: int
    tools: tuple[str, ...] = ()
    order: Literal["parallel", "sequence"] = "parallel"
    refusals: Literal["error", "result"] = "error"


@dataclass(slots=True)
class Sequence:
    """What is left of a plan that is carried out one call after another. place: of the next call in it. spent: tokens
    of the branch that it continues."""

    parent: Call
    tools: tuple[str | None, ...]
    place: int
    spent: float


class Planner:
    """One agent's. Its methods are what a defect replaces."""

    def __init__(self, rule: PlanRule) -> None:
        self.rule = rule

    def goes_on(self, call: Call) -> bool:
        """Whether a call that has ended leads to a plan."""
        taken = REPLANNED - REFUSED if self.rule.refusals == "result" else REPLANNED
        return call.outcome in taken and call.round < self.rule.rounds

    def round_of(self, parent: Call, tool: str | None) -> int:
        """The round of a call to `tool` that follows from `parent`."""
        return parent.round + 1

    def tools_after(self, tool: str | None) -> tuple[str | None, ...]:
        """Where the calls of a plan go, in turn, when `tool` has failed."""
        tools = self.rule.tools
        if not tools:
            return (tool,)
        if tool not in tools:
            return tools
        place = tools.index(tool) + 1
        return (*tools[place:], *tools[: place - 1]) or tools
