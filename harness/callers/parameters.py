"""The bounds that callers are held to: one model, so that every check counts calls in the same way.

Defaults come from the SRE book's chapter on overload (at most three attempts a request, retries at most 10 % of
requests) and from what providers ask of their clients. Each can be set: `overload judge DIR --set attempts=5`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from harness.profile.base import DurationNs, Part
from harness.profile.units import NS_PER_S

_MS = 1_000_000
Least = Annotated[int, Field(ge=1, le=1_000_000)]
Factor = Annotated[float, Field(ge=0, le=1_000_000)]


class Params(Part):
    """within: longest pause between two attempts of one call where no header joins them. attempts: most of a call.
    amplification: attempts over logical calls. early: how much before the stated instant (timers). hot: a delay
    below it is no backoff. spread: of the delays, from the 10th to the 90th percentile, over their median: below
    it is none, from spread_sure on it is some. retry_share:
    retries over calls, with retry_free of them for nothing. replan_share: calls that follow a failure, within
    replan_within; rounds: how deep, where it is told.
    storm: peak of arrivals in one `storm_window` over the peak before the outage. least_*: the evidence that is needed.
    """

    within: DurationNs = 60 * NS_PER_S
    attempts: Least = 3
    amplification: Factor = 3.0
    early: DurationNs = 5 * _MS
    hot: DurationNs = 50 * _MS
    spread: Factor = 0.05
    spread_sure: Factor = 0.1
    retry_share: Factor = 0.1
    retry_free: Least = 3
    replan_share: Factor = 0.5
    replan_within: DurationNs = 5 * NS_PER_S
    rounds: Least = 3
    storm: Factor = 2.0
    storm_window: DurationNs = NS_PER_S // 2
    least_delays: Least = 10
    least_calls: Least = 50
    least_replans: Least = 10
    least_calm: Least = 20
