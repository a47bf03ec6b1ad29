"""tree.inward_guard: an agent that turns against its own tenant is stopped by guards of its own.

A loop, or an agent that an injected prompt has turned, spends its tenant's budget, and no fairness between tenants
helps. So it must be stopped by its own iteration cap, its per-branch token ceiling and its per-agent budget

    iterations      batches of one run that reach a dependency
    branch_tokens   nothing of a run starts once its own calls have used so many
    agent_tokens    nothing of a run or its sub-agents starts once all their calls have used so many

while its tenant still has budget: its bucket is not drained, and its other runs are refused nothing.
Judged by what arrived; a guard may be late by what was under way, and no later.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from harness.checks.capacity_frames import Frame
from harness.checks.cost_rows import REFUSED, TOKENS, CostFrame, cost_frame, level_of
from harness.checks.registry import CHECKS, Check
from harness.checks.rules import Rule, at_least, at_most, enough, verdict, withheld
from harness.checks.rulings import never
from harness.checks.tree_rows import (
    Tree,
    begun_when_spent,
    refused_modestly,
    trees_of,
    untold,
)
from harness.checks.verdict import Verdict
from harness.ledger.reader import Trial
from harness.profile.base import Count, DurationNs, Part
from harness.profile.tree_demand import AGENT_TOKENS, BRANCH_TOKENS, ITERATIONS

NAME = "tree.inward_guard"
GUARDS = (ITERATIONS, BRANCH_TOKENS, AGENT_TOKENS)


class Params(Part):
    """runs: that must have asked for more than each guard allows. modest: runs of the same tenants that must not have.
    left: what their tenant's bucket must still hold, as a share of its burst. late: what an answer needs to be heard
    of, and a call to arrive."""

    runs: Count = 3
    modest: Count = 10
    left: Annotated[float, Field(ge=0, le=1)] = 0.1
    late: DurationNs = 50_000_000


def judge(trial: Trial, params: Params) -> Verdict:
    frame, found, absent = trees_of(trial, NAME)
    if absent is not None:
        return absent
    trees = [tree for tree in found if any(guard in tree.limits for guard in GUARDS)]
    costs = cost_frame(trial)
    looping = list(dict.fromkeys(tree.tenant for tree in trees if any(map(tree.wants_more, GUARDS))))
    if not looping or not any(costs.bucket_of(tenant) for tenant in looping):
        return withheld(NAME, "no run of a tenant with a bucket asks for more than a guard of its own allows",
                        "`envelope` with `loop` and `agent_tokens`, and `capacity.cost` with buckets")  # fmt: skip
    mine = [tree for tree in found if tree.tenant in looping]
    modest, n_modest = refused_modestly(mine)
    unsaid, n_short = untold(trees)
    rules = [
        _iterations(trees),
        _branches(frame, trees, params.late),
        _agents(frame, trees, params.late),
        *(rule for tenant in looping if (rule := _budget_left(costs, tenant, params)) is not None),
        _others(costs, looping),
        never("runs", "were stopped though they asked for no more than they may", modest, n_modest, params.modest,
              "runs of the same tenant that end within their guards", "runs"),
        never("runs", "were stopped and not told why", unsaid, n_short, 1, "runs that loop", "runs"),
        *(_evidence(guard, trees, params) for guard in GUARDS),
    ]  # fmt: skip
    passed = (
        f"{n_short} looping runs were stopped by their own guards while {', '.join(looping)} still had budget, and "
        f"{n_modest} other runs beside them by none."
    )
    return verdict(NAME, rules, passed)


def _iterations(trees: list[Tree]) -> Rule:
    limited = [(node.batches, tree.limits[ITERATIONS], node.run)
               for tree in trees if ITERATIONS in tree.limits for node in tree.nodes.values()]  # fmt: skip
    over = sorted(((n - most, n, most, run) for n, most, run in limited if n > most), reverse=True)
    beyond, n, most, run = over[0] if over else (0, 0, 0, "")
    sentence = f"run {run}: {n} batches where its loop may have {most} ({len(over)} such)"
    runs = [one[3] for one in over]
    return at_most("runs", "iterations over the cap", beyond, 0, "batches", len(limited), sentence, runs)


def _branches(frame: Frame, trees: list[Tree], late_ns: int) -> Rule:
    limited = [(node, tree.limits[BRANCH_TOKENS])
               for tree in trees if BRANCH_TOKENS in tree.limits for node in tree.nodes.values()]  # fmt: skip
    found = [one for node, most in limited for one in begun_when_spent(frame, node.arrivals, "tokens", most, late_ns)]
    return never("branches", "began calls beyond their token ceiling", found, len(limited), 1, "such runs", "calls")


def _agents(frame: Frame, trees: list[Tree], late_ns: int) -> Rule:
    limited = [(tree, tree.limits[AGENT_TOKENS]) for tree in trees if AGENT_TOKENS in tree.limits]
    found = [one for tree, most in limited for one in begun_when_spent(frame, tree.arrivals, "tokens", most, late_ns)]
    return never("agents", "began calls beyond their own budget", found, len(limited), 1, "such runs", "calls")


def _budget_left(costs: CostFrame, tenant: str, params: Params) -> Rule | None:
    bucket = costs.bucket_of(tenant)
    used = [use for request in costs.of_tenant(tenant) for use in request.used]
    if bucket is None:
        return None
    least, at_ns = level_of(bucket, used)
    sentence = (
        f"{tenant}: its own agents left {least:,.0f} of {bucket.burst:,} tokens of its bucket at {at_ns / 1e9:.2f} s"
    )
    runs = [request.run or "" for request in costs.of_tenant(tenant) if request.used]
    share = least / bucket.burst
    return at_least(tenant, "left of its bucket", share, params.left, "of the burst", len(used), sentence, runs)


def _others(costs: CostFrame, looping: list[str]) -> Rule:
    """The tenant still has budget: none of its runs is refused for want of it."""
    asked = [request for tenant in looping for request in costs.of_tenant(tenant)]
    refused = [(r.call, f"{r.tenant} was refused for its tokens") for r in asked
               if r.outcome in REFUSED and r.reason == TOKENS]  # fmt: skip
    return never("runs", "of a tenant whose agents loop were refused for its budget", refused, len(asked), 1,
                 "runs beside those that loop", "runs")  # fmt: skip


def _evidence(guard: str, trees: list[Tree], params: Params) -> Rule:
    n = sum(tree.wants_more(guard) for tree in trees)
    return enough("evidence", f"ask for more than their {guard}", n, params.runs, "runs",
                  f"runs with `{guard}` in their envelope that ask for more")  # fmt: skip


CHECKS[NAME] = Check(
    NAME,
    "an agent that loops is stopped by its own guards while its tenant still has budget",
    "decisions, and arrivals that say what they used, of runs that loop and of others of the same tenant",
    Params,
    judge,
)
