"""What the shared service of the stub is made of, as frozen values that travel as JSON.

All times in integer nanoseconds. The harness makes these from a profile; `python -m stub_service --config FILE` reads
them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ServiceTimeConfig:
    """fixed: mean_ns. lognormal: mean_ns and sigma. recorded_cost: base_ns + per_unit_ns * cost, at most cap_ns (0: no
    cap). load_slope s multiplies by 1 + s * running / workers."""

    distribution: str = "fixed"
    mean_ns: int = 0
    sigma: float = 0.0
    base_ns: int = 0
    per_unit_ns: int = 0
    cap_ns: int = 0
    load_slope: float = 0.0


@dataclass(frozen=True, slots=True)
class AdmissionConfig:
    """policy: shared_fifo (queue), tenant_cap (queue, cap), fair_queues (queue_per_tenant, weights: (tenant, calls a
    turn), 1 for others), shuffle_sharded (queues, hand, queue of each, salt of the hash)."""

    policy: str
    queue: int = 0
    queue_per_tenant: int = 0
    cap: int = 0
    weights: tuple[tuple[str, int], ...] = ()
    queues: int = 0
    hand: int = 0
    salt: int = 0


@dataclass(frozen=True, slots=True)
class SharedServiceConfig:
    """workers: ((from_ns, count), ...), first from 0, in order: how many there are from each instant on. shadow: a
    policy that decides nothing; what it would have decided is recorded."""

    workers: tuple[tuple[int, int], ...]
    service_time: ServiceTimeConfig
    admission: AdmissionConfig
    seed: int = 1
    shadow: AdmissionConfig | None = None


def to_json(config: SharedServiceConfig) -> dict[str, Any]:
    return asdict(config)


def from_json(document: dict[str, Any]) -> SharedServiceConfig:
    """The inverse of `to_json`. Raises KeyError, TypeError or ValueError on anything else."""
    return SharedServiceConfig(
        workers=tuple((int(at), int(count)) for at, count in document["workers"]),
        service_time=ServiceTimeConfig(**document["service_time"]),
        admission=_admission(document["admission"]),
        seed=int(document["seed"]),
        shadow=_admission(document["shadow"]) if document.get("shadow") is not None else None,
    )


def _admission(document: dict[str, Any]) -> AdmissionConfig:
    weights = tuple((str(tenant), int(weight)) for tenant, weight in document.get("weights", ()))
    return AdmissionConfig(**{**document, "weights": weights})
