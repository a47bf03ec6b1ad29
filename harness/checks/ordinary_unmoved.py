"""fairness.ordinary_unmoved: while one tenant runs away, nothing changes for the ordinary ones.

For each ordinary tenant, and for all of them pooled, burst against calm: served share down, refusals up, mean wait up,
each by less than its margin. "Did not move" is a claim with a margin (one-sided non-inferiority; getting better is no
harm), not the absence of a significant difference:

    PASS          the upper end of the change's interval is under the margin
    FAIL          its lower end is over the margin
    INCONCLUSIVE  the interval holds the margin: says how many calls would tell

The interval is the hull of Newcombe's (which has a width without a loss) and a block bootstrap's (which sees that
losses come in clusters). PASS needs every quantity of every judged tenant, FAIL needs one; so PASS is wrong at most
one time in twenty for any true change of a margin or more. A tenant with too few calls to pass without a single loss is
listed as not judged, unless what it lost is enough to fail. A calm that is itself overloaded, by what it lost or by how
long it waited, passes nobody.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from pydantic import Field

from harness.checks.context import NS_PER_MS, bundled, profile_of, service_time
from harness.checks.ordinary_evidence import TOLD_SHARE, Evidence, gather
from harness.checks.ordinary_words import BEYOND_UP, NAME, REFUSALS_UP, SERVED_DOWN, WAIT_UP, not_judged, verdict_of
from harness.checks.registry import CHECKS, Check
from harness.checks.verdict import Finding, Verdict, Word
from harness.ledger.reader import Trial
from harness.measure.blocks import change_of_means, series
from harness.measure.intervals import Interval, factor_to_decide, lossless_needs, newcombe, z_of
from harness.profile.base import DurationNs, Part
from harness.profile.model import Profile, Window

FEWEST_CALLS, PLAIN = 10, 0.999
"""From how many calls in either window, and at which confidence, a tenant fails that is too small to pass."""

Points = Annotated[float, Field(gt=0, lt=100)]


class Params(Part):
    """served_down_pp, refusals_up_pp: margins in percentage points. wait_up: margin of the mean wait; left out, half
    of the mean service time. least_calls: fewer in either window, and a tenant fails only by losses (from 10 calls on).
    calm_served: a tenant served less than this share in calm was overloaded before the burst; so was one that waited
    there for longer than calm_wait, in margins of the wait. warm_up: of calm, left out; at most a tenth.
    """

    served_down_pp: Points = 1.0
    refusals_up_pp: Points = 1.0
    wait_up: DurationNs | None = None
    confidence: Annotated[float, Field(ge=0.8, le=0.999)] = 0.95
    least_calls: Annotated[int, Field(ge=10, strict=True)] = 50
    calm_served: Annotated[float, Field(ge=0, le=1)] = 0.95
    calm_wait: Annotated[float, Field(gt=0)] = 10.0
    warm_up: DurationNs = 1_000_000_000


@dataclass(frozen=True, slots=True)
class _Rules:
    """Everything the judging of one subject needs. wait_ns: margin; None: not to be had. turn_ns: what a fair turn may
    cost by itself, where a margin was not given; else 0."""

    params: Params
    calm: Window
    burst: Window
    wait_ns: float | None
    turn_ns: float
    told: bool
    seed: int


def judge(trial: Trial, params: Params) -> Verdict:
    profile = profile_of(trial)
    calm, burst = profile.phases.calm, profile.phases.burst
    if calm is None or burst is None:
        return _cannot("The trial has no phases calm and burst to compare.", "give the profile `phases: {calm, burst}`")
    if not profile.ordinary:
        return _cannot("The profile names no ordinary tenants.", "name those that must not be hurt under `ordinary:`")
    calm = _without_warm_up(calm, params.warm_up)
    found = gather(trial, profile, calm, burst)
    wait_ns, turn_ns = _wait_margin(trial, profile, params), _fair_turn(trial, profile, params, burst)
    rules = _Rules(params, calm, burst, wait_ns, turn_ns, found.told, int(trial.manifest.get("seed", 0)))
    tenants = [(evidence, _judge_tenant(evidence, rules)) for evidence in found.by_tenant(profile)]
    findings = [finding for _, rows in tenants for finding in rows]
    judged = [finding for finding in findings if not not_judged(finding)]
    if len(found.pooled.rows):
        pooled = _judge_tenant(found.pooled, rules)
        findings += pooled
        judged += [finding for finding in pooled if not not_judged(finding)]
    return verdict_of(trial, found, findings, judged)


def _cannot(sentence: str, add: str) -> Verdict:
    return Verdict(NAME, Word.INCONCLUSIVE, None, None, "", 0, sentence, add=add)


def _without_warm_up(calm: Window, warm_up_ns: int) -> Window:
    """A cold start makes calm look worse than it is, and the burst better: it is left out."""
    skipped = min(warm_up_ns, (calm.to_ns - calm.from_ns) // 10)
    return calm.model_copy(update={"from_ns": calm.from_ns + skipped})


def _wait_margin(trial: Trial, profile: Profile, params: Params) -> float | None:
    if params.wait_up is not None:
        return float(params.wait_up)
    calls = trial.calls
    calm = profile.phases.calm
    among = (calls.due_ns >= calm.from_ns) & (calls.due_ns < calm.to_ns) if calm else None
    mean = service_time(trial, profile, among).mean_ns
    return mean / 2 if mean else None


def _fair_turn(trial: Trial, profile: Profile, params: Params, burst: Window) -> float:
    """What the fairest service costs a tenant that has to wait at all, and half as much again; 0 unknown or given.

        residual of the first worker to be free + half a turn of one backlogged tenant = S / (W + 1) + S / (2 W)

    From four workers on it is within half a service time; with one or two it is not, and blames nobody.
    """
    if params.wait_up is not None or not bundled(trial) or profile.service is None:
        return 0.0
    segments = profile.service.workers.segments(profile.duration)
    workers = min(n for from_ns, to_ns, n in segments if from_ns < burst.to_ns and to_ns > burst.from_ns)
    mean_ns = service_time(trial, profile).mean_ns or 0.0
    return 1.5 * mean_ns * (1 / (workers + 1) + 1 / (2 * max(1, workers)))


def _judge_tenant(evidence: Evidence, rules: _Rules) -> list[Finding]:
    """Its findings; a single one that says why, if it has too few calls and they do not plainly fail."""
    n_calm, n_burst = int(evidence.calm.sum()), int(evidence.burst.sum())
    margin = min(rules.params.served_down_pp, rules.params.refusals_up_pp)
    least = rules.params.least_calls
    needs = max(least, lossless_needs(margin / 100, z_of(rules.params.confidence)))
    if n_calm >= least and n_burst >= needs:
        return _judge(evidence, rules)
    note = f"not judged: {n_calm} calls in calm and {n_burst} in the burst; {least} and {needs} are needed"
    failed: list[Finding] = []
    if min(n_calm, n_burst) >= FEWEST_CALLS:
        # At this confidence, not one of a hundred small tenants fails by chance.
        plain = replace(rules, params=rules.params.model_copy(update={"confidence": PLAIN}))
        found = _judge(evidence, plain) if min(n_calm, n_burst) >= least else _shares(evidence, plain)
        failed = [finding for finding in found if finding.word is Word.FAIL]
    return failed or [_skipped(evidence.subject, n_calm + n_burst, note)]


def _skipped(subject: str, samples: int, note: str) -> Finding:
    return Finding(subject, SERVED_DOWN, Word.INCONCLUSIVE, None, None, None, None, "pp", samples, note)


def _judge(evidence: Evidence, rules: _Rules) -> list[Finding]:
    findings = [*_shares(evidence, rules), _wait(evidence, rules), *_beyond(evidence, rules)]
    note = _overloaded_in_calm(evidence, rules)
    if note:
        findings = [replace(f, word=Word.INCONCLUSIVE, note=note) if f.word is Word.PASS else f for f in findings]
    return findings


def _shares(evidence: Evidence, rules: _Rules) -> list[Finding]:
    return [
        _share(evidence, evidence.lost, SERVED_DOWN, rules.params.served_down_pp, rules),
        _share(evidence, evidence.refused, REFUSALS_UP, rules.params.refusals_up_pp, rules),
    ]


def _overloaded_in_calm(evidence: Evidence, rules: _Rules) -> str:
    """Why calm is no measure for the burst; empty if it is one."""
    served = 1 - float(evidence.lost[evidence.calm].mean())
    waited = evidence.waited_ns[evidence.calm & evidence.has_wait]
    mean_ns = float(waited.mean()) if len(waited) else 0.0
    if served < rules.params.calm_served:
        found = f"only {served:.1%} served"
    elif rules.wait_ns is not None and mean_ns > rules.params.calm_wait * rules.wait_ns:
        found = f"a mean wait of {mean_ns / NS_PER_MS:.0f} ms"
    else:
        return ""
    return f"{found} in calm already: nothing that happens in the burst can be called unmoved"


def _rng(rules: _Rules, subject: str, quantity: str) -> np.random.Generator:
    return np.random.default_rng([rules.seed, zlib.crc32(f"{subject}:{quantity}".encode())])


def _word(interval: Interval, margin: float) -> Word:
    if interval.high < margin:
        return Word.PASS
    return Word.FAIL if interval.low > margin else Word.INCONCLUSIVE


def _share(
    evidence: Evidence, hit: np.typing.NDArray[np.bool_], quantity: str, margin: float, rules: _Rules
) -> Finding:
    """Change of a share of calls, in percentage points."""
    calm, burst, confidence = evidence.calm, evidence.burst, rules.params.confidence
    counts = int(hit[burst].sum()), int(burst.sum()), int(hit[calm].sum()), int(calm.sum())
    interval = newcombe(*counts, z_of(confidence)).times(100)
    note = ""
    if counts[0] or counts[2]:
        blocks = change_of_means(
            series(evidence.due_ns[burst], hit[burst], rules.burst.from_ns, rules.burst.to_ns),
            series(evidence.due_ns[calm], hit[calm], rules.calm.from_ns, rules.calm.to_ns),
            confidence,
            _rng(rules, evidence.subject, quantity),
        )
        hull = interval.hull(blocks.change.times(100))
        interval = Interval(hull.estimate, max(-100.0, hull.low), min(100.0, hull.high))
        note = f"{blocks.blocks} independent blocks of time at least"
    word = _word(interval, margin)
    if word is Word.INCONCLUSIVE:
        alone = factor_to_decide(*counts, margin / 100, z_of(confidence))
        note = _more(_worst_factor(alone, interval, margin), counts[1], counts[3])
    return _finding(evidence, quantity, word, interval, margin, "pp", note)


def _wait(evidence: Evidence, rules: _Rules) -> Finding:
    """Change of the mean wait, in milliseconds."""
    if rules.wait_ns is None:
        note = "the service time is not known, so no margin is: give `wait_up`, or have the target send Server-Timing"
        samples = int(evidence.has_wait.sum())
        return Finding(evidence.subject, WAIT_UP, Word.INCONCLUSIVE, None, None, None, None, "ms", samples, note)
    note = "" if rules.told else "latency from due: the service does not tell its queue wait"
    found = _mean_change(evidence, evidence.waited_ns, evidence.has_wait, WAIT_UP, rules, rules.wait_ns, note)
    if found.word is Word.FAIL and rules.told and not _told_nearly_all(evidence):
        note = "the service tells too few of its waits, and the others may be service time: have it tell each"
        return replace(found, word=Word.INCONCLUSIVE, note=note)
    turn_ms = rules.turn_ns / NS_PER_MS
    if found.word is Word.FAIL and found.low is not None and found.low < turn_ms:
        note = f"with so few workers a fair turn alone may cost {turn_ms:.3g} ms: give `wait_up`, or more workers"
        return replace(found, word=Word.INCONCLUSIVE, note=note)
    return found


def _told_nearly_all(evidence: Evidence) -> bool:
    served = int((evidence.served & evidence.burst).sum())
    return int((evidence.told & evidence.burst).sum()) >= TOLD_SHARE * served


def _mean_change(
    evidence: Evidence,
    value: np.typing.NDArray[np.int64],
    has: np.typing.NDArray[np.bool_],
    quantity: str,
    rules: _Rules,
    margin_ns: float,
    note: str,
) -> Finding:
    burst, calm, margin = evidence.burst & has, evidence.calm & has, margin_ns / NS_PER_MS
    if burst.sum() < rules.params.least_calls or calm.sum() < rules.params.least_calls:
        note = f"only {int(calm.sum())} calls in calm and {int(burst.sum())} in the burst have a wait to compare"
        samples = int(burst.sum() + calm.sum())
        return Finding(evidence.subject, quantity, Word.INCONCLUSIVE, None, None, None, margin, "ms", samples, note)
    blocks = change_of_means(
        series(evidence.due_ns[burst], value[burst], rules.burst.from_ns, rules.burst.to_ns),
        series(evidence.due_ns[calm], value[calm], rules.calm.from_ns, rules.calm.to_ns),
        rules.params.confidence,
        _rng(rules, evidence.subject, quantity),
    )
    interval = blocks.change.times(1 / NS_PER_MS)
    word = _word(interval, margin)
    if word is Word.INCONCLUSIVE:
        more = _more(_worst_factor(1.0, interval, margin), int(burst.sum()), int(calm.sum()))
        note = f"{note}; {more}" if note else more
    return _finding(evidence, quantity, word, interval, margin, "ms", note)


def _beyond(evidence: Evidence, rules: _Rules) -> list[Finding]:
    """The service's own word is not the last: time on the wire beyond the wait that it tells may hide a queue, or be a
    service that has slowed down for all."""
    if not rules.told or rules.wait_ns is None or not evidence.told.any():
        return []
    found = _mean_change(evidence, evidence.beyond_ns, evidence.told, BEYOND_UP, rules, rules.wait_ns, "")
    if found.word is not Word.FAIL:
        return []
    note = (
        "calls take longer than the queue wait that the service tells: it works more slowly, or has a queue that it "
        "does not see"
    )
    return [replace(found, word=Word.INCONCLUSIVE, note=note)]


def _finding(
    evidence: Evidence, quantity: str, word: Word, interval: Interval, margin: float, unit: str, note: str
) -> Finding:
    samples = int(evidence.calm.sum() + evidence.burst.sum())
    ends = interval.estimate, interval.low, interval.high
    return Finding(evidence.subject, quantity, word, *ends, margin, unit, samples, note)


def _worst_factor(alone: float | None, interval: Interval, margin: float) -> float | None:
    """How much more evidence: by Newcombe's own arithmetic, and by the width of the hull, which shrinks with a root."""
    room = margin - interval.estimate
    reach = interval.high - interval.estimate if room > 0 else interval.estimate - interval.low
    if alone is None or not room or (reach / room) ** 2 > 1000:
        return None
    return max(alone, (reach / room) ** 2 * 1.05)


def _more(factor: float | None, n_burst: int, n_calm: int) -> str:
    if factor is None:
        return "the change is as large as the margin: more calls will hardly tell; state another margin"
    k = math.ceil(factor * 10) / 10
    return (
        f"if the change stays, {math.ceil(n_burst * k)} calls in the burst and {math.ceil(n_calm * k)} in calm would "
        f"tell: scale rates and workers together by {k:g}, or lengthen calm and burst by as much"
    )


CHECKS[NAME] = Check(
    NAME,
    "the burst leaves each ordinary tenant's served share, refusals and mean wait within a margin of calm",
    "phases calm and burst, ordinary tenants, about 270 calls of each in the burst for a margin of one point",
    Params,
    judge,
)
