"""v02.foreground_first: when background work saturates its capacity, people who wait do not notice.

Burst is held against the same trial's calm, in which there is no background work:

    latency     of interactive calls (done - due, as their caller saw it): the p95 rises by less than a margin
                (block bootstrap), the p99 too where there are samples for it; those who return first may have to
                wait for lent calls to end, and no longer
    served/s    at least the customer-facing floor
    refusals    of foreground calls up by less than a margin, and none while background work waits in the same queue
    floor       background calls in flight never reach into the slots that are never lent
    taken back  a class that has just asked lends nothing more: no background call starts beyond limit - reserves, and
                none while a foreground call waits below its class's reserve
    ceiling     never more in flight than each limit and the ceiling: a reserve is not honoured by going over them

Slots are counted by what was under way at the dependencies, never by what the controller says is in use.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import numpy as np
from pydantic import Field

from harness.checks.caller_view import column, is_refused, latency_of, rng_of, submits
from harness.checks.capacity_frames import (
    BACKGROUND,
    FOREGROUND,
    BulkheadKey,
    Frame,
    Ints,
    Run,
    Step,
    bulkhead_of,
    by_bulkhead,
    frame_of,
    id_of,
    in_flight,
    limit_of,
    running_at,
    waits_of,
    was_full,
    within_limits,
    work,
)
from harness.checks.context import NS_PER_MS
from harness.checks.registry import CHECKS, Check
from harness.checks.rules import Rule, at_least, at_most, enough, none_of, unmoved, verdict, withheld
from harness.checks.verdict import Verdict
from harness.ledger.evidence import Row
from harness.ledger.outcomes import REFUSED, SERVED, THROTTLED
from harness.ledger.reader import Trial
from harness.measure.quantiles import GATES_FROM, quantile
from harness.measure.unmoved import quantile_up, share_up
from harness.profile.base import Count, DurationNs, Part, RatePerS
from harness.profile.model import Window
from harness.profile.units import NS_PER_S

NAME = "v02.foreground_first"
INTERACTIVE = "interactive"


class Params(Part):
    """latency_up: margin of the p95 (and p99); left out, the longest service time of a dependency that interactive work
    calls. settle: how long lent calls may still run when people return; left out, the longest service time. served:
    customer-facing floor; left out, `served_share` of what calm served per second. refusals_up_pp: margin in percentage
    points. started: how long a call may be on its way between its start and its arrival. background: calls that must
    have been queued or shed. A bulkhead and the ceiling must have been full, and some of the reserve lent.
    """

    latency_up: DurationNs | None = None
    settle: DurationNs | None = None
    served: RatePerS | None = None
    served_share: Annotated[float, Field(gt=0, le=1)] = 0.9
    refusals_up_pp: Annotated[float, Field(gt=0, lt=100)] = 1.0
    confidence: Annotated[float, Field(ge=0.8, le=0.999)] = 0.95
    started: DurationNs = 50_000_000
    background: Count = 20


def judge(trial: Trial, params: Params) -> Verdict:
    frame = frame_of(trial)
    calm, burst = frame.profile.phases.calm, frame.profile.phases.burst
    if not frame.evidence.has_arrivals:
        return withheld(
            NAME, "there are no arrivals, and slots are counted by what was under way at the dependencies",
            "let the layer under test call the stub's dependencies (`overload stub --dependencies-only`)",
        )  # fmt: skip
    if calm is None or burst is None:
        return withheld(NAME, "the trial has no phases calm and burst to compare", "`phases: {calm, burst}`")
    rules = _latency(frame, params, calm, burst)
    rules.append(_served(frame, params, calm, burst))
    rules += _refusals(frame, params, calm, burst)
    rules += [*_floor(frame), *_taken_back(frame, params), *within_limits(frame), *_evidence(frame, params, burst)]
    p95 = next((rule.finding for rule in rules if rule.finding.quantity == "p95 latency up"), None)
    moved = f"by {p95.measured:.1f} ms" if p95 is not None and p95.measured is not None else "not"
    passed = (
        f"Background work saturated its capacity, and the p95 of interactive calls moved {moved}; the reserve was "
        "lent, taken back, and its floor never touched."
    )
    return verdict(NAME, rules, passed)


def _foreground(run: Run) -> bool:
    return run.group is not None and run.group.traffic_class in FOREGROUND


def _interactive(run: Run) -> bool:
    return run.group is not None and run.group.traffic_class == INTERACTIVE


def _latency(frame: Frame, params: Params, calm: Window, burst: Window) -> list[Rule]:
    margin_ns = (
        params.latency_up if params.latency_up is not None else _longest_service(frame, _called_by_people(frame))
    )
    settle_ns = params.settle if params.settle is not None else _longest_service(frame, None) or 0
    settled = burst.model_copy(update={"from_ns": min(burst.from_ns + settle_ns, burst.to_ns - 1)})
    served = [row for row in submits(frame, _interactive) if row.get("outcome") == SERVED]
    latency_ns = latency_of(frame)
    after, before = column(served, settled, latency_ns), column(served, calm, latency_ns)
    fewest = min(len(after), len(before))
    rules = [
        enough(INTERACTIVE, "p95 latency", fewest, GATES_FROM[0.95], "served calls in calm and burst each",
               "interactive runs at a higher rate, in calm and in the burst")
    ]  # fmt: skip
    if margin_ns is None:
        return [*rules, enough(INTERACTIVE, "margin of the latency", 0, 1, "margins", "give `latency_up`")]
    slow = sorted(served, key=lambda row: -latency_ns(row))
    named = [str(row["call"]) for row in slow if settled.from_ns <= row["due_ns"] < settled.to_ns]
    for p, name in ((0.95, "p95"), (0.99, "p99")):
        if fewest < GATES_FROM[p]:
            continue
        change = quantile_up(p, after, before, params.confidence, rng_of(frame, name))
        if change is not None:
            n = len(after) + len(before)
            milli = change.times(1 / NS_PER_MS)
            rules.append(unmoved(INTERACTIVE, f"{name} latency up", milli, margin_ns / NS_PER_MS, "ms", n, named))
    return rules + _return(frame, served, before.value, burst, settled, settle_ns + margin_ns)


def _return(
    frame: Frame, served: list[Row], calm_ns: Ints, burst: Window, settled: Window, bound_ns: int
) -> list[Rule]:
    """Those who come back first wait for lent calls to end: longer than calm's p95 by at most that and the margin."""
    latency_ns = latency_of(frame)
    first = [row for row in served if burst.from_ns <= int(row["due_ns"]) < settled.from_ns]
    usual = quantile(calm_ns, 0.95)
    if not first or usual is None:
        return []
    longest = max(latency_ns(row) for row in first)
    over, bound = (longest - usual) / NS_PER_MS, bound_ns / NS_PER_MS
    text = f"{INTERACTIVE}: who came back first waited {over:.0f} ms longer than in calm (allowed {bound:.0f})"
    named = [str(row["call"]) for row in first if latency_ns(row) - usual > bound_ns]
    return [at_most(INTERACTIVE, "wait after the return", over, bound, "ms", len(first), text, named)]


def _called_by_people(frame: Frame) -> set[str]:
    return {
        step.dependency for tenant in frame.profile.tenants.values() for group in tenant.runs
        if group.traffic_class == INTERACTIVE for batch in group.batches for step in batch.steps
    }  # fmt: skip


def _longest_service(frame: Frame, among: set[str] | None) -> int | None:
    """Of these dependencies (None: of all); None if it is not known."""
    capacity = frame.profile.capacity
    if capacity is None or not frame.bundled:
        return None
    times = [d.service_time for name, d in capacity.dependencies.items() if among is None or name in among]
    return max(times, default=None)


def _served(frame: Frame, params: Params, calm: Window, burst: Window) -> Rule:
    """Interactive calls served per second, by when they were done."""
    done = np.array(
        [int(r["done_ns"]) for r in submits(frame, _interactive) if r.get("outcome") == SERVED], dtype=np.int64
    )

    def per_s(window: Window) -> float:
        return (
            float(((done >= window.from_ns) & (done < window.to_ns)).sum()) * NS_PER_S / (window.to_ns - window.from_ns)
        )

    floor = float(params.served) if params.served is not None else per_s(calm) * params.served_share
    now = per_s(burst)
    sentence = f"{INTERACTIVE}: {now:.1f} calls a second served in the burst, under the floor of {floor:.1f}"
    return at_least(INTERACTIVE, "served per second", now, floor, "/s", len(done), sentence)


def _refusals(frame: Frame, params: Params, calm: Window, burst: Window) -> list[Rule]:
    rows = submits(frame, _foreground)
    after, before = column(rows, burst, is_refused), column(rows, calm, is_refused)
    change = share_up(after, before, params.confidence, rng_of(frame, "refused")).times(100)
    named = [str(row["call"]) for row in rows if row.get("outcome") in REFUSED]
    rules = [unmoved("foreground", "refusals up", change, params.refusals_up_pp, "points", len(after), named)]
    waits = waits_of(_of_class(frame, BACKGROUND))
    wrong = []
    for step in _of_class(frame, FOREGROUND):
        end = step.end
        if end is None or end.get("outcome") != THROTTLED or end.get("reason") == "tenant_queue_full":
            continue
        if any(begin < int(end["t_ns"]) < until for begin, until, _ in waits.get(bulkhead_of(step), ())):
            wrong.append(step.id)
    text = f"{len(wrong)} foreground calls were shed while background work waited in the same queue"
    return [*rules, none_of("foreground", "shed before background", wrong, len(rows), "calls", text)]


def _of_class(frame: Frame, classes: Iterable[str]) -> list[Step]:
    runs = {run.id for run in frame.runs.values() if run.group is not None and run.group.traffic_class in classes}
    return [step for step in frame.steps.values() if step.run in runs]


def _class_of(frame: Frame, row: Row) -> str | None:
    """As its run was opened, by the profile; what the arrival says of itself only where that is not known."""
    run = frame.runs.get(str(row.get("run")))
    return run.group.traffic_class if run is not None and run.group is not None else row.get("traffic_class")


def _floors(frame: Frame, part: str) -> int:
    """Slots of all foreground classes together: `floor` or `slots`."""
    reserves = frame.profile.capacity.reserves if frame.profile.capacity and frame.bundled else {}
    return sum(int(getattr(reserve, part)) for name, reserve in reserves.items() if name in FOREGROUND)


def _floor(frame: Frame) -> list[Rule]:
    """Background calls in flight, at most limit - floors: in each bulkhead, and under the ceiling."""
    floor = _floors(frame, "floor")
    if not floor or frame.profile.capacity is None:
        return [enough("reserves", "floor", 0, 1, "floors", "`reserves:` with a `floor` for foreground classes")]
    parts = [
        (f"{d} {kind}s", rows, limit_of(frame, (d, kind))) for (d, kind), rows in sorted(by_bulkhead(frame).items())
    ]
    parts.append(("all dependencies", list(work(frame)), frame.profile.capacity.ceiling))
    rules = []
    for subject, rows, limit in parts:
        mine = [row for row in rows if _class_of(frame, row) in BACKGROUND]
        if limit is None or not mine:
            continue
        peak = in_flight(frame, mine).peak()
        bound = limit - floor
        sentence = (
            f"{subject}: {peak.most} background calls in flight where {bound} may be: "
            f"{floor} of {limit} slots are never lent"
        )
        named = running_at(frame, mine, peak.at_ns) if peak.most > bound else ()
        rules.append(at_most(subject, "background in flight", peak.most, bound, "calls", len(mine), sentence, named))
    return rules


def _taken_back(frame: Frame, params: Params) -> list[Rule]:
    """A background call that starts while a foreground one waits, and its class has less in flight than its reserve."""
    reserves = _reserves(frame)
    waits = waits_of(_of_class(frame, FOREGROUND))
    starts = _background_starts(frame, params)
    wrong, samples = [], 0
    for key, spans in waits.items():
        at = np.array([instant for instant, _ in starts.get(key, [])], dtype=np.int64)
        for name, reserve in reserves.items():
            mine = [(a, b) for a, b, step in spans if _class_of(frame, {"run": step.run}) == name]
            samples += len(mine)
            if not mine or not len(at):
                continue
            rows = [row for row in by_bulkhead(frame).get(key, ()) if _class_of(frame, row) == name]
            low = in_flight(frame, rows).at(at) < reserve
            for place in np.flatnonzero(low):
                if any(a < at[place] < b for a, b in mine):
                    wrong.append(starts[key][int(place)][1])
    n = max(samples, len(_of_class(frame, FOREGROUND)))
    text = f"{len(wrong)} background calls started while a foreground call waited below its reserve"
    return [none_of("reserve", "background started first", wrong, n, "calls", text), *_beyond(frame, starts, params)]


def _beyond(frame: Frame, starts: dict[BulkheadKey, list[tuple[int, str]]], params: Params) -> list[Rule]:
    """Background starts that need a slot of a class which asked less than a service time before."""
    capacity = frame.profile.capacity
    if capacity is None or not frame.bundled or not _reserves(frame):
        return []
    quick = min(dependency.service_time for dependency in capacity.dependencies.values())
    parts = []
    for key, rows in sorted(by_bulkhead(frame).items()):
        if key[0] in capacity.dependencies:
            recent_ns = capacity.dependencies[key[0]].service_time
            parts.append((f"{key[0]} {key[1]}s", rows, limit_of(frame, key), recent_ns, starts.get(key, [])))
    everywhere = sorted(start for some in starts.values() for start in some)
    parts.append(("all dependencies", list(work(frame)), capacity.ceiling, quick, everywhere))
    rules = []
    for subject, rows, limit, recent_ns, begun in parts:
        if limit is None or not begun:
            continue
        at = np.array([instant for instant, _ in begun], dtype=np.int64)
        background = in_flight(frame, [row for row in rows if _class_of(frame, row) in BACKGROUND]).at(at)
        room = np.full(len(at), limit, dtype=np.int64)
        for name, reserve in _reserves(frame).items():
            # What arrived after a stall had perhaps been asked for before it: recent is what was so either way.
            asked = [int(row["t_ns"]) for row in rows if _class_of(frame, row) == name]
            perhaps = np.sort([frame.stalls.earliest(instant, params.started) for instant in asked])
            before = np.searchsorted(np.sort(asked), at) - np.searchsorted(perhaps, at - recent_ns)
            room -= np.where(before > 0, reserve, 0)
        wrong = [begun[int(place)][1] for place in np.flatnonzero(background > room)]
        text = (
            f"{subject}: {len(wrong)} background calls started in slots of a class that had just asked: not taken back"
        )
        rules.append(none_of(subject, "background in a reserve that is asked for", wrong, len(at), "calls", text))
    return rules


def _reserves(frame: Frame) -> dict[str, int]:
    """Slots kept for each foreground class."""
    reserves = frame.profile.capacity.reserves if frame.profile.capacity and frame.bundled else {}
    return {str(name): reserve.slots for name, reserve in reserves.items() if name in FOREGROUND}


def _background_starts(frame: Frame, params: Params) -> dict[BulkheadKey, list[tuple[int, str]]]:
    """(instant, id): when each began, by its admission where that is believable, else by its arrival."""
    found: dict[BulkheadKey, list[tuple[int, str]]] = {}
    for step in _of_class(frame, BACKGROUND):
        admitted = step.decided("admitted")
        for place, row in enumerate(step.arrivals):
            at = int(row["t_ns"])
            if place == 0 and admitted is not None and _soon(frame, int(admitted["t_ns"]), at, params.started):
                at = int(admitted["t_ns"])
            found.setdefault(bulkhead_of(step), []).append((at, id_of(row)))
    return found


def _soon(frame: Frame, admitted_ns: int, arrived_ns: int, within_ns: int) -> bool:
    return admitted_ns <= arrived_ns and frame.stalls.between(admitted_ns, arrived_ns) <= within_ns


def _evidence(frame: Frame, params: Params, burst: Window) -> list[Rule]:
    background = _of_class(frame, BACKGROUND)
    delayed = sum(step.decided("queued") is not None or step.outcome == THROTTLED for step in background)
    slots = _floors(frame, "slots")
    full = lent = 0
    for key, rows in by_bulkhead(frame).items():
        limit = limit_of(frame, key)
        if limit is None:
            continue
        full += was_full(frame, key)
        mine = [row for row in rows if _class_of(frame, row) in BACKGROUND]
        lent = max(lent, in_flight(frame, mine).peak().most - (limit - slots))
    at_ceiling = int(was_full(frame, None, burst.from_ns, burst.to_ns))
    more = "more background runs, begun before foreground ones return"
    return [
        enough("background", "queued or shed", delayed, params.background, "steps", "more background runs"),
        enough("bulkheads", "full", full, 1, "bulkheads", more),
        enough("ceiling", "reached in the burst", at_ceiling, 1, "times", more),
        enough("reserve", "lent", max(0, lent), 1, "slots", "a pause of foreground work while background work waits"),
    ]  # fmt: skip


CHECKS[NAME] = Check(
    NAME,
    "when background work saturates its capacity, interactive latency, throughput and refusals stay as in calm",
    "phases calm and burst, 300 interactive calls in each, reserves with a floor, background work that saturates",
    Params,
    judge,
)
