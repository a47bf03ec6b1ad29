"""What `fairness.ordinary_unmoved` looks at: the ordinary tenants' original calls of calm and burst, cut by tenant.

A call belongs to the window in which it was due. Its own re-plans are left out (they follow from a failure that has
already been counted), and so is what its tenant's own budget held back. How long a call waited:

    queue wait          as the service told it, where it told it for nearly every served call. The few others may be
                        those that waited: of them, all of the latency counts in the burst, and none of it in calm;
    latency from due    otherwise, done - due: it holds the service time too, so that a slower service counts as harm.

An abandoned call counts as having waited its whole patience, or longer if it did. A refused call did not wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.checks.context import Mask, asked_of_service, bundled, due_in
from harness.ledger.outcomes import ABANDONED, REFUSED, SERVED
from harness.ledger.reader import Ints, Trial
from harness.profile.model import Profile, Window

POOLED = "all ordinary tenants"
TOLD_SHARE = 0.99
"""Least share of served calls with a told queue wait for it to be judged: below, the told ones may be a biased part."""


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """One subject: a tenant, or all of them. rows: places in the ledger's columns; the rest is aligned with it.

    waited_ns: 0 where `has_wait` is False. told: served, and the service told how long it had waited. beyond_ns: done -
    sent less that wait, and less the service time where the profile alone decides that; 0 where untold.
    """

    subject: str
    rows: Ints
    due_ns: Ints
    calm: Mask
    burst: Mask
    lost: Mask
    refused: Mask
    waited_ns: Ints
    has_wait: Mask
    beyond_ns: Ints
    served: Mask
    told: Mask

    def take(self, subject: str, places: npt.NDArray[np.intp]) -> Evidence:
        """The part of it that is one tenant's."""
        return Evidence(
            subject,
            self.rows[places],
            self.due_ns[places],
            self.calm[places],
            self.burst[places],
            self.lost[places],
            self.refused[places],
            self.waited_ns[places],
            self.has_wait[places],
            self.beyond_ns[places],
            self.served[places],
            self.told[places],
        )


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """pooled: all ordinary calls of both windows. told: whether `waited_ns` is queue wait (else latency from due)."""

    pooled: Evidence
    tenant: Ints
    told: bool

    def by_tenant(self, profile: Profile) -> Iterator[Evidence]:
        """One Evidence for each ordinary tenant, in the order of the profile; empty ones too."""
        order = np.argsort(self.tenant, kind="stable")
        ordered = self.tenant[order]
        index = {name: place for place, name in enumerate(profile.tenants)}
        for name in profile.ordinary:
            low, high = np.searchsorted(ordered, [index[name], index[name] + 1])
            yield self.pooled.take(name, order[low:high])


def gather(trial: Trial, profile: Profile, calm: Window, burst: Window) -> Gathered:
    calls = trial.calls
    index = {name: place for place, name in enumerate(profile.tenants)}
    ordinary = np.isin(calls.tenant, [index[name] for name in profile.ordinary])
    in_calm, in_burst = due_in(trial, calm), due_in(trial, burst)
    rows = np.flatnonzero(asked_of_service(trial) & ordinary & (in_calm | in_burst)).astype(np.int64)
    served = calls.is_outcome(SERVED)[rows]
    wait = calls.queue_wait_ns[rows]
    told = bool(served.any()) and float((wait[served] >= 0).mean()) >= TOLD_SHARE
    waited, has_wait = waits_of(trial, profile, rows, in_calm[rows], told)
    has_told = served & (wait >= 0)
    own = np.maximum(calls.service_ns[rows], 0) if _service_time_is_given(trial, profile) else 0
    beyond = np.where(has_told, calls.done_ns[rows] - calls.sent_ns[rows] - wait - own, 0)
    pooled = Evidence(
        POOLED,
        rows,
        calls.due_ns[rows],
        in_calm[rows],
        in_burst[rows],
        ~served,
        calls.is_outcome(*REFUSED)[rows],
        waited,
        has_wait,
        beyond,
        served,
        has_told,
    )
    return Gathered(pooled, calls.tenant[rows], told)


def _service_time_is_given(trial: Trial, profile: Profile) -> bool:
    """By the profile, call by call: dear calls in the burst are its own doing, and no harm that the burst did."""
    return bundled(trial) and profile.service is not None and not profile.service.service_time.load_slope


def waits_of(trial: Trial, profile: Profile, rows: Ints, in_calm: Mask, told: bool) -> tuple[Ints, Mask]:
    """(how long each of these rows waited, whether it did), by the rules above. told: by its queue wait."""
    calls = trial.calls
    served, abandoned = calls.is_outcome(SERVED)[rows], calls.is_outcome(ABANDONED)[rows]
    latency, wait = calls.done_ns[rows] - calls.due_ns[rows], calls.queue_wait_ns[rows]
    patience = np.array([profile.patience_of(name) or 0 for name in profile.tenants], dtype=np.int64)
    at_least = np.maximum(patience[calls.tenant[rows]], np.where(patience[calls.tenant[rows]] > 0, wait, latency))
    if told:
        waited = np.where(served & (wait < 0) & ~in_calm, latency, np.maximum(wait, 0))
        return np.where(abandoned, at_least, waited), np.asarray(abandoned | served | (wait >= 0))
    has = served | abandoned
    return np.where(abandoned, np.maximum(at_least, latency), np.where(has, latency, 0)), np.asarray(has)
