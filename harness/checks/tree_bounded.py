"""tree.bounded: a run and all the sub-agents below it stay within its envelope, whichever of them asks.

    depth, fan-out     of the runs that were opened
    sessions           that were open at once: each from its opening until its longest branch was over
    bytes              of the answers that were handed on, at all levels together
    payload            bytes that any one branch handed up
    context            tokens that were streamed up into the supervisor's context window
    spent              nothing starts once what came in has used up bytes or context
    told               a tree that is cut short is told so, with the reason; one that asks for little is refused nothing

Judged by what the callers opened and what arrived at the dependencies, against the envelope of the profile. A child's
budget is carved out of its parent's: only what the whole tree does counts here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from harness.checks.capacity_frames import Frame
from harness.checks.registry import CHECKS, Check
from harness.checks.rules import Rule, at_most, enough, verdict, withheld
from harness.checks.rulings import never
from harness.checks.tree_rows import (
    Tree,
    begun_when_spent,
    handed_on,
    refused_modestly,
    trees_of,
    untold,
)
from harness.checks.verdict import Verdict
from harness.ledger.reader import Trial
from harness.measure.occupancy import levels
from harness.profile.base import Count, DurationNs, Part
from harness.profile.tree_demand import BYTES, CONTEXT, DEPTH, FAN_OUT, PAYLOAD, SESSIONS

NAME = "tree.bounded"
LIMITS = (DEPTH, FAN_OUT, SESSIONS, BYTES, PAYLOAD, CONTEXT)
UNIT = {
    DEPTH: "levels", FAN_OUT: "sub-agents", SESSIONS: "sessions", BYTES: "bytes", PAYLOAD: "bytes", CONTEXT: "tokens"
}  # fmt: skip


class Params(Part):
    """trees: that must have asked for more than they may have, of each limit. modest: that must have asked for no more.
    late: what an answer needs to be heard of, and a call to arrive."""

    trees: Count = 3
    modest: Count = 10
    late: DurationNs = 50_000_000


def judge(trial: Trial, params: Params) -> Verdict:
    frame, trees, absent = trees_of(trial, NAME)
    if absent is not None:
        return absent
    if not trees:
        return withheld(NAME, "no run has a limit of its tree", "`envelope` with depth, fan_out, sessions, bytes, ...")
    measured: dict[str, Callable[[Tree], float]] = {
        DEPTH: lambda tree: max(node.level for node in tree.nodes.values()),
        FAN_OUT: lambda tree: tree.agents,
        SESSIONS: open_at_once,
        BYTES: lambda tree: handed_on(frame, tree.arrivals, "bytes"),
        PAYLOAD: lambda tree: most_handed_up(frame, tree),
        CONTEXT: lambda tree: handed_on(frame, tree.arrivals, "tokens"),
    }
    modest, n_modest = refused_modestly(trees)
    unsaid, n_short = untold(trees)
    rules = [
        *(_within(what, trees, measured[what]) for what in LIMITS),
        *(_stopped(frame, trees, what, of, params.late) for what, of in ((BYTES, "bytes"), (CONTEXT, "tokens"))),
        never("trees", "were cut short and not told why", unsaid, n_short, 1, "trees that ask for too much", "trees"),
        never("trees", "were refused though they asked for no more than they may", modest, n_modest, params.modest,
              "trees that stay within their envelope: wide and shallow ones, narrow and deep ones", "trees"),
        *(_evidence(what, trees, params) for what in LIMITS),
    ]  # fmt: skip
    passed = (
        f"{len(trees)} trees, {n_short} of which asked for more than they may: none passed its depth, fan-out, "
        "sessions, bytes, payload or context, and none that asked for little was refused."
    )
    return verdict(NAME, rules, passed)


def open_at_once(tree: Tree) -> int:
    nodes = list(tree.nodes.values())
    begins = np.array([node.opened_ns for node in nodes], dtype=np.int64)
    ends = np.array([max(node.opened_ns + 1, node.closed_ns) for node in nodes], dtype=np.int64)
    return levels(begins, ends).peak().most


def most_handed_up(frame: Frame, tree: Tree) -> int:
    """By any one branch of it, the whole tree included."""
    return max(
        handed_on(frame, (row for node in tree.under(run) for row in node.arrivals), "bytes") for run in tree.nodes
    )


def _within(what: str, trees: list[Tree], measure: Callable[[Tree], float]) -> Rule:
    """The worst tree, as a share of its limit."""
    limited = [(measure(tree), tree) for tree in trees if what in tree.limits]
    over = sorted(((n - tree.limits[what], n, tree) for n, tree in limited if n > tree.limits[what]),
                  key=lambda one: -one[0])  # fmt: skip
    most, n, limit, named = (
        (over[0][0], over[0][1], over[0][2].limits[what], over[0][2].root) if over else (0, 0, 0, "")
    )
    sentence = f"run {named} and its sub-agents: {n:,.0f} {UNIT[what]} where its {what} is {limit:,} ({len(over)} such)"
    roots = [tree.root for _, _, tree in over]
    return at_most("trees", f"{what} over the envelope", most, 0, UNIT[what], len(limited), sentence, roots)


def _stopped(frame: Frame, trees: list[Tree], what: str, of: str, late_ns: int) -> Rule:
    limited = [tree for tree in trees if what in tree.limits]
    breaches = [
        found for tree in limited for found in begun_when_spent(frame, tree.arrivals, of, tree.limits[what], late_ns)
    ]
    return never("calls", f"began when the {what} was used up", breaches, len(limited), 0, "", "calls")


def _evidence(what: str, trees: list[Tree], params: Params) -> Rule:
    n = sum(tree.wants_more(what) for tree in trees)
    return enough("evidence", f"ask for more {what} than they may have", n, params.trees, "trees",
                  f"runs with `{what}` in their envelope that ask for more")  # fmt: skip


CHECKS[NAME] = Check(
    NAME,
    "a run and all its sub-agents stay within its depth, fan-out, sessions, bytes, payload and context",
    "arrivals and decisions of trees that ask for more than they may have, of each limit, and of some that do not",
    Params,
    judge,
)
