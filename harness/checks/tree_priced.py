"""tree.delegate_priced: delegating and calling a tool are admitted at their different costs.

    spent       delegate_cost * sub-agents opened + tool_cost * calls that arrived   <= credits of the tree
    not sooner  nobody is refused for credits while as many are left as it asked for
    not others  a tree that asks for no more than its credits is refused nothing

Counted from the runs that the callers opened and the calls that arrived, at the prices of the profile. It never reads
what the layer says is left.
"""

from __future__ import annotations

from collections import Counter

from harness.checks.capacity_frames import OPEN_RUN, Frame
from harness.checks.registry import CHECKS, Check
from harness.checks.rules import Rule, at_most, enough, verdict, withheld
from harness.checks.rulings import Breach, never
from harness.checks.tree_rows import Tree, refused_modestly, trees_of
from harness.checks.verdict import Verdict
from harness.ledger.outcomes import BUDGET_EXHAUSTED
from harness.ledger.reader import Trial
from harness.profile.base import Count, Part
from harness.profile.tree_demand import CREDITS, prices_of

NAME = "tree.delegate_priced"


class Params(Part):
    """delegations, calls: trees that must have been refused a sub-agent, and a batch of calls, for want of credits.
    modest: trees that must have asked for no more than they may."""

    delegations: Count = 5
    calls: Count = 5
    modest: Count = 10


def judge(trial: Trial, params: Params) -> Verdict:
    frame, found, absent = trees_of(trial, NAME)
    if absent is not None:
        return absent
    trees = [tree for tree in found if CREDITS in tree.limits]
    delegate, tool = prices_of(frame.profile)
    if not trees or delegate == tool:
        return withheld(NAME, "no run has credits, or both prices are the same",
                        "`credits` in an envelope, `delegate_cost` and `tool_cost` in capacity.envelope")  # fmt: skip
    modest, n_modest = refused_modestly(trees)
    soon, refused = _too_soon(frame, trees)
    rules = [
        _spent(trees, delegate, tool),
        never("trees", "were refused while they had the credits", soon, refused, 1, "trees that ask for more", "trees"),
        never("trees", "were refused though they asked for no more than they may", modest, n_modest, params.modest,
              "trees that stay within their credits: of calls alone, and with sub-agents", "trees"),
        *_evidence(trees, params),
    ]  # fmt: skip
    passed = (
        f"{len(trees)} trees kept within their credits at {delegate} a delegation and {tool} a call; {refused} asked "
        "for more and were refused just then."
    )
    return verdict(NAME, rules, passed)


def spent_by(tree: Tree, delegate: int, tool: int) -> int:
    """[credits]"""
    return delegate * tree.agents + tool * sum(node.steps for node in tree.nodes.values())


def _spent(trees: list[Tree], delegate: int, tool: int) -> Rule:
    over = sorted(
        ((spent_by(tree, delegate, tool) - tree.limits[CREDITS], tree) for tree in trees), key=lambda one: -one[0]
    )
    broken = [(n, tree) for n, tree in over if n > 0]
    most, worst = broken[0] if broken else (0, trees[0])
    calls = sum(node.steps for node in worst.nodes.values())
    sentence = (
        f"run {worst.root}: {worst.agents} sub-agents and {calls} calls cost {spent_by(worst, delegate, tool)} credits "
        f"where it has {worst.limits[CREDITS]} ({len(broken)} such)"
    )
    roots = [tree.root for _, tree in broken]
    return at_most("trees", "credits over the envelope", most, 0, "credits", len(trees), sentence, roots)


def _too_soon(frame: Frame, trees: list[Tree]) -> tuple[list[Breach], int]:
    """Of trees none of whose sub-agents has credits of its own: those are carved out, spent or not."""
    delegate, tool = prices_of(frame.profile)
    breaches: list[Breach] = []
    refused = 0
    for tree in trees:
        carved = any(child.envelope.credits is not None for child, _, _ in tree.sub_agents())
        prices = _refused_prices(frame, tree, delegate, tool)
        if carved or not prices:
            continue
        refused += 1
        left = tree.limits[CREDITS] - spent_by(tree, delegate, tool)
        if left >= min(prices):
            breaches.append((tree.root, f"{left} credits left, {min(prices)} asked for"))
    return breaches, refused


def _refused_prices(frame: Frame, tree: Tree, delegate: int, tool: int) -> list[int]:
    prices = [delegate for reason, row in tree.told if reason == CREDITS and row.get("action") == OPEN_RUN]
    batches: Counter[tuple[str, str]] = Counter()
    for run in tree.nodes:
        for step in frame.of_run.get(run, ()):
            if step.outcome == BUDGET_EXHAUSTED and (step.end or {}).get("reason") == CREDITS:
                batches[run, step.batch] += 1
    return prices + [tool * n for n in batches.values()]


def _evidence(trees: list[Tree], params: Params) -> list[Rule]:
    opens = sum(any(r == CREDITS and row.get("action") == OPEN_RUN for r, row in tree.told) for tree in trees)
    calls = sum(any(r == CREDITS and row.get("action") != OPEN_RUN for r, row in tree.told) for tree in trees)
    more = [tree for tree in trees if tree.wants_more(CREDITS)]
    wide = sum(tree.wanted is not None and tree.wanted.of["fan_out"] > 0 for tree in more)
    return [
        enough("evidence", "refused a sub-agent", max(opens, wide), params.delegations, "trees",
               "runs with `children` whose price is more than their credits"),
        enough("evidence", "refused a batch of calls", max(calls, len(more) - wide), params.calls, "trees",
               "runs whose calls cost more than their credits"),
    ]  # fmt: skip


CHECKS[NAME] = Check(
    NAME,
    "delegating and calling a tool are admitted at their different costs",
    "arrivals and decisions of runs with `credits`: some that delegate too much, some that call too much, some modest",
    Params,
    judge,
)
