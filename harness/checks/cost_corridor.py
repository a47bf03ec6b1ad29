"""cost.corridor: neither too little admitted nor too much; a trial is placed in the corridor, below it or above.

    below  (too little)  work grows old in the queue for a session        queue age: p95 of what runs waited for one
    above  (too much)    the dependencies throttle what was admitted      share of the arrivals that were answered 429
    in                   neither

Both sides are always measured: a layer that admits little has no throttles, and one that admits all has no queue, and
each looks well by its own figure. Judged by what the callers waited and by what the dependencies answered.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from harness.checks import capacity_frames
from harness.checks.cost_rows import REFUSED, SESSIONS, CostFrame, cost_frame
from harness.checks.registry import CHECKS, Check
from harness.checks.rules import Rule, at_most, enough, verdict, withheld
from harness.checks.rulings import missing, noted
from harness.checks.verdict import Verdict, Word
from harness.ledger.evidence import Row
from harness.ledger.outcomes import EXPIRED
from harness.ledger.reader import Trial
from harness.profile.base import Count, DurationNs, Part

NAME = "cost.corridor"
Share = Annotated[float, Field(ge=0, le=1)]
THROTTLED_STATUS = 429
IN, BELOW, ABOVE, BESIDE = "in", "below", "above", "below and above"


class Params(Part):
    """queue_age: how old work may grow before it is let in (95th percentile). throttles: share of what arrives that the
    dependencies may turn away. runs, arrivals: how many of each there must be. waited: runs that must have asked while
    others were open, so that there was something to let in or to keep out."""

    queue_age: DurationNs = 600_000_000
    throttles: Share = 0.02
    runs: Count = 40
    arrivals: Count = 40
    waited: Count = 10


def judge(trial: Trial, params: Params) -> Verdict:
    frame = cost_frame(trial)
    if (absent := missing(NAME, frame.frame.evidence, "arrivals")) is not None:
        return absent
    if frame.cost is None:
        return withheld(NAME, "the profile describes no sessions to queue for", "`capacity.cost.pools.sessions`")
    if not _can_throttle(frame):
        return withheld(NAME, "no dependency throttles, whatever it is sent: too much cannot be told from enough",
                        "a `quota` at a dependency")  # fmt: skip
    age, throttles = _queue_age(frame, params), _throttles(frame, params)
    place = place_of(age, throttles)
    pressure = _pressure(frame)
    found = [
        age,
        throttles,
        enough("evidence", "that asked for a session", len(_waits(frame)), params.runs, "runs", "more runs"),
        enough("evidence", "at the dependencies", throttles.finding.samples, params.arrivals, "arrivals", "more runs"),
        enough("evidence", "that asked while others ran", pressure, params.waited, "runs",
               "runs that begin together, more than may run at once"),
        noted("placed", f"{place} the corridor"),
    ]  # fmt: skip
    waited_ms, share = (age.finding.measured or 0.0), (throttles.finding.measured or 0.0)
    passed = (
        f"In the corridor: runs waited {waited_ms:,.0f} ms for a session (95th percentile; at most "
        f"{params.queue_age / 1e6:,.0f}), and the dependencies throttled {share:.1%} of what arrived."
    )
    return verdict(NAME, found, passed)


def _can_throttle(frame: CostFrame) -> bool:
    """Whether some dependency says when it is too much for it."""
    capacity = frame.frame.profile.capacity
    told = capacity is not None and any(one.quota is not None for one in capacity.dependencies.values())
    return told or _share(frame) > 0


def place_of(age: Rule, throttles: Rule) -> str:
    low, high = age.finding.word is Word.FAIL, throttles.finding.word is Word.FAIL
    return BESIDE if low and high else BELOW if low else ABOVE if high else IN


def _waits(frame: CostFrame) -> list[tuple[int, str]]:
    """(how long it waited for a session [ns], call); one that was turned away for its age waited, too."""
    return [
        (r.answered_ns - r.due_ns, r.call)
        for r in frame.requests
        if r.run is not None or r.outcome == EXPIRED or (r.outcome in REFUSED and r.reason == SESSIONS)
    ]


def _queue_age(frame: CostFrame, params: Params) -> Rule:
    waits = sorted(_waits(frame), reverse=True)
    p95_ms = float(np.quantile([wait for wait, _ in waits], 0.95)) / 1e6 if waits else 0.0
    sentence = (
        f"below the corridor, too little admitted: runs waited {p95_ms:,.0f} ms for a session (95th percentile; at "
        f"most {params.queue_age / 1e6:,.0f}) while the dependencies throttled {_share(frame):.1%}"
    )
    names = [call for _, call in waits]
    return at_most("queue", "age", p95_ms, params.queue_age / 1e6, "ms", len(waits), sentence, names)


def _arrived(frame: CostFrame) -> list[Row]:
    return list(capacity_frames.work(frame.frame))


def _share(frame: CostFrame) -> float:
    rows = _arrived(frame)
    return sum(int(row.get("status", 0)) == THROTTLED_STATUS for row in rows) / len(rows) if rows else 0.0


def _throttles(frame: CostFrame, params: Params) -> Rule:
    rows, share = _arrived(frame), _share(frame)
    turned_away = [capacity_frames.id_of(row) for row in rows if int(row.get("status", 0)) == THROTTLED_STATUS]
    sentence = (
        f"above the corridor, too much admitted: the dependencies throttled {share:.1%} of {len(rows)} calls "
        f"(at most {params.throttles:.0%})"
    )
    return at_most("dependencies", "throttled", share, params.throttles, "share", len(rows), sentence, turned_away)


def _pressure(frame: CostFrame) -> int:
    """Runs that asked while another one was open: without them there was nothing to hold back."""
    spans = [(r.due_ns, r.closed_ns or r.last_ns) for r in frame.requests]
    return sum(any(begin <= due < end for begin, end in spans[:place]) for place, (due, _) in enumerate(spans))


CHECKS[NAME] = Check(
    NAME,
    "neither too little admitted (work grows old in the queue) nor too much (the dependencies throttle)",
    "runs that wait for a session, and dependencies that throttle what is too much for them",
    Params,
    judge,
)
