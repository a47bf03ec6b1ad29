"""What a policy would have done to each tenant, in numbers, beside what the log says was refused.

Delayed: it had to wait at all. Waits are of calls that were served. Agreement counts calls of the same line: refused
then and refused by the policy, only then, only by the policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.measure.quantiles import quantile
from harness.recorded.errors import RecordedError
from harness.shadow.play import ABANDONED, REFUSED, SERVED, Played, play, service_of
from harness.shadow.policies import Policy
from harness.shadow.traffic import Bools, Ints, Traffic

ALL = "all"
BINS = 120


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one tenant under one policy. wait: of served calls, None without any."""

    calls: int
    refused: int
    abandoned: int
    delayed: int
    mean_wait_ns: float | None
    p95_wait_ns: int | None

    @property
    def refused_share(self) -> float:
        return self.refused / self.calls if self.calls else 0.0


@dataclass(frozen=True, slots=True)
class Agreement:
    """Calls by who refused them: the log, the policy, both."""

    both: int
    only_log: int
    only_policy: int


@dataclass(frozen=True, slots=True)
class Tried:
    """One policy on all of the traffic. figures: in the order of the tenants. *_per_bin: calls; mean wait in ms."""

    policy: Policy
    workers: int
    figures: tuple[Figures, ...]
    total: Figures
    agreement: Agreement
    peak_waiting: int
    refused_per_bin: tuple[int, ...]
    wait_ms_per_bin: tuple[float | None, ...]


def tried(traffic: Traffic, policy: Policy, workers: int, patience_ns: int | None = None) -> Tried:
    """Plays the traffic against one policy. Raises BadInput if it cannot be built."""
    workers = workers if policy.workers is None else policy.workers
    played = played_by(traffic, policy, workers, patience_ns)
    lost = (played.outcome == REFUSED) | (played.outcome == ABANDONED)
    refused = played.outcome == REFUSED
    everyone = np.arange(len(traffic))
    by_tenant = np.argsort(traffic.tenant, kind="stable")
    edges = np.concatenate(([0], np.cumsum(traffic.counts())))
    figures = tuple(_figures(played, by_tenant[begin:end]) for begin, end in pairwise(edges))
    bins = bin_of(traffic)
    served = played.outcome == SERVED
    count = np.bincount(bins[served], minlength=BINS)
    waited = np.bincount(bins[served], weights=played.wait_ns[served].astype(np.float64), minlength=BINS)
    return Tried(
        policy, workers, figures, _figures(played, everyone),
        Agreement(*(int(mask.sum()) for mask in (refused & traffic.refused, traffic.refused & ~refused,
                                                 refused & ~traffic.refused))),
        played.peak_waiting,
        tuple(int(n) for n in np.bincount(bins[lost], minlength=BINS)),
        tuple(round(w / n / 1e6, 3) if n else None for w, n in zip(waited.tolist(), count.tolist(), strict=True)),
    )  # fmt: skip


def played_by(traffic: Traffic, policy: Policy, workers: int, patience_ns: int | None) -> Played:
    names, place = traffic.each
    return play(
        names,
        place.tolist(),
        traffic.due_ns.tolist(),
        traffic.service_ns.tolist(),
        service_of(policy.config(workers), workers),
        patience_ns,
    )


def bin_of(traffic: Traffic) -> Ints:
    """Which of BINS equal parts of the window each call is due in."""
    return np.asarray(traffic.due_ns * BINS // max(1, traffic.duration_ns))


def per_bin(traffic: Traffic, mask: Bools | None = None) -> tuple[int, ...]:
    bins = bin_of(traffic)
    counted = np.bincount(bins if mask is None else bins[mask], minlength=BINS)
    return tuple(int(n) for n in counted)


def _figures(played: Played, rows: npt.NDArray[np.intp]) -> Figures:
    outcome, wait = played.outcome[rows], played.wait_ns[rows]
    served = wait[outcome == SERVED]
    return Figures(
        len(rows),
        int((outcome == REFUSED).sum()),
        int((outcome == ABANDONED).sum()),
        int((wait > 0).sum()),
        float(served.mean()) if len(served) else None,
        quantile(served, 0.95),
    )


def tenant_places(traffic: Traffic, names: Sequence[str], option: str) -> list[int]:
    """Places of tenants that an option names. Raises RecordedError if one is not there."""
    for name in names:
        if name not in traffic.tenants:
            known = ", ".join(traffic.tenants[:5])
            raise RecordedError(option, f"no call in the window is of '{name[:80]}'", f"the busiest are {known}")
    return [traffic.tenants.index(name) for name in names]


def as_json(traffic: Traffic, found: Sequence[Tried]) -> dict[str, Any]:
    calls, refused, failed = traffic.counts(), traffic.counts(traffic.refused), traffic.counts(traffic.failed)
    return {
        "calls": len(traffic),
        "begin_ns": traffic.begin_ns,
        "duration_ns": traffic.duration_ns,
        "service_time": {
            "mean_ns": float(traffic.service_ns.mean()),
            "measured_calls": traffic.measured,
        },
        "log": {
            "calls_with_status": traffic.with_status,
            "refused": int(refused.sum()) if traffic.with_status else None,
            "tenants": [
                {"tenant": name, "identities": who, "calls": n, "refused": r, "failed": f}
                for name, who, n, r, f in zip(
                    traffic.tenants, traffic.identities, calls.tolist(), refused.tolist(), failed.tolist(), strict=True
                )
            ],
        },
        "policies": [
            {
                "policy": one.policy.text,
                "workers": one.workers,
                "peak_waiting": one.peak_waiting,
                "total": asdict(one.total),
                "against_log": asdict(one.agreement) if traffic.with_status else None,
                "tenants": [
                    {"tenant": name, **asdict(figure)}
                    for name, figure in zip(traffic.tenants, one.figures, strict=True)
                ],
            }
            for one in found
        ],
    }
