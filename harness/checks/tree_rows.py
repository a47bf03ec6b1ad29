"""What the checks of delegation trees look at: each run with its sub-agents, what the profile lets it use, what it did.

Who opened what is known from the callers' own rows, what reached a dependency and what it used from the arrivals, and
only how a step ended from the controller's decisions. What the controller counts is never read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from harness.checks.capacity_frames import CANCEL, FINISH, OPEN_RUN, READ, Frame, Run, frame_of
from harness.checks.rulings import Breach, missing
from harness.checks.verdict import Verdict
from harness.ledger.evidence import Row
from harness.ledger.outcomes import BUDGET_EXHAUSTED, SERVED
from harness.ledger.reader import Trial
from harness.profile.capacity import Child, RunGroup
from harness.profile.tree_demand import REASONS, Wanted, limits_of, wanted_by

OF_TREES = frozenset((*REASONS, "tokens"))
"""With that of a tenant's bucket: whatever is not about a number of calls."""


@dataclass(slots=True)
class Node:
    """One run that was opened. level: 0 for the run itself. opened_ns: when its caller knew; closed_ns: when it said
    that it was over, or the last of its calls had ended."""

    run: str
    level: int
    parent: str | None
    opened_ns: int
    closed_ns: int
    arrivals: list[Row] = field(default_factory=list)
    below: list[str] = field(default_factory=list)

    @property
    def batches(self) -> int:
        """That reached a dependency."""
        return len({str(row.get("step")).rpartition(".")[0] for row in self.arrivals})

    @property
    def steps(self) -> int:
        return len({str(row.get("step")) for row in self.arrivals})


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """limits: by REASONS. told: reasons that its callers were given, with the call."""

    root: str
    tenant: str
    group: RunGroup | None
    limits: Mapping[str, int]
    wanted: Wanted | None
    nodes: dict[str, Node]
    told: list[tuple[str, Row]]

    @property
    def agents(self) -> int:
        """Sub-agents that were opened."""
        return len(self.nodes) - 1

    @property
    def arrivals(self) -> list[Row]:
        return [row for node in self.nodes.values() for row in node.arrivals]

    def under(self, run: str) -> Iterator[Node]:
        """The node and all below it."""
        node = self.nodes[run]
        yield node
        for child in node.below:
            yield from self.under(child)

    def wants_more(self, what: str) -> bool:
        limit = self.limits.get(what)
        return limit is not None and self.wanted is not None and self.wanted.of[what] > limit

    @property
    def modest(self) -> bool:
        """It asks for no more than it may have of anything."""
        return self.wanted is not None and self.wanted.exact and not any(map(self.wants_more, REASONS))

    @property
    def whole(self) -> bool:
        """All of it was opened, and all of its calls arrived; or that cannot be known."""
        if self.wanted is None or not self.wanted.exact:
            return True
        steps = sum(node.steps for node in self.nodes.values())
        return self.agents == sum(count for _, count, _ in self.sub_agents()) and steps >= self.wanted.steps

    def sub_agents(self) -> Iterator[tuple[Child, int, int]]:
        return self.group.sub_agents() if self.group is not None else iter(())


def trees_of(trial: Trial, check: str) -> tuple[Frame, list[Tree], Verdict | None]:
    """(frame, trees, what the check says if arrivals or decisions are not there): all trees whose limits the profile
    tells; read once a trial. Raises LedgerError on a damaged file."""
    frame = frame_of(trial)
    if "trees" not in trial.memo:
        trial.memo["trees"] = _read(frame)
    found: list[Tree] = trial.memo["trees"]
    return frame, found, missing(check, frame.evidence, "arrivals", "decisions")


def _read(frame: Frame) -> list[Tree]:
    found = []
    arrived: dict[str, list[Row]] = {}
    for row in frame.evidence.arrivals:
        arrived.setdefault(str(row.get("run")), []).append(row)
    for root, runs in frame.trees().items():
        view = frame.runs[root]
        limits = limits_of(frame.profile, view.group, frame.bundled)
        if view.tenant is None or not limits:
            continue
        nodes = _nodes(frame, root, runs, arrived)
        told = [
            (str(row.get("reason")), row) for run in runs for row in frame.runs[run].calls
            if row.get("outcome") == BUDGET_EXHAUSTED and row.get("reason")
        ]  # fmt: skip
        wanted = wanted_by(frame.profile, view.group) if view.group is not None else None
        found.append(Tree(root, view.tenant, view.group, limits, wanted, nodes, told))
    return found


def _nodes(frame: Frame, root: str, runs: Iterable[str], arrived: Mapping[str, list[Row]]) -> dict[str, Node]:
    views = {run: frame.runs[run] for run in runs}
    nodes: dict[str, Node] = {}
    for run, view in views.items():
        level, above = 0, run
        while above != root and views[above].parent in views and level < len(views):
            level, above = level + 1, str(views[above].parent)
        mine = arrived.get(run, [])
        nodes[run] = Node(run, level, view.parent if run != root else None, *_span(view, mine), mine)
    for run, node in nodes.items():
        if node.parent in nodes:
            nodes[node.parent].below.append(run)
    for node in sorted(nodes.values(), key=lambda one: -one.level):
        if node.parent in nodes:
            nodes[node.parent].closed_ns = max(nodes[node.parent].closed_ns, node.closed_ns)
    return nodes


def _span(view: Run, arrivals: Sequence[Row]) -> tuple[int, int]:
    """(from, to) for certain: from the answer that opened it until its caller says that it is over, or its last call
    has ended."""
    opened = [int(row["done_ns"]) for row in view.calls if row.get("action") == OPEN_RUN and row.get("run_id")]
    said = [int(row["sent_ns"]) for row in view.calls
            if row.get("action") in (FINISH, CANCEL) and row.get("sent_ns") is not None]  # fmt: skip
    ended = [int(row["ended_ns"]) for row in arrivals]
    begin = min([*opened, *(int(row["t_ns"]) for row in arrivals)], default=0)
    return begin, max([begin, *said, *ended])


def handed_on(frame: Frame, rows: Iterable[Row], what: str) -> int:
    """Tokens or bytes of answers to reads that were told as served. A write is told whatever it brings: it took
    effect."""
    total = 0
    for row in rows:
        step = frame.steps.get((str(row.get("run")), str(row.get("step"))))
        n = row.get(what)
        if isinstance(n, int) and row.get("operation") == READ and step is not None and step.outcome == SERVED:
            total += n
    return total


def begun_when_spent(frame: Frame, rows: Iterable[Row], what: str, limit: int, late_ns: int) -> list[Breach]:
    """Calls that began though the answers that had come in before had used up the limit. late_ns: what an answer needs
    to be heard of, and a call to arrive."""
    lived = frame.stalls.lived
    rows = list(rows)
    ended = sorted((lived(int(row["ended_ns"])), int(row[what])) for row in rows if isinstance(row.get(what), int))
    total, full_ns = 0, None
    for at_ns, n in ended:
        total += n
        if total >= limit:
            full_ns = at_ns
            break
    if full_ns is None:
        return []
    begun = [(lived(int(row["t_ns"])) - full_ns, f"{row.get('run')}/{row.get('step')}") for row in rows]
    return [(name, f"{after / 1e6:.0f} ms after {limit:,} {what}") for after, name in begun if after > late_ns]


def refused_modestly(trees: Iterable[Tree]) -> tuple[list[Breach], int]:
    """(refusals of trees that ask for no more than they may have, how many such trees there are)."""
    modest = [tree for tree in trees if tree.modest]
    refused = [(tree, [reason for reason, _ in tree.told if reason in REASONS]) for tree in modest]
    return [(tree.root, f"refused for {reasons[0]}") for tree, reasons in refused if reasons], len(modest)


def untold(trees: Iterable[Tree]) -> tuple[list[Breach], int]:
    """(trees that were cut short without a typed reason, how many were cut short)."""
    short = [tree for tree in trees if not tree.whole]
    return [(tree.root, "no `budget_exhausted` with a reason") for tree in short if not tree.told], len(short)
