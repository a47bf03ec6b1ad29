"""From a profile's `service` to the configuration that the simulator and the live stub share."""

from __future__ import annotations

from harness.errors import BadInput
from harness.profile.model import Profile
from stub_service.config import AdmissionConfig, ServiceTimeConfig, SharedServiceConfig


def shared_service(profile: Profile) -> SharedServiceConfig:
    """Raises BadInput if the profile describes no service."""
    if profile.service is None:
        raise BadInput(f"profile '{profile.name}' describes no service: add `service:` to simulate or to run the stub")
    service = profile.service
    time, admission = service.service_time, service.admission
    return SharedServiceConfig(
        workers=tuple((from_ns, count) for from_ns, _, count in service.workers.segments(2**62)),
        service_time=ServiceTimeConfig(
            distribution=time.distribution,
            mean_ns=time.mean or 0,
            sigma=time.sigma or 0.0,
            base_ns=time.base or 0,
            per_unit_ns=time.per_unit or 0,
            cap_ns=time.cap or 0,
            load_slope=time.load_slope,
        ),
        admission=AdmissionConfig(
            policy=admission.policy,
            queue=admission.queue or 0,
            queue_per_tenant=admission.queue_per_tenant or 0,
            cap=admission.cap or 0,
        ),
        seed=profile.seed,
    )
