"""From a profile's `service` and `capacity` to the configurations that the simulators and the live stub share."""

from __future__ import annotations

from harness.errors import BadInput
from harness.profile import capacity as described
from harness.profile.model import Admission, Profile
from harness.simulate.cost import cost_config, quota, usages
from stub_service.capacity import config as made
from stub_service.capacity.config import CapacityConfig
from stub_service.capacity.tree import TreeLimits
from stub_service.config import AdmissionConfig, ServiceTimeConfig, SharedServiceConfig

FOR_EVER_NS = 2**62


def shared_service(profile: Profile) -> SharedServiceConfig:
    """Raises BadInput if the profile describes no service."""
    if profile.service is None:
        raise BadInput(
            f"profile '{profile.name}' describes no service: add `service:` to simulate it or to run it on the bundled "
            "stub, or give the address of a service with --target"
        )
    service = profile.service
    time = service.service_time
    return SharedServiceConfig(
        workers=tuple((from_ns, count) for from_ns, _, count in service.workers.segments(FOR_EVER_NS)),
        service_time=ServiceTimeConfig(
            distribution=time.distribution,
            mean_ns=time.mean or 0,
            sigma=time.sigma or 0.0,
            base_ns=time.base or 0,
            per_unit_ns=time.per_unit or 0,
            cap_ns=time.cap or 0,
            load_slope=time.load_slope,
        ),
        admission=_admission(service.admission, profile.seed),
        seed=profile.seed,
        shadow=_admission(service.shadow, profile.seed) if service.shadow is not None else None,
    )


def _admission(admission: Admission, seed: int) -> AdmissionConfig:
    return AdmissionConfig(
        policy=admission.policy,
        queue=admission.queue or 0,
        queue_per_tenant=admission.queue_per_tenant or 0,
        cap=admission.cap or 0,
        weights=tuple(admission.weights.items()),
        queues=admission.queues or 0,
        hand=admission.hand or 0,
        salt=seed,
    )


def capacity_config(profile: Profile) -> CapacityConfig:
    """Raises BadInput if the profile describes no capacity layer."""
    if profile.capacity is None:
        raise BadInput(f"profile '{profile.name}' describes no capacity layer: add `capacity:` to simulate its runs")
    capacity = profile.capacity
    envelope, retry, recovery = capacity.envelope, capacity.retry, capacity.recovery
    return CapacityConfig(
        ceiling=capacity.ceiling,
        dependencies=tuple(_dependency(name, one) for name, one in capacity.dependencies.items()),
        reserves=tuple(made.Reserve(name, one.slots, one.floor) for name, one in capacity.reserves.items()),
        shares=tuple(made.TenantShare(name, one.slots, one.queue) for name, one in capacity.shares.items()),
        tenant_queue=capacity.tenant_queue,
        envelope=made.EnvelopeDefaults(
            envelope.deadline,
            envelope.attempts,
            envelope.parallel,
            envelope.retry_tokens,
            tuple(envelope.budgets.items()),
            TreeLimits(**envelope.tree),
            envelope.delegate_cost,
            envelope.tool_cost,
        ),
        retry=made.Retry(retry.base, retry.most, retry.jitter),
        recovery=made.Recovery(float(recovery.from_rate), float(recovery.to_rate), recovery.ramp),
        coalesce=capacity.coalesce,
        seed=profile.seed,
        faults=tuple(_fault(fault) for fault in profile.faults),
        cost=cost_config(capacity.cost) if capacity.cost is not None else None,
        usages=usages(profile),
    )


def _dependency(name: str, one: described.Dependency) -> made.Dependency:
    circuit, adaptive = one.circuit, one.adaptive
    return made.Dependency(
        name=name,
        workers=one.workers,
        service_ns=one.service_time,
        expected_ns=one.expected if one.expected is not None else one.service_time,
        reads=_bulkhead(one.reads),
        writes=_bulkhead(one.writes),
        circuit=made.Circuit(
            window_ns=circuit.window,
            min_calls=circuit.min_calls,
            failure_share=circuit.failure_share,
            slow_ns=circuit.slow,
            slow_share=circuit.slow_share,
            open_ns=circuit.open_for,
            probes=circuit.probes,
            close_after=circuit.close_after,
            lease_ns=circuit.lease,
        ),
        adaptive=made.Adaptive(
            lowest=adaptive.lowest,
            highest=adaptive.highest,
            increase=adaptive.increase,
            decrease=adaptive.decrease,
            slow_ns=adaptive.slow,
            window_ns=adaptive.window,
        )
        if adaptive is not None
        else None,
        quota=quota(one.quota) if one.quota is not None else None,
    )


def _bulkhead(one: described.Bulkhead) -> made.Bulkhead:
    return made.Bulkhead(one.limit, one.queue, one.timeout)


def _fault(fault: described.Fault) -> made.Fault:
    return made.Fault(
        dependency=fault.dependency,
        kind=fault.kind,
        from_ns=fault.from_ns,
        to_ns=fault.to_ns if fault.to_ns is not None else FOR_EVER_NS,
        times=fault.times or 0,
        operation=fault.operation or "",
        factor=fault.factor if fault.factor is not None else 1.0,
        status=fault.status or 0,
        retry_after=fault.retry_after or "",
    )
