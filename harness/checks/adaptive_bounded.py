"""capacity.adaptive_bounded: an adaptive limit stays between the interactive reserve and the tested maximum.

For each dependency with an adaptive limit on its reads, `lowest` and `highest` being those of the profile:

    above   no decision shows a limit over `highest`; never more reads in flight than that, as the dependency saw it
    below   no decision shows a limit under `lowest`; while steps wait, fewer than `lowest` reads in flight is a limit
            below it, whatever the decisions say

A limit that never came near its bounds proves nothing: both must have been reached, with demand for more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from harness.checks import rules
from harness.checks.context import NS_PER_MS
from harness.checks.registry import CHECKS, Check
from harness.checks.rules import Rule
from harness.checks.rulings import Breach, missing, never
from harness.checks.step_rows import Frame, StepRows, answered, at, ended_ns, frame_of, most_at_once
from harness.checks.verdict import Verdict
from harness.ledger.evidence import Row
from harness.ledger.reader import Trial
from harness.profile.base import DurationNs, Part
from harness.profile.capacity import Adaptive, Dependency

NAME = "capacity.adaptive_bounded"
NEVER_NS = 2**62
Least = Annotated[int, Field(ge=0, le=1_000_000, strict=True)]


class Params(Part):
    """starved: how long fewer than `lowest` reads may be in flight while steps wait (a slot that has just become free
    takes a moment to be taken). changes: of the limit, in each direction. at_bound: ends of steps at each bound.
    """

    starved: DurationNs = 100 * NS_PER_MS
    changes: Least = 1
    at_bound: Least = 5


def judge(trial: Trial, params: Params) -> Verdict:
    frame = frame_of(trial)
    withheld = missing(NAME, frame.evidence, "decisions", "arrivals")
    if withheld:
        return withheld
    asked = frame.profile.capacity.dependencies if frame.profile.capacity else {}
    adaptive = [(name, d, d.adaptive) for name, d in asked.items() if d.adaptive is not None]
    if not adaptive:
        what = "no dependency of the profile has an adaptive limit"
        return rules.withheld(NAME, what, "`adaptive:` for a dependency, and load that moves its limit")
    found = [rule for name, d, bounds in adaptive for rule in _judge_one(frame, name, d, bounds, params)]
    shown = ", ".join(f"{name} from {bounds.lowest} to {bounds.highest}" for name, _, bounds in adaptive)
    return rules.verdict(NAME, found, f"The adaptive limit moved to both of its bounds and never past them ({shown}).")


def _judge_one(frame: Frame, name: str, dependency: Dependency, bounds: Adaptive, params: Params) -> Iterator[Rule]:
    told = [row for row in frame.evidence.decisions if _tells_limit(row, name)]
    over = [(_id(row), f"limit {row['limit']} at {_s(at(row))}") for row in told if int(row["limit"]) > bounds.highest]
    under = [(_id(row), f"limit {row['limit']} at {_s(at(row))}") for row in told if int(row["limit"]) < bounds.lowest]
    add = "decisions that tell the limit"
    yield never(name, f"showed a limit over {bounds.highest}", over, len(told), 1, add, "decisions")
    yield never(name, f"showed a limit under {bounds.lowest}", under, len(told), 1, add, "decisions")
    spans = list(_in_flight(frame, name, dependency))
    most, where = most_at_once((begin, end) for begin, end, _ in spans)
    named = [id_ for begin, end, id_ in spans if begin <= where < end]
    yield rules.at_most(
        name, "reads in flight at once", most, bounds.highest, "calls", len(spans),
        f"{name}: {most} reads were in flight at {_s(where)}, where {bounds.highest} is the tested maximum", named,
    )  # fmt: skip
    yield _starved(frame, name, bounds, [(begin, end) for begin, end, _ in spans], params)
    yield from _evidence(name, bounds, told, params)


def _tells_limit(row: Row, dependency: str) -> bool:
    return row.get("dependency") == dependency and row.get("operation") == "read" and row.get("limit") is not None


def _in_flight(frame: Frame, name: str, dependency: Dependency) -> Iterator[tuple[int, int, str]]:
    """Reads as the controller held them: a call that it gave up on is not in flight for it any more."""
    for row in frame.evidence.arrivals:
        if row.get("dependency") == name and row.get("operation") == "read":
            end = ended_ns(row)
            yield at(row), end if answered(row) else min(end, at(row) + dependency.reads.timeout), _id(row)


def _starved(frame: Frame, name: str, bounds: Adaptive, in_flight: list[tuple[int, int]], params: Params) -> Rule:
    """Longest time in which steps waited and fewer than `lowest` reads were in flight."""
    steps = [step for step in frame.of_dependency(name) if step.told("operation") == "read"]
    waits = [wait for step in steps for wait in _waits(step)]
    events = [(instant, 0, sign) for begin, end in waits for instant, sign in ((begin, 1), (end, -1))]
    events += [(instant, 1, sign) for begin, end in in_flight for instant, sign in ((begin, 1), (end, -1))]
    counts, since_ns = [0, 0], NEVER_NS
    breaches: list[Breach] = []
    # What begins at an instant comes before what ends there: steps that wait one after another have waited all along.
    for instant, which, sign in sorted(events, key=lambda event: (event[0], -event[2])):
        if since_ns != NEVER_NS and frame.stalls.between(since_ns, instant) > params.starved:
            breaches.append((name, f"{counts[1]} in flight, {counts[0]} waiting, from {_s(since_ns)} to {_s(instant)}"))
        counts[which] += sign
        starved = counts[0] > 0 and counts[1] < bounds.lowest
        since_ns = min(since_ns, instant) if starved else NEVER_NS
    n = len(waits)
    what = f"saw steps wait with fewer than {bounds.lowest} reads in flight"
    return never(name, what, breaches[:1], n, params.at_bound, "more reads than the limit allows", "waits")


def _waits(step: StepRows) -> Iterator[tuple[int, int]]:
    """[queued, started or ended) of each of its waits for a slot."""
    others = sorted(at(row) for row in (*step.decided("step", "admitted"), *step.ends))
    for queued in step.decided("step", "queued"):
        later = [instant for instant in others if instant >= at(queued)]
        if later:
            yield at(queued), later[0]


def _evidence(name: str, bounds: Adaptive, told: list[Row], params: Params) -> Iterator[Rule]:
    changed = [str(row.get("outcome")) for row in told if row.get("kind") == "limit"]
    ends = [int(row["limit"]) for row in told if row.get("kind") == "step"]
    for what, n, least, unit, add in (
        ("raised", changed.count("raised"), params.changes, "changes", "quiet windows with more demand than the limit"),
        ("lowered", changed.count("lowered"), params.changes, "changes", "a fault that makes it slow"),
        (f"taken at the limit {bounds.highest}", sum(v >= bounds.highest for v in ends), params.at_bound, "decisions",
         "a longer quiet time with more demand, so that the limit rises to its highest"),
        (f"taken at the limit {bounds.lowest}", sum(v <= bounds.lowest for v in ends), params.at_bound, "decisions",
         "longer trouble, so that the limit falls to its lowest"),
    ):  # fmt: skip
        yield rules.enough(name, what, n, least, unit, add)


def _id(row: Row) -> str:
    return f"{row['run']}/{row.get('step')}" if row.get("run") is not None else str(row.get("dependency"))


def _s(ns: int) -> str:
    return f"{ns / 1e9:.2f} s"


CHECKS[NAME] = Check(
    NAME,
    "an adaptive limit stays between the interactive reserve and the tested maximum",
    "decisions and arrivals of a dependency whose limit rises to its highest and falls to its lowest",
    Params,
    judge,
)
