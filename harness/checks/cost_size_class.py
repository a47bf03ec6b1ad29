"""cost.size_class: a chat turn does not wait behind deep research.

    apart     while large runs queue for a session, small ones wait a small part of what those wait
    let in    and none of them is refused for want of a session
    both      the large ones are served, too: keeping small runs apart is not keeping large ones out
    no more   than the sessions that there are

Judged by what the callers saw: how long it took to open a run, and how it ended. Sizes are those of the profile, and
time in which the harness's own processes stood still does not count. It must never judge by absolute times: how long
large runs wait is the measure.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from harness.checks.cost_rows import REFUSED, SESSIONS, CostFrame, Request, cost_frame, stood_still
from harness.checks.registry import CHECKS, Check
from harness.checks.rules import Rule, at_least, at_most, enough, verdict, withheld
from harness.checks.verdict import Verdict
from harness.ledger.outcomes import EXPIRED
from harness.ledger.reader import Trial
from harness.ledger.stalls import stalls_on_the_way
from harness.measure.occupancy import levels
from harness.profile.base import Count, Part

NAME = "cost.size_class"
SHORT, BATCH = "short", "batch"
Share = Annotated[float, Field(ge=0, le=1)]


class Params(Part):
    """wait: the wait of short runs (their 95th percentile) as a share of the median wait of those batch runs that
    waited. refused: share of short runs that may be refused a session. began: share of all runs that get a session
    which batch runs must have at least. short, waited: runs of each kind that there must be."""

    wait: Share = 0.25
    refused: Share = 0.01
    began: Share = 0.05
    short: Count = 30
    waited: Count = 15


def judge(trial: Trial, params: Params) -> Verdict:
    frame = cost_frame(trial)
    if frame.cost is None or frame.cost.pools.sessions is None:
        return withheld(NAME, "the profile describes no sessions", "`capacity.cost.pools.sessions`, and `queues`")
    window = frame.frame.profile.phases.burst
    inside = [r for r in frame.requests if window is None or window.from_ns <= r.due_ns < window.to_ns]
    small = [r for r in inside if _size(frame, r) == SHORT]
    large = [r for r in inside if _size(frame, r) == BATCH]
    waited = [r for r in large if (r.run is not None or r.outcome == EXPIRED) and _wait_ns(frame, r) > 0]
    typical_ns = float(np.median([_wait_ns(frame, r) for r in waited])) if waited else 0.0
    found = [
        _apart(frame, small, typical_ns, params),
        _let_in(frame, small if waited else [], params),
        _both(small, large, bool(waited), params),
        _no_more(frame),
        enough("evidence", "that began while large ones queued", len(small), params.short, "short runs", "chat turns"),
        enough("evidence", "that waited for a session", len(waited), params.waited, "batch runs",
               "deep research that asks for more sessions than it may have"),
    ]  # fmt: skip
    passed = (
        f"{len(small)} short runs did not wait while {len(waited)} large ones waited {typical_ns / 1e6:,.0f} ms each."
    )
    return verdict(NAME, found, passed)


def _size(frame: CostFrame, request: Request) -> str:
    """Empty where the class is not known."""
    request_class = request.request_class
    return frame.cost.queue_of(request_class) if frame.cost is not None and request_class is not None else ""


def _wait_ns(frame: CostFrame, request: Request) -> int:
    """Without the time in which the harness's own processes stood still."""
    return stalls_on_the_way(frame.frame.trial).between(request.due_ns, request.answered_ns)


def _apart(frame: CostFrame, small: list[Request], typical_ns: float, params: Params) -> Rule:
    waits = [_wait_ns(frame, r) for r in small]
    p95_ns = float(np.quantile(waits, 0.95)) if waits else 0.0
    share = p95_ns / typical_ns if typical_ns else 0.0
    sentence = (
        f"short runs waited {p95_ns / 1e6:,.0f} ms (95th percentile) while large ones waited {typical_ns / 1e6:,.0f} ms"
    )
    longest = [r.call for r in sorted(small, key=lambda r: _wait_ns(frame, r), reverse=True)]
    samples = len(small) if typical_ns else 0
    return at_most("short runs", "wait", share, params.wait, "of that of batch runs", samples, sentence, longest)


def _let_in(frame: CostFrame, small: list[Request], params: Params) -> Rule:
    small = [r for r in small if r.outcome != EXPIRED or not stood_still(frame, r.due_ns, r.answered_ns)]
    turned_away = [r.call for r in small if (r.outcome in REFUSED and r.reason == SESSIONS) or r.outcome == EXPIRED]
    share = len(turned_away) / len(small) if small else 0.0
    sentence = f"{len(turned_away)} of {len(small)} short runs got no session"
    return at_most("short runs", "without a session", share, params.refused, "share", len(small), sentence, turned_away)


def _both(small: list[Request], large: list[Request], queued: bool, params: Params) -> Rule:
    began = [sum(r.run is not None for r in runs) for runs in (small, large)]
    share = began[1] / sum(began) if sum(began) else 0.0
    samples = len(large) if queued and began[0] else 0
    sentence = f"{began[1]} of {len(large)} batch runs got a session while {began[0]} short ones did"
    return at_least("batch runs", "sessions", share, params.began, "share of runs that began", samples, sentence)


def _no_more(frame: CostFrame) -> Rule:
    """Sessions as their callers held them: from the answer that opened a run to the request that closed it. When
    that was answered tells nothing: on a busy machine the answer is read when others have begun already."""
    cost = frame.cost
    limit = cost.pools.sessions if cost is not None and cost.pools.sessions is not None else 0
    spans = [(r.answered_ns, min(r.closed_ns - _ANSWER_NS, r.closing_ns if r.closing_ns is not None else r.closed_ns))
             for r in frame.requests if r.run is not None and r.closed_ns is not None]  # fmt: skip
    begins = np.array([begin for begin, _ in spans], dtype=np.int64)
    ends = np.array([max(begin, end) for begin, end in spans], dtype=np.int64)
    most = levels(begins, ends).peak().most
    sentence = f"{most} runs held a session at once where there are {limit}"
    return at_most("sessions", "held at once", most, limit, "sessions", len(spans), sentence)


_ANSWER_NS = 20_000_000
"""A session is free a moment before the caller has read so."""

CHECKS[NAME] = Check(
    NAME,
    "a chat turn does not wait behind deep research",
    "short runs that begin while batch runs queue for a session",
    Params,
    judge,
)
