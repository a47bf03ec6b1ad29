"""What every check asks of a trial first: its profile at the trial's own scale, its windows, its original calls.

The manifest holds the profile as it was written; everything measured is at the trial's time scale, so the profile is
scaled before anything is compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.ledger.outcomes import HELD_BACK, SERVED
from harness.ledger.reader import Trial
from harness.profile.model import Profile, Window
from harness.profile.scale import scaled

Mask = npt.NDArray[np.bool_]
NS_PER_MS = 1_000_000
MOST_WITNESSES = 20


def profile_of(trial: Trial) -> Profile:
    """The profile as the trial ran it: validated, durations shrunk and rates raised by the time scale."""
    profile = Profile.model_validate(trial.manifest["profile"])
    return scaled(profile, time_scale(trial))


def time_scale(trial: Trial) -> float:
    return float(trial.manifest.get("time_scale", 1.0))


def bundled(trial: Trial) -> bool:
    """Whether the profile's `service` and `capacity` are what ran; a target of its own ignores them."""
    return (trial.manifest.get("target") or {}).get("kind") not in ("url", "file")


def due_in(trial: Trial, window: Window) -> Mask:
    """Calls due in [from, to)."""
    due = trial.calls.due_ns
    return np.asarray((due >= window.from_ns) & (due < window.to_ns))


def asked_of_service(trial: Trial) -> Mask:
    """Original calls that the tenant wanted of the service. Its own budget holding one back is not the service's
    doing; one that the generator dropped counts as not served."""
    calls = trial.calls
    return np.asarray((calls.round == 0) & ~calls.is_outcome(HELD_BACK))


@dataclass(frozen=True, slots=True)
class ServiceTimeNs:
    """mean_ns: None where it cannot be known. source: how it is known, or what to add."""

    mean_ns: float | None
    source: str


def service_time(trial: Trial, profile: Profile, among: Mask | None = None) -> ServiceTimeNs:
    """Mean service time: the profile's where the profile is what ran (of a capacity layer: the mean over its
    dependencies), else as the service told it (Server-Timing).

    A target of its own ignores the profile's `service`, so it says nothing about that target: what its target file
    gives as `service_time` counts. What such a target tells of itself is believed as far as the caller's clock bears it
    out: no call was worked on for longer than it took. A few calls that tell it do not speak for the others.
    """
    given = (trial.manifest.get("target") or {}).get("service_time_ns")
    if isinstance(given, int) and given > 0:
        return ServiceTimeNs(float(given), "target file")
    if bundled(trial) and profile.service is not None and profile.service.service_time.mean:
        return ServiceTimeNs(float(profile.service.service_time.mean), "profile")
    if bundled(trial) and profile.capacity is not None:
        times = [dependency.service_time for dependency in profile.capacity.dependencies.values()]
        return ServiceTimeNs(sum(times) / len(times), "profile")
    calls = trial.calls
    served = calls.is_outcome(SERVED)
    if among is not None:
        served &= among
    told = served & (calls.service_ns >= 0)
    if 2 * told.sum() > served.sum():
        took = np.where(calls.sent_ns >= 0, calls.done_ns - calls.sent_ns, 0)
        return ServiceTimeNs(float(np.minimum(calls.service_ns, took)[told].mean()), "Server-Timing")
    return ServiceTimeNs(None, "neither the profile nor Server-Timing tells it")


def witnesses(trial: Trial, mask: Mask, most: int = MOST_WITNESSES) -> tuple[str, ...]:
    """Ids of the first calls of the mask, in order of due."""
    places = np.flatnonzero(mask)
    order = np.argsort(trial.calls.due_ns[places], kind="stable")[:most]
    return tuple(trial.calls.id(int(places[i])) for i in order)
