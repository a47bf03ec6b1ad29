"""Many trials of one profile that differ only in the tenants' phases: what a single trajectory cannot show.

With evenly spaced arrivals and exact service times the outcome of an overloaded trial hangs on the order of calls that
are due in the same millisecond, which is nothing that a real service would repeat. Drawing each tenant's phase
uniformly from one interval between its calls, from a seed, gives the distribution instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from harness.measure.tally import Tally
from harness.profile.model import Profile
from harness.simulate.capacity import CapacitySimulation
from harness.simulate.driver import Simulation
from harness.simulate.record import has_runs
from harness.workload.plan import RecordedSource, no_recordings

NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Figures:
    """One simulated trial in numbers. Shares leave out calls still open at the end; None without any call.

    agent_*: over the tenants that are not ordinary. worker_s: workers provided, times seconds, over the duration.
    """

    ordinary_served: float | None
    worst_ordinary: float | None
    agent_offers: int
    replans: int
    held_back: int
    open: int
    calls: int
    worker_s: float


def with_phases(profile: Profile, rng: Random) -> Profile:
    """The same profile with a phase drawn for each tenant that has a rate; with runs, another seed of all draws."""
    tenants = {}
    for name, tenant in profile.tenants.items():
        if tenant.rate is not None and tenant.rate.base > 0:
            phase = int(rng.random() * float(NS_PER_S / tenant.rate.base))
            tenant = tenant.model_copy(update={"phase": min(phase, profile.duration - 1)})  # noqa: PLW2901
        tenants[name] = tenant
    seed = {"seed": rng.getrandbits(32)} if has_runs(profile) else {}
    return profile.model_copy(update={"tenants": tenants, **seed})


def figures(profile: Profile, recorded: RecordedSource = no_recordings, defect: str | None = None) -> Figures:
    """Runs one trial in virtual time and counts."""
    tally = Tally(list(profile.tenants))
    if has_runs(profile):
        CapacitySimulation(profile, tally.add, defect=defect).run()
    else:
        Simulation(profile, tally.add, recorded=recorded, defect=defect).run()
    return figures_of(profile, tally)


def figures_of(profile: Profile, tally: Tally) -> Figures:
    """Of a trial that was counted."""
    ordinary = [row for row in tally.tenants if row.tenant in profile.ordinary]
    agents = [row for row in tally.tenants if row.tenant not in profile.ordinary]
    ended = sum(row.offered - row.open for row in ordinary)
    shares = [share for row in ordinary if (share := row.served_share) is not None]
    return Figures(
        ordinary_served=sum(row.served for row in ordinary) / ended if ended else None,
        worst_ordinary=min(shares, default=None),
        agent_offers=sum(row.offered for row in agents),
        replans=sum(row.replans for row in agents),
        held_back=sum(row.held_back for row in agents),
        open=sum(row.open for row in tally.tenants),
        calls=sum(row.due for row in tally.tenants),
        worker_s=worker_seconds(profile),
    )


def member(profile: Profile, seed: int, number: int) -> Figures:
    """Trial `number` of the ensemble: the same for the same seed, in whichever process it runs."""
    return figures(with_phases(profile, Random(f"{seed}:{number}:phases")))


def worker_seconds(profile: Profile) -> float:
    """What the capacity costs: workers times seconds over the trial."""
    if profile.service is None:
        return 0.0
    segments = profile.service.workers.segments(profile.duration)
    return sum((to_ns - from_ns) * count for from_ns, to_ns, count in segments) / NS_PER_S
