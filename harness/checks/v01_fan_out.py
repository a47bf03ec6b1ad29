"""v01.fan_out_ceiling: no run makes more calls than its envelope holds, whichever way it asks for them.

Counted by what arrived at the dependencies, for a run and all the sub-agents that descend from it:

    arrivals of the run          <= attempts of its envelope
    arrivals at a dependency     <= its budget for that dependency
    a batch that asks for more   is refused whole: none of its calls arrives, none is dropped in silence
    the task                     is told `budget_exhausted`, and ends so

A run that stays within its envelope is refused nothing: fifty runs of one call are fifty customers. The controller's
own count of what remains is never read.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from harness.checks.capacity_frames import (
    OPEN_RUN,
    SUBMIT,
    Frame,
    Run,
    Step,
    budgets_of,
    envelope_limit,
    frame_of,
    size_of,
)
from harness.checks.registry import CHECKS, Check
from harness.checks.rules import Rule, at_most, enough, none_of, verdict, withheld
from harness.checks.tree_rows import OF_TREES
from harness.checks.v05_histories import histories_of, ok
from harness.checks.verdict import Verdict
from harness.ledger.evidence import Row
from harness.ledger.outcomes import BUDGET_EXHAUSTED, SERVED
from harness.ledger.reader import Trial
from harness.profile.base import Count, Part
from harness.profile.capacity import Batch

NAME = "v01.fan_out_ceiling"
MODEL = "model"
"""Tool of a step that asks a model: it counts as any other call."""


class Params(Part):
    """runs: that must have come to their ceiling in each of the ways (one batch, parallel batches, re-plans, retries,
    sub-agents, failing calls, model and tool calls). within: runs that must have stayed within it."""

    runs: Count = 5
    within: Count = 20


@dataclass(frozen=True, slots=True, eq=False)
class _Tree:
    """A run with its sub-agents. asked: calls that its batches asked for, by what its caller submitted; by_dependency:
    the same, apart. exact: all its batches are known. told: an open or a submit was answered `budget_exhausted`."""

    root: Run
    runs: list[Run]
    steps: list[Step]
    asked: int
    by_dependency: Counter[str]
    exact: bool
    told: bool

    @property
    def arrivals(self) -> int:
        return sum(len(step.arrivals) for step in self.steps)


def judge(trial: Trial, params: Params) -> Verdict:
    frame = frame_of(trial)
    if not frame.evidence.has_arrivals:
        return withheld(
            NAME, "there are no arrivals, and the calls of a run are counted where they arrive",
            "let the layer under test call the stub's dependencies (`overload stub --dependencies-only`)",
        )  # fmt: skip
    trees = [_tree(frame, root, runs) for root, runs in frame.trees().items()]
    rules = [
        *_ceilings(frame, trees), *_whole(frame), *_ends(frame, trees), _unharmed(frame, trees),
        *_evidence(frame, trees, params),
    ]  # fmt: skip
    reached = sum(tree.told for tree in trees)
    passed = (
        f"{len(trees)} runs, {reached} of which asked for more than they may: no run passed its ceiling, and each "
        "batch that asked for too much was refused whole before any of its calls."
    )
    return verdict(NAME, rules, passed)


def _tree(frame: Frame, root: str, runs: list[str]) -> _Tree:
    views = [frame.runs[run] for run in runs]
    asked, by_dependency, exact = 0, Counter[str](), True
    for run in views:
        batches = submitted(run)
        exact = exact and batches is not None
        for batch in batches or ():
            asked += size_of(batch)
            by_dependency.update({step.dependency: 0 for step in batch.steps})
            for step in batch.steps:
                by_dependency[step.dependency] += step.repeat
    told = any(_told(row) for run in views for row in run.calls)
    steps = [step for run in runs for step in frame.of_run.get(run, ())]
    return _Tree(frame.runs[root], views, steps, asked, by_dependency, exact, told)


def _told(row: Row) -> bool:
    """An open or a submit that was refused because the envelope holds too few calls; what else a tree may have too
    little of is another check's."""
    refused = row.get("action") in (OPEN_RUN, SUBMIT) and row.get("outcome") == BUDGET_EXHAUSTED
    return refused and row.get("reason") not in OF_TREES


def submitted(run: Run) -> list[Batch] | None:
    """The batches that its caller submitted, in order, as the profile has them; None if the profile does not tell.

    The i-th submit of round 0 is the i-th batch, and one of a later round is the re-plan.
    """
    if run.group is None:
        return None
    if run.parent is None:
        known = list(run.group.batches)
    elif len(run.group.children) == 1 and not run.group.children[0].children:
        known = list(run.group.children[0].batches)
    else:
        return None
    found, place = [], 0
    for row in run.calls:
        if row.get("action") != SUBMIT:
            continue
        if row.get("round"):
            if run.group.replans is None:
                return None
            found.append(run.group.replans.batch)
        elif place < len(known):
            found.append(known[place])
            place += 1
    return found


def _ceilings(frame: Frame, trees: list[_Tree]) -> list[Rule]:
    over: list[tuple[int, int, str]] = []
    dependencies: list[tuple[int, int, str, str]] = []
    samples = 0
    for tree in trees:
        attempts = envelope_limit(frame, tree.root, "attempts")
        if attempts is None:
            continue
        samples += 1
        if tree.arrivals > attempts:
            over.append((tree.arrivals, attempts, tree.root.id))
        started = Counter(str(row.get("dependency")) for step in tree.steps for row in step.arrivals)
        for name, budget in budgets_of(frame, tree.root).items():
            if started[name] > budget:
                dependencies.append((started[name], budget, name, tree.root.id))
    over.sort(key=lambda found: found[1] - found[0])
    dependencies.sort(key=lambda found: found[1] - found[0])
    most, bound, run = over[0] if over else (0, 0, "")
    text = f"run {run}: {most} calls reached the dependencies where its envelope holds {bound} ({len(over)} such runs)"
    rules = [at_most("runs", "calls over the ceiling", most - bound, 0, "calls", samples, text, [f[2] for f in over])]
    more, budget, name, run = dependencies[0] if dependencies else (0, 0, "", "")
    text = f"run {run}: {more} calls to {name} where its budget is {budget} ({len(dependencies)} such runs)"
    named = [found[3] for found in dependencies]
    return [*rules, at_most("runs", "calls over a budget", more - budget, 0, "calls", samples, text, named)]


def _whole(frame: Frame) -> list[Rule]:
    """A batch starts whole or not at all; what is told as served has reached a dependency."""
    refused = {(str(row.get("run")), str(row.get("batch"))) for row in frame.of_kind("batch", BUDGET_EXHAUSTED)}
    started, in_part, unreached = [], [], []
    batches: dict[tuple[str, str], list[Step]] = {}
    for step in frame.steps.values():
        batches.setdefault((step.run, step.batch), []).append(step)
        if step.outcome == SERVED and not step.arrivals and not step.readbacks:
            unreached.append(step.id)
    for key, steps in batches.items():
        arrived = [step for step in steps if step.arrivals]
        if key in refused:
            started += [step.id for step in arrived]
        elif arrived:
            size = _size(frame, *key)
            turned = [step for step in steps if not step.arrivals and _turned_away(step)]
            known = [step for step in steps if step.arrivals or step.outcome is not None]
            if turned or (size is not None and len(known) < size):
                in_part.append("/".join(key))
    n = len(batches)
    return [
        none_of("batches", "refused, yet begun", started, len(refused), "batches",
                f"{len(started)} calls started of batches that were refused as budget_exhausted"),
        none_of("batches", "begun in part", in_part, n, "batches",
                f"{len(in_part)} batches began with a part of their calls, the rest dropped"),
        none_of("steps", "served without a call", unreached, len(frame.steps), "steps",
                f"{len(unreached)} steps were told as served though nothing reached a dependency"),
    ]  # fmt: skip


def _turned_away(step: Step) -> bool:
    return step.outcome == BUDGET_EXHAUSTED and (step.end or {}).get("reason") not in OF_TREES


def _size(frame: Frame, run: str, batch: str) -> int | None:
    """Of a batch by its name, `b<place>` or `b<place>.r<round>`; None if the profile does not tell."""
    view = frame.runs.get(run)
    if view is None or view.group is None:
        return None
    name, _, round_ = batch.partition(".r")
    if round_:
        return size_of(view.group.replans.batch) if view.group.replans else None
    batches = view.group.batches
    if view.parent is not None:
        children = view.group.children
        batches = children[0].batches if len(children) == 1 and not children[0].children else []
    place = int(name[1:]) if name[:1] == "b" and name[1:].isdecimal() else -1
    return size_of(batches[place]) if 0 <= place < len(batches) else None


def _ends(frame: Frame, trees: list[_Tree]) -> list[Rule]:
    """A run that asked for more than its envelope was told so, and ended so."""
    over = [tree for tree in trees if len(tree.runs) == 1 and tree.exact and _asked_too_much(frame, tree)]
    untold = [tree.root.id for tree in over if not tree.told]
    ends = [str((tree.root.ended or {}).get("outcome")) for tree in over]
    ended = [tree.root.id for tree, end in zip(over, ends, strict=True) if end != BUDGET_EXHAUSTED]
    kinds = ", ".join(dict.fromkeys(end for end in ends if end != BUDGET_EXHAUSTED))
    rules = [
        none_of("runs", "not told", untold, len(over), "runs",
                f"{len(untold)} runs asked for more than they may and were never told budget_exhausted")
    ]  # fmt: skip
    if frame.evidence.has_decisions:
        text = f"{len(ended)} runs asked for more than they may, and ended {kinds} where budget_exhausted is the truth"
        rules.append(none_of("runs", "ended otherwise", ended, len(over), "runs", text))
    return rules


def _asked_too_much(frame: Frame, tree: _Tree) -> bool:
    attempts = envelope_limit(frame, tree.root, "attempts")
    budgets = budgets_of(frame, tree.root)
    over = any(tree.by_dependency[name] > budget for name, budget in budgets.items())
    return over or (attempts is not None and tree.asked > attempts)


def _unharmed(frame: Frame, trees: list[_Tree]) -> Rule:
    """The healthy twin: what stays within its envelope is refused nothing on account of it."""
    within = _within(frame, trees)
    refused = [tree.root.id for tree in within if tree.told]
    text = f"{len(refused)} runs were refused as budget_exhausted though they stayed within their envelope"
    return none_of("runs", "refused within the envelope", refused, len(within), "runs", text)


def _within(frame: Frame, trees: list[_Tree]) -> list[_Tree]:
    return [
        tree for tree in trees
        if tree.exact and len(tree.runs) == 1 and not (tree.root.group and tree.root.group.children)
        and not _asked_too_much(frame, tree)
        and tree.asked + sum(max(0, len(step.arrivals) - 1) for step in tree.steps)
        <= (envelope_limit(frame, tree.root, "attempts") or 0)
    ]  # fmt: skip


def _evidence(frame: Frame, trees: list[_Tree], params: Params) -> list[Rule]:
    told = [tree for tree in trees if tree.told]
    groups = [(tree, tree.root.group) for tree in told if tree.root.group]
    plain = [t for t, g in groups if not (g.parallel or g.replans or g.children)]
    tools = [{str(row.get("tool")) for step in tree.steps for row in step.arrivals} for tree in told]
    failing = [t for t in told if any(not ok(row.get("status")) for step in t.steps for row in step.arrivals)]
    retried = set(histories_of(frame).out_of("attempts"))
    counts = [
        ("one batch", len(plain), "runs whose next batch asks for more than remains"),
        ("parallel batches", sum(g.parallel for _, g in groups), "runs with `parallel: true` that ask for too much"),
        ("re-plans", sum(bool(t.root.group and t.root.group.replans) for t in told), "runs with `replans`"),
        ("sub-agents", sum(bool(g.children) for _, g in groups), "runs with `children` that ask for too much"),
        ("retries", len(retried), "failing steps with more retry tokens than attempts"),
        ("failing calls", len(failing), "runs over their ceiling whose calls fail"),
        ("model and tool calls", sum(MODEL in t and len(t) > 1 for t in tools), "steps with `tool: model` and others"),
    ]
    rules = [enough("runs", what, have, params.runs, "runs", add) for what, have, add in counts]
    within = len(_within(frame, trees))
    rules.append(enough("runs", "within the envelope", within, params.within, "runs", "runs that ask for one call"))
    if not frame.evidence.has_decisions:
        rules.append(enough("decisions", "how runs end", 0, 1, "decisions", "the controller's decisions"))
    return rules


CHECKS[NAME] = Check(
    NAME,
    "no run makes more calls than its envelope holds; a batch that asks for more is refused whole",
    "arrivals and decisions of runs that come to their ceiling in every way: batches, re-plans, retries, sub-agents",
    Params,
    judge,
)
