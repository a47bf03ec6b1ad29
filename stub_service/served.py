"""What a stub is to serve, read from JSON: a shared service, a capacity layer, or both.

{"shared": {...SharedServiceConfig} | null, "capacity": {...CapacityConfig} | null}
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from stub_service import config as shared_config
from stub_service.admission.shuffle_sharding import MOST_HAND, MOST_QUEUES
from stub_service.capacity import config as capacity_config
from stub_service.capacity.config import Bulkhead, CapacityConfig
from stub_service.config import AdmissionConfig, SharedServiceConfig
from stub_service.dependency import faults

_BAD = (KeyError, TypeError, ValueError, AttributeError)


class BadInput(Exception):
    """One sentence: what is wrong, and what to do."""


@dataclass(frozen=True, slots=True)
class Served:
    shared: SharedServiceConfig | None
    capacity: CapacityConfig | None


def read_served(path: Path) -> Served:
    """Raises BadInput."""
    try:
        document = orjson.loads(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror}); give --config an existing JSON file") from None
    except orjson.JSONDecodeError as error:
        raise BadInput(f"{path}:{error.lineno}: not JSON ({error.msg})") from None
    if not isinstance(document, dict) or not document or not set(document) <= {"shared", "capacity"}:
        raise BadInput(f'{path}: must be an object {{"shared": ..., "capacity": ...}}, either of them null or left out')
    served = Served(_shared(path, document.get("shared")), _capacity(path, document.get("capacity")))
    if served.shared is None and served.capacity is None:
        raise BadInput(f"{path}: describes nothing to serve; give `shared`, `capacity` or both")
    return served


def _shared(path: Path, document: Any) -> SharedServiceConfig | None:
    if document is None:
        return None
    try:
        config = shared_config.from_json(document)
    except _BAD as error:
        raise BadInput(f"{path}: not a configuration of the shared service ({error!r})") from None
    if problem := _shared_problem(config):
        raise BadInput(f"{path}: {problem}")
    return config


def _capacity(path: Path, document: Any) -> CapacityConfig | None:
    if document is None:
        return None
    try:
        config = capacity_config.from_json(document)
        problem = _capacity_problem(config)
    except _BAD as error:
        raise BadInput(f"{path}: not a configuration of the capacity layer ({error!r})") from None
    if problem:
        raise BadInput(f"{path}: {problem}")
    return config


def _shared_problem(config: SharedServiceConfig) -> str | None:
    instants = [at for at, _ in config.workers]
    if not instants or instants[0] != 0 or instants != sorted(set(instants)):
        return "workers must be [[from_ns, count], ...], the first from 0, in order"
    if any(count < 0 for _, count in config.workers):
        return "workers: a count cannot be negative"
    times = config.service_time
    if times.distribution != "recorded_cost" and times.mean_ns <= 0:
        return "service_time.mean_ns must be above zero"
    if min(times.sigma, times.base_ns, times.per_unit_ns, times.cap_ns, times.load_slope) < 0:
        return "service_time: no part of it can be negative"
    for name, admission in (("admission", config.admission), ("shadow", config.shadow)):
        if admission is not None and (problem := _admission_problem(admission)):
            return f"{name}{problem}"
    return None


def _admission_problem(admission: AdmissionConfig) -> str | None:
    if min(admission.queue, admission.queue_per_tenant, admission.cap) < 0:
        return ": no bound can be negative"
    if admission.policy == "tenant_cap" and admission.cap < 1:
        return ".cap must be at least 1: with 0 nothing would ever start"
    if any(weight < 1 for _, weight in admission.weights):
        return ".weights must be at least 1: with 0 a tenant would never start"
    if admission.policy == "shuffle_sharded":
        if not 1 <= admission.hand <= min(admission.queues, MOST_HAND) or admission.queues > MOST_QUEUES:
            return f": needs 1 <= hand <= queues, a hand of at most {MOST_HAND} and at most {MOST_QUEUES} queues"
        if not 0 <= admission.salt < 1 << 63:
            return ".salt must be from 0 to 2^63"
    return None


def _capacity_problem(config: CapacityConfig) -> str | None:
    names = [d.name for d in config.dependencies]
    if not names or len(set(names)) < len(names):
        return "capacity.dependencies must have at least one, each with its own name"
    if config.ceiling < 1:
        return "capacity.ceiling must be at least 1: with 0 nothing would ever start"
    for dependency in config.dependencies:
        at = f"capacity.dependencies.{dependency.name}"
        if not dependency.name or not dependency.name.isprintable() or len(dependency.name) > 200:
            return f"{at}: a name has 1 to 200 printable characters"
        if dependency.workers < 1 or dependency.service_ns < 1 or dependency.expected_ns < 0:
            return f"{at}: workers and service_ns must be above zero, expected_ns not below it"
        if not (_is_bulkhead(dependency.reads) and _is_bulkhead(dependency.writes)):
            return f"{at}: limit and timeout_ns of reads and writes must be above zero, queue not below it"
    for place, fault in enumerate(config.faults):
        if problem := faults.problem(fault, names):
            return f"capacity.faults[{place}]: {problem}"
    return None


def _is_bulkhead(bulkhead: Bulkhead) -> bool:
    return bulkhead.limit >= 1 and bulkhead.timeout_ns >= 1 and bulkhead.queue >= 0
