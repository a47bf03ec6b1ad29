"""trial.on_time: the generator kept its schedule, so that the target is not blamed for the harness.

INVALID if lateness (sent - due), its p99 or its mean, over the trial or in a phase, or the bundled stub's own loop lag,
or how far the clock of a worker on another machine may be off, is over a share of the service time; if more than a
share of the calls could not be sent at all; or if the stub's loop stood still for more than a share of the trial or of
a phase: tolerances do not run then (harness/ledger/stalls.py), and must not be stretched without bound. The calls of
the ordinary tenants are looked at by themselves too: among a runaway's many, theirs would not be seen, and it is they
who are judged. PASS says that it was on time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from harness.checks.context import NS_PER_MS, Mask, due_in, profile_of, service_time
from harness.checks.registry import CHECKS, Check
from harness.checks.verdict import Finding, Verdict, Word
from harness.ledger.outcomes import DROPPED
from harness.ledger.reader import Trial
from harness.ledger.stalls import stalls_of
from harness.ledger.workers import clock_errors
from harness.measure.quantiles import quantile
from harness.profile.base import DurationNs, Part
from harness.profile.model import Profile

NAME = "trial.on_time"
CLOCK_ERROR = "clock error"
CEILING = "calls kept back at the target's in-flight ceiling"
IN_FLIGHT = "in_flight_ceiling"
"""Reason of a call that a target file's `limits.max_in_flight` kept back (harness/target/rails.py)."""


class Params(Part):
    """share: of the mean service time, at which lateness makes a trial INVALID. at_most: the bound itself, for a target
    whose service time is not known. dropped: most calls that may not have been sent, as a share; those kept
    back at a target's own ceiling (limits.max_in_flight) count as well. least_calls: a part
    with fewer (a phase, or the ordinary tenants' calls of it) is not judged alone. stalled: most of the trial, or of a
    phase, in which the stub's loop may have stood still, as a share.
    """

    share: Annotated[float, Field(gt=0, le=1)] = 0.1
    at_most: DurationNs | None = None
    dropped: Annotated[float, Field(ge=0, lt=1)] = 0.001
    stalled: Annotated[float, Field(ge=0, le=1)] = 0.5
    least_calls: Annotated[int, Field(ge=1, strict=True)] = 100


def judge(trial: Trial, params: Params) -> Verdict:
    profile, trial = profile_of(trial), trial.by_attempt()
    calls = trial.calls
    sent = calls.sent_ns >= 0
    n = int(sent.sum())
    if not len(calls):
        return _verdict(Word.INCONCLUSIVE, None, n, "No call was due.", "a trial with calls")
    bound_ns = params.at_most
    if bound_ns is None:
        mean = service_time(trial, profile).mean_ns
        bound_ns = int(mean * params.share) if mean else None
    findings = [*_dropped(trial, profile, params), *_stalled(trial, profile, params)]
    if bound_ns is not None:
        findings += [*_lateness(trial, profile, params, bound_ns), *_loop_lag(trial, bound_ns)]
        findings += [
            _finding(f"worker {one.worker}", CLOCK_ERROR, one.error_ns, bound_ns, one.calls)
            for one in clock_errors(trial)
        ]
    broken = [finding for finding in findings if finding.word is Word.INVALID]
    if broken:
        told = "; ".join(map(_show, broken))
        sentence = f"The harness was late: {told}."
        remedy = "an idle machine, a slower trial (a larger --time-scale), or less load"
        if all(finding.quantity == CLOCK_ERROR for finding in broken):
            sentence = f"The workers' clocks are not known well enough: {told}."
            remedy = "workers nearer to their master, or on its machine (docs/distributed.md)"
        elif all(finding.quantity == CEILING for finding in broken):
            sentence = f"The target's ceiling kept calls back, so it was not sent what the profile says: {told}."
            remedy = "a higher limits.max_in_flight in the target file, if its owner allows it; or lower rates, or a "
            remedy += "shorter patience: calls in flight are rate times the time that a call takes"
        return _verdict(Word.INVALID, broken[0], n, sentence, remedy, findings)
    if bound_ns is None:
        late = quantile(calls.sent_ns[sent] - calls.start_ns[sent], 0.99)
        measured = f"; p99 lateness was {(late or 0) / NS_PER_MS:.1f} ms" if n else ""
        sentence = f"No bound for lateness: the service time is not known{measured}."
        return _verdict(
            Word.INCONCLUSIVE,
            None,
            n,
            sentence,
            "give `at_most`, or `service_time` in the target file, or have the target send Server-Timing",
        )
    if not n:
        return _verdict(Word.INCONCLUSIVE, None, n, "No call was sent.", "a trial that sends calls", findings)
    deciding = max((f for f in findings if f.unit == "ms"), key=lambda finding: finding.measured or 0.0)
    return _verdict(Word.PASS, deciding, n, f"The harness kept its schedule: {_show(deciding)}.", "", findings)


def _parts(trial: Trial, profile: Profile) -> Iterator[tuple[str, Mask]]:
    """The trial, its phases, and what the ordinary tenants wanted in each of these."""
    everything = np.ones(len(trial.calls), dtype=np.bool_)
    parts = [("trial", everything), *((name, due_in(trial, window)) for name, window in profile.phases.items())]
    yield from parts
    ordinary = np.isin([*trial.tenants], profile.ordinary)[trial.calls.tenant]
    if not ordinary.all():
        yield from ((f"{name}, ordinary tenants", mask & ordinary) for name, mask in parts)


def _dropped(trial: Trial, profile: Profile, params: Params) -> Iterator[Finding]:
    calls = trial.calls
    dropped = calls.is_outcome(DROPPED)
    ceiling = dropped & calls.reason.equals(IN_FLIGHT)
    kinds = [("calls not sent", dropped & ~ceiling)] + ([(CEILING, ceiling)] if ceiling.any() else [])
    for subject, mask in _parts(trial, profile):
        n = int(mask.sum())
        if n < params.least_calls and subject != "trial":
            continue
        for quantity, kind in kinds:
            share = int((kind & mask).sum()) / n
            word = Word.INVALID if share > params.dropped else Word.PASS
            yield Finding(subject, quantity, word, share * 100, None, None, params.dropped * 100, "%", n)


def _lateness(trial: Trial, profile: Profile, params: Params, bound_ns: int) -> Iterator[Finding]:
    calls = trial.calls
    sent = calls.sent_ns >= 0
    late = np.abs(calls.sent_ns - calls.start_ns)  # too early is off the schedule too
    for subject, mask in _parts(trial, profile):
        chosen = late[mask & sent]
        p99 = quantile(chosen, 0.99)
        if p99 is None or (len(chosen) < params.least_calls and subject != "trial"):
            continue
        yield _finding(subject, "p99 lateness", p99, bound_ns, len(chosen))
        if p99 <= bound_ns < (mean := int(chosen.mean())):
            yield _finding(subject, "mean lateness", mean, bound_ns, len(chosen))


def _loop_lag(trial: Trial, bound_ns: int) -> Iterator[Finding]:
    lag: dict[str, Any] | None = (trial.manifest.get("ended") or {}).get("stub_loop_lag")
    if lag and isinstance(lag.get("p99_ns"), int):
        yield _finding("stub", "p99 loop lag", lag["p99_ns"], bound_ns, int(lag.get("samples", 0)))


def _stalled(trial: Trial, profile: Profile, params: Params) -> Iterator[Finding]:
    """Of the time until the last answer, and of each phase."""
    stalls = stalls_of(trial)
    if not len(stalls.from_ns):
        return
    ended_ns = int(trial.calls.done_ns.max())
    windows = [(f"stub, {name}", window.from_ns, window.to_ns) for name, window in profile.phases.items()]
    for subject, from_ns, to_ns in (("stub", 0, ended_ns), *windows):
        if to_ns > from_ns:
            share = stalls.stalled_ns(from_ns, to_ns) / (to_ns - from_ns)
            word = Word.INVALID if share > params.stalled else Word.PASS
            yield Finding(subject, "time stalled", word, share * 100, None, None, params.stalled * 100, "%", 1)


def _finding(subject: str, quantity: str, value_ns: int, bound_ns: int, samples: int) -> Finding:
    word = Word.INVALID if value_ns > bound_ns else Word.PASS
    return Finding(subject, quantity, word, value_ns / NS_PER_MS, None, None, bound_ns / NS_PER_MS, "ms", samples)


def _show(finding: Finding) -> str:
    return f"{finding.quantity} ({finding.subject}) {finding.measured:.3g} {finding.unit}, at most {finding.bound:.3g}"


def _verdict(
    word: Word, deciding: Finding | None, samples: int, sentence: str, add: str, findings: list[Finding] | None = None
) -> Verdict:
    measured, bound, unit = (deciding.measured, deciding.bound, deciding.unit) if deciding else (None, None, "ms")
    return Verdict(NAME, word, measured, bound, unit, samples, sentence, add=add, findings=tuple(findings or ()))


CHECKS[NAME] = Check(
    NAME,
    "calls were sent when they were due, and the bundled stub kept up",
    "a known service time, or a bound given as `at_most`",
    Params,
    judge,
)
