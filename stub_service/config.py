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
    """policy: shared_fifo (queue), tenant_cap (queue, cap), fair_queues (queue_per_tenant)."""

    policy: str
    queue: int = 0
    queue_per_tenant: int = 0
    cap: int = 0


@dataclass(frozen=True, slots=True)
class SharedServiceConfig:
    """workers: ((from_ns, count), ...), first from 0, in order: how many there are from each instant on."""

    workers: tuple[tuple[int, int], ...]
    service_time: ServiceTimeConfig
    admission: AdmissionConfig
    seed: int = 1


def to_json(config: SharedServiceConfig) -> dict[str, Any]:
    return asdict(config)


def from_json(document: dict[str, Any]) -> SharedServiceConfig:
    """The inverse of `to_json`. Raises KeyError, TypeError or ValueError on anything else."""
    return SharedServiceConfig(
        workers=tuple((int(at), int(count)) for at, count in document["workers"]),
        service_time=ServiceTimeConfig(**document["service_time"]),
        admission=AdmissionConfig(**document["admission"]),
        seed=int(document["seed"]),
    )
