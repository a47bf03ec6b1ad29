"""agent.rounds_capped: no call comes after more than R failures in a row, whatever it is called and wherever it goes.

How deep a call is follows from its provenance alone: the chain of `parent`s back to original work. What the caller
says of itself (`round`) is not asked: a count that begins anew with each tool, or that takes calls made one after
another for one round, says 1 all the way down.

PASS needs failures at the last round that were let be, and re-plans that went to other tools where the profile has any.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from harness.checks.attempt_rows import ids
from harness.checks.context import Mask, profile_of
from harness.checks.registry import CHECKS, Check
from harness.checks.rules import Rule, at_most, enough, verdict, withheld
from harness.checks.verdict import Verdict
from harness.ledger.contradictions import call_key, places_of
from harness.ledger.outcomes import REPLANNED
from harness.ledger.reader import Ints, Trial
from harness.profile.base import Part
from harness.profile.model import Tenant

NAME = "agent.rounds_capped"
DEEPEST = 64
"""Chains are followed so far: deeper ones are deeper than any cap."""


class Params(Part):
    """ended: calls of each tenant that must have failed at the last round. elsewhere: re-plans to each of its tools."""

    ended: Annotated[int, Field(ge=1, strict=True)] = 10
    elsewhere: Annotated[int, Field(ge=1, strict=True)] = 10


def judge(trial: Trial, params: Params) -> Verdict:
    profile = profile_of(trial)
    planning = {
        name: tenant for name, tenant in profile.tenants.items() if tenant.replans is not None and tenant.replans.calls
    }
    if not planning:
        return withheld(NAME, "no tenant re-plans", "`replans: {calls: 2, after: 500ms, rounds: 3}`")
    calls = trial.calls
    mine = np.isin(calls.tenant, [trial.tenants.index(name) for name in planning])
    if (mine & (calls.round > 0) & (calls.parent < 0)).any():
        add = "the `parent` of each call that follows from another"
        return withheld(NAME, "the ledger does not say which call a re-plan follows from", add)
    depth = depths(trial)
    rules = [rule for name, tenant in planning.items() for rule in _rules(trial, name, tenant, depth, params)]
    return verdict(NAME, rules, f"No call of {', '.join(list(planning)[:5])} went beyond its last round.")


def depths(trial: Trial) -> Ints:
    """Of each call, how many failures it comes after; at most DEEPEST."""
    calls = trial.calls
    children = np.flatnonzero(calls.parent >= 0)
    parents, known = places_of(trial, np.argsort(call_key(trial), kind="stable"), children)
    children, parents = children[known], parents[known]
    depth = np.zeros(len(calls), dtype=np.int64)
    for _ in range(DEEPEST):
        deeper = depth[parents] + 1
        if (deeper == depth[children]).all():
            break
        depth[children] = deeper
    return depth


def _rules(trial: Trial, name: str, tenant: Tenant, depth: Ints, params: Params) -> list[Rule]:
    calls, rule = trial.calls, tenant.replans
    assert rule is not None
    mine: Mask = calls.tenant == trial.tenants.index(name)
    beyond = np.flatnonzero(mine & (depth > rule.rounds))
    deepest = int(depth[mine].max(initial=0))
    says = int(calls.round[mine].max(initial=0))
    sentence = (
        f"{name}: {len(beyond)} calls come after more than {rule.rounds} failures, up to {deepest} "
        f"(it says round {says} at most of itself)"
    )
    ended = int((mine & (depth == rule.rounds) & calls.is_outcome(*REPLANNED)).sum())
    rules = [
        at_most(name, "rounds", deepest, rule.rounds, "rounds", int(mine.sum()), sentence, ids(calls, beyond)),
        enough(name, "failures at the last round", ended, params.ended, "calls", "a service that refuses more"),
    ]
    if rule.tools:
        went = {tool: int((mine & calls.tool.equals(tool)).sum()) for tool in rule.tools}
        least = min(went, key=lambda tool: went[tool])
        rules.append(
            enough(name, f"re-plans to {least}", went[least], params.elsewhere, "calls", "a service that refuses more")
        )
    return rules


CHECKS[NAME] = Check(
    NAME,
    "no call comes after more failures in a row than its tenant has rounds, by its provenance",
    "re-plans with their parents, and failures at the last round",
    Params,
    judge,
)
