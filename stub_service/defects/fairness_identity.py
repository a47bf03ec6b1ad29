"""Calls charged to somebody else, for `fairness.identity_from_credential` to catch; and a twin that is right."""

from __future__ import annotations

from hashlib import blake2b

from stub_service.admission.service import SharedService
from stub_service.config import SharedServiceConfig
from stub_service.defects.registry import SHARED, broken, twin

IDENTITY = "fairness.identity_from_credential"
ALSO = ("fairness.ordinary_unmoved", "fairness.max_min")
RUNTIME = "runtime"


def header_believed(tenant: str, claimed: str | None) -> str:
    return claimed or tenant


def one_credential(tenant: str, claimed: str | None) -> str:
    """The agent runtime calls with a credential of its own, so the service sees one tenant."""
    return RUNTIME


def account(tenant: str, claimed: str | None) -> str:
    """Twin: each credential belongs to an account, which has another name."""
    return f"account-{blake2b(tenant.encode(), digest_size=6).hexdigest()}"


def _believes(service: SharedService, config: SharedServiceConfig) -> None:
    service.charge = header_believed


def _runtime(service: SharedService, config: SharedServiceConfig) -> None:
    service.charge = one_credential


def _accounts(service: SharedService, config: SharedServiceConfig) -> None:
    service.charge = account


broken("tenant_header_believed", "who pays is what a header says", _believes, IDENTITY, part=SHARED, also=ALSO)
broken("one_runtime_credential", "all tenants come with one credential", _runtime, IDENTITY, part=SHARED, also=ALSO)
twin(
    "twin_charged_to_accounts",
    "tenants are charged under names of accounts",
    _accounts,
    IDENTITY,
    part=SHARED,
)
