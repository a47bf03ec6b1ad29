"""capacity.coalesced: equal reads of one tenant share a call; a mutation never does, nor does another tenant's read.

Equal: same tenant, dependency and coalescing text, as the profile marks its steps; a tool names the marked step among
the arrivals. Judged by what arrived:

    shared      equal reads never reach the dependency twice at the same time
    its own     each step told as coalesced or served is covered by a call of its own tenant, dependency and tool that
                was under way when it joined: never by another tenant's, by a write, or by one that had ended
    mutations   each write told as served has a call of its own, and none is told as coalesced
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from harness.checks.capacity_frames import READ, WRITE, Frame, Step, frame_of, work
from harness.checks.registry import CHECKS, Check
from harness.checks.rules import Rule, enough, none_of, verdict, withheld
from harness.checks.verdict import Verdict
from harness.ledger.evidence import Row
from harness.ledger.outcomes import COALESCED, SERVED
from harness.ledger.reader import Trial
from harness.profile.base import Count, DurationNs, Part

NAME = "capacity.coalesced"
Key = tuple[str, str, str, str]
"""(tenant, dependency, operation, tool)"""


class Params(Part):
    """followers: steps that must have shared a call. writes: with a coalescing text that must have gone out alone.
    pairs: moments at which two tenants asked the same. way: how long a call may take to reach the dependency."""

    followers: Count = 20
    writes: Count = 10
    pairs: Count = 5
    way: DurationNs = 50_000_000


@dataclass(frozen=True, slots=True, eq=False)
class _Marked:
    """key -> coalescing text, of the steps that the profile marks."""

    text: dict[Key, str]

    def of(self, key: Key) -> str | None:
        return self.text.get(key)


def judge(trial: Trial, params: Params) -> Verdict:
    frame = frame_of(trial)
    if not frame.evidence.has_arrivals or not frame.evidence.has_decisions:
        return withheld(
            NAME, "it needs both arrivals and decisions", "a target that tells what it coalesced (`/evidence`)"
        )
    marked = _marked(frame)
    rules = [*_shared(frame, marked), *_own(frame, params), *_mutations(frame), *_evidence(frame, marked, params)]
    followers = sum(step.outcome == COALESCED for step in frame.steps.values())
    passed = (
        f"{followers} equal reads shared a call of their own tenant, none reached its dependency twice at once, and "
        "every write went out alone."
    )
    return verdict(NAME, rules, passed)


def _marked(frame: Frame) -> _Marked:
    text: dict[Key, str] = {}
    for name, tenant in frame.profile.tenants.items():
        for group in tenant.runs:
            batches = [*group.batches, *(batch for child, _, _ in group.sub_agents() for batch in child.batches)]
            for step in (step for batch in batches for step in batch.steps):
                if step.coalesce is not None:
                    text[name, step.dependency, step.operation, step.tool] = step.coalesce
    return _Marked(text)


def key_of(frame: Frame, row: Row) -> Key:
    """tenant: whose credential opened the run, where that is known."""
    run = frame.runs.get(str(row.get("run")))
    tenant = run.tenant if run is not None and run.tenant is not None else row.get("tenant")
    return str(tenant), str(row.get("dependency")), str(row.get("operation")), str(row.get("tool"))


def _calls(frame: Frame) -> dict[Key, list[Row]]:
    found: dict[Key, list[Row]] = defaultdict(list)
    for row in work(frame):
        found[key_of(frame, row)].append(row)
    return found


def _shared(frame: Frame, marked: _Marked) -> list[Rule]:
    wrong, samples = [], 0
    for key, rows in _calls(frame).items():
        if key[2] != READ or marked.of(key) is None:
            continue
        until = -1
        for row in sorted(rows, key=lambda row: int(row["t_ns"])):
            samples += 1
            if int(row["t_ns"]) < until:
                wrong.append(f"{row.get('run')}/{row.get('step')}")
            until = max(until, int(row["ended_ns"]))
    text = f"{len(wrong)} reads went out while an equal one of the same tenant was under way"
    return [none_of("reads", "sent twice at once", wrong, samples, "calls", text)]


def _own(frame: Frame, params: Params) -> list[Rule]:
    """A step that was told served or coalesced without a call of its own: covered by one, and by the right one."""
    calls = _calls(frame)
    ended, foreign, samples = [], [], 0
    tenants: dict[str, None] = {}
    for step in frame.steps.values():
        if step.arrivals or step.readbacks or step.outcome not in (SERVED, COALESCED):
            continue
        samples += 1
        key = key_of(frame, {**step.decisions[0], "run": step.run})
        leader = _leader(frame, step)
        if leader is not None and leader[:3] != key[:3]:
            foreign.append(step.id)
            tenants[f"{leader[0]} for {key[0]}" if leader[0] != key[0] else f"a {leader[2]} for a {key[2]}"] = None
        elif not _covered(frame, step, calls.get(key, []), params.way):
            ended.append(step.id)
    shown = "; ".join(list(tenants)[:3])
    text = f"{len(foreign)} steps were given the result of a call that was not theirs ({shown})"
    none = f"{len(ended)} steps were told as done though no equal call of their tenant was under way"
    return [
        none_of("followers", "of a foreign call", foreign, samples, "steps", text),
        none_of("followers", "without a call", ended, samples, "steps", none),
    ]


def _leader(frame: Frame, step: Step) -> Key | None:
    """Whose call it shared, as the controller says: `<run>/<step>`."""
    end = step.end
    named = str((end or {}).get("coalesced_with") or "")
    run, _, name = named.partition("/")
    leader = frame.steps.get((run, name))
    if leader is None or not (leader.arrivals or leader.decisions):
        return None
    return key_of(frame, {**(leader.arrivals or leader.decisions)[0], "run": run})


def _covered(frame: Frame, step: Step, rows: list[Row], way_ns: int) -> bool:
    """Some call was under way between the step's first and last decision."""
    joined, told = int(step.decisions[0]["t_ns"]), int(step.decisions[-1]["t_ns"])
    between = frame.stalls.between
    return any(
        between(told, int(row["t_ns"])) <= way_ns and between(int(row["ended_ns"]), joined) <= way_ns for row in rows
    )


def _mutations(frame: Frame) -> list[Rule]:
    writes = [step for step in frame.steps.values() if _operation(step) == WRITE]
    alone = [step.id for step in writes if step.outcome == COALESCED]
    lost = [step.id for step in writes if step.outcome == SERVED and not (step.arrivals or step.readbacks)]
    return [
        none_of("writes", "coalesced", alone, len(writes), "steps", f"{len(alone)} writes were coalesced with another"),
        none_of("writes", "told as done, never sent", lost, len(writes), "steps",
                f"{len(lost)} writes were told as done though they never reached the dependency"),
    ]  # fmt: skip


def _operation(step: Step) -> str:
    return str((step.arrivals or step.decisions or ({},))[0].get("operation"))


def _evidence(frame: Frame, marked: _Marked, params: Params) -> list[Rule]:
    followers = sum(step.outcome == COALESCED and _operation(step) == READ for step in frame.steps.values())
    calls = _calls(frame)
    writes = sum(len(rows) for key, rows in calls.items() if key[2] == WRITE and marked.of(key) is not None)
    return [
        enough("reads", "shared a call", followers, params.followers, "steps", "runs that read alike, together"),
        enough("writes", "with a coalescing text", writes, params.writes, "steps", "write steps with `coalesce`"),
        enough("tenants", "asked the same at once", _pairs(calls, marked), params.pairs, "moments",
               "two tenants whose steps have the same `coalesce` at the same time"),
    ]  # fmt: skip


def _pairs(calls: dict[Key, list[Row]], marked: _Marked) -> int:
    """Calls of one tenant that overlap with another tenant's of the same dependency and text."""
    count = 0
    reads = [(key, rows) for key, rows in calls.items() if key[2] == READ and marked.of(key) is not None]
    for place, (key, rows) in enumerate(reads):
        for other, theirs in reads[place + 1 :]:
            if other[0] == key[0] or other[1] != key[1] or marked.of(other) != marked.of(key):
                continue
            count += sum(
                any(int(a["t_ns"]) < int(b["ended_ns"]) and int(b["t_ns"]) < int(a["ended_ns"]) for b in theirs)
                for a in rows
            )
    return count


CHECKS[NAME] = Check(
    NAME,
    "equal reads of one tenant share one call; mutations and other tenants' reads never do",
    "arrivals and decisions of equal reads at once, of writes with a coalescing text, and of two tenants asking alike",
    Params,
    judge,
)
