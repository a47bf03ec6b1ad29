"""What callers of a capacity layer saw: the batches that they submitted, how long each took, and what they were told.

A batch is one call of its caller: its latency is done - due, on the caller's own clock, whatever the layer says; less
what the harness's own processes stood still in between (harness/ledger/stalls.py).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable

import numpy as np

from harness.checks.capacity_frames import SUBMIT, Frame, Run
from harness.checks.context import NS_PER_MS
from harness.checks.rules import Rule, enough, unmoved
from harness.ledger.evidence import Row
from harness.ledger.outcomes import COALESCED, REFUSED, SERVED
from harness.ledger.stalls import stalls_on_the_way
from harness.measure.intervals import lossless_needs, z_of
from harness.measure.unmoved import Sample, mean_up, sample, share_up
from harness.profile.model import Window

ALL_SERVED = (SERVED, COALESCED)


def submits(frame: Frame, wanted: Callable[[Run], bool]) -> list[Row]:
    """Batches submitted by these runs, in order of due."""
    rows = [row for run in frame.runs.values() if wanted(run) for row in run.calls if row.get("action") == SUBMIT]
    return sorted(rows, key=lambda row: int(row["due_ns"]))


def latency_of(frame: Frame) -> Callable[[Row], int]:
    """done - due [ns], without the time in which the harness's own processes stood still."""
    between = stalls_on_the_way(frame.trial).between
    return lambda row: between(int(row["due_ns"]), int(row["done_ns"]))


def is_refused(row: Row) -> int:
    return int(row.get("outcome") in REFUSED)


def is_lost(row: Row) -> int:
    return int(row.get("outcome") not in ALL_SERVED)


def column(rows: Iterable[Row], window: Window, value: Callable[[Row], int]) -> Sample:
    """A value of each call due in the window."""
    mine = [row for row in rows if window.from_ns <= int(row["due_ns"]) < window.to_ns]
    at = np.array([int(row["due_ns"]) for row in mine], dtype=np.int64)
    return sample(at, np.array([value(row) for row in mine], dtype=np.int64), window.from_ns, window.to_ns)


def rng_of(frame: Frame, what: str) -> np.random.Generator:
    """Seeded by the trial and by what it is for, so that no rule's draws depend on another's."""
    return np.random.default_rng([int(frame.trial.manifest.get("seed", 0)), zlib.crc32(what.encode())])


def stays(
    frame: Frame, subject: str, rows: list[Row], calm: Window, after: Window, confidence: float,
    lost_pp: float, refused_pp: float, latency_up_ns: float | None, when: str = "",
) -> list[Rule]:  # fmt: skip
    """One subject's calls of `after` against calm: served share, refusals and mean latency, each within its margin.

    when: of the other window, in the quantity's name. Too few calls to see a loss of the margin: INCONCLUSIVE. Without
    a margin of the latency, that is not judged.
    """
    needs = max(50, lossless_needs(min(lost_pp, refused_pp) / 100, z_of(confidence)))
    add = "more calls of it in calm and in the burst: a higher rate"
    have = [len(column(rows, window, is_lost)) for window in (calm, after)]
    rules = [
        enough(subject, f"calls in calm{when}", have[0], 50, "calls", add),
        enough(subject, f"calls in the burst{when}", have[1], needs, "calls", add),
    ]
    if min(have) == 0:
        return rules
    ids = {
        value: [str(row["call"]) for row in rows if value(row) and _due_in(row, after)]
        for value in (is_lost, is_refused)
    }
    for quantity, value, margin in (("served share down", is_lost, lost_pp), ("refusals up", is_refused, refused_pp)):
        pair = column(rows, after, value), column(rows, calm, value)
        change = share_up(*pair, confidence, rng_of(frame, f"{subject}{quantity}{when}")).times(100)
        rules.append(unmoved(subject, quantity + when, change, margin, "points", sum(have), ids[value]))
    served = [row for row in rows if row.get("outcome") in ALL_SERVED]
    latency_ns = latency_of(frame)
    later, before = column(served, after, latency_ns), column(served, calm, latency_ns)
    if latency_up_ns is not None and min(len(later), len(before)):
        change = mean_up(later, before, confidence, rng_of(frame, f"{subject}latency{when}")).times(1 / NS_PER_MS)
        slowest = sorted((row for row in served if _due_in(row, after)), key=lambda row: -latency_ns(row))
        named = [str(row["call"]) for row in slowest]
        rules.append(
            unmoved(subject, f"mean latency up{when}", change, latency_up_ns / NS_PER_MS, "ms", sum(have), named)
        )
    return rules


def _due_in(row: Row, window: Window) -> bool:
    return window.from_ns <= int(row["due_ns"]) < window.to_ns
