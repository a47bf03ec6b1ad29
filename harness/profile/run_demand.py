"""What the runs of a profile can ask of a service at most, in closed form. Asked by demand.py and describe.py.

One run of a group with B batches and R rounds of re-plans sends at most

    1 + B (1 + R) + 1 (+ 1 if it is cancelled) + the calls of its children                 calls

and its steps become at most so many attempts at the dependencies, whatever goes wrong,

    min(attempts of its envelope, steps + R B steps of the re-plan + retry tokens)         attempts

(children's come out of the same envelope). On the bundled stub an attempt is a request like a call. Runs that begin at
once count as if all of what they do fell into one second: a bound, not an estimate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from harness.profile.capacity import Batch, RunGroup, Step
from harness.profile.model import Profile, Tenant, Window
from harness.profile.units import NS_PER_S

DEFAULT_ATTEMPTS, DEFAULT_TOKENS = 20, 2
"""Of a run behind a capacity layer that the profile does not describe."""


@dataclass(frozen=True, slots=True)
class RunDemand:
    """Of one run, at most. steps: of its own batches and its children's, without re-plans."""

    calls: int
    steps: int
    wanted: int
    attempts: int


def of_group(profile: Profile, group: RunGroup) -> RunDemand:
    rounds = group.replans.rounds if group.replans else 0
    batches = len(group.batches)
    calls = 2 + batches * (1 + rounds) + (group.cancel_after is not None)
    calls += sum(count * (2 + len(child.batches)) for child, count, _ in group.sub_agents())
    own = _steps(group.batches)
    again = rounds * batches * (_steps([group.replans.batch]) if group.replans else 0)
    wanted = own + again + sum(count * _steps(child.batches) for child, count, _ in group.sub_agents())
    defaults = profile.capacity.envelope if profile.capacity else None
    attempts, tokens = group.envelope.attempts, group.envelope.retry_tokens
    if attempts is None:
        attempts = defaults.attempts if defaults else DEFAULT_ATTEMPTS
    if tokens is None:
        tokens = defaults.retry_tokens if defaults else DEFAULT_TOKENS
    return RunDemand(calls, wanted - again, wanted, min(attempts, wanted + tokens))


def steps_in(group: RunGroup) -> Iterator[Step]:
    """Every step that a run of the group may submit, as it is described: re-plans and sub-agents included."""
    batches = [*group.batches, *(batch for child, _, _ in group.sub_agents() for batch in child.batches)]
    if group.replans is not None:
        batches.append(group.replans.batch)
    for batch in batches:
        yield from batch.steps


def _steps(batches: list[Batch]) -> int:
    return sum(step.repeat for batch in batches for step in batch.steps)


def begun_within(profile: Profile, tenant: Tenant, window: Window | None = None) -> int:
    """Runs that begin in the window (None: in the whole trial). Exact for `even`, the expectation for `poisson`."""
    from_ns, to_ns = (window.from_ns, window.to_ns) if window else (0, profile.duration)
    return sum(begun_of(profile, tenant, group, from_ns, to_ns) for group in tenant.runs)


def begun_of(profile: Profile, tenant: Tenant, group: RunGroup, from_ns: int, to_ns: int) -> int:
    """The same of one group, in [from, to)."""
    if group.rate is None:
        return group.count if from_ns <= (group.at or 0) < min(to_ns, profile.duration) else 0
    begin, end, rate = span(profile, tenant, group)
    before, until = (rate * max(0, min(at, end) - begin) / NS_PER_S for at in (from_ns, to_ns))
    return round(until - before) if tenant.pace == "poisson" else math.ceil(until) - math.ceil(before)


def span(profile: Profile, tenant: Tenant, group: RunGroup) -> tuple[int, int, Fraction]:
    """When a group begins runs, and at which rate; those of an instant count as if spread over one second."""
    if group.rate is None:
        at = group.at or 0
        return at, at + NS_PER_S, Fraction(group.count)
    begin = max(group.from_ns or 0, tenant.phase)
    end = min(profile.duration, group.to_ns if group.to_ns is not None else profile.duration)
    return begin, max(begin, end), group.rate


def steps_of(profile: Profile, tenant: Tenant, worst: bool) -> Iterator[tuple[int, int, Fraction]]:
    """(from_ns, to_ns, per second): of runs that begin; worst: of all requests that they can lead to."""
    for group in tenant.runs:
        begin, end, rate = span(profile, tenant, group)
        if begin < end:
            demand = of_group(profile, group)
            yield begin, end, rate * (demand.calls + demand.attempts) if worst else rate


def most_calls(profile: Profile, tenant: Tenant) -> int:
    """Calls that the tenant can send in all, attempts at dependencies not counted."""
    return sum(
        begun_of(profile, tenant, group, 0, profile.duration) * of_group(profile, group).calls for group in tenant.runs
    )
