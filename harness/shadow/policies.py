"""What `--policy` says: a name of the stub's registry, and its parameters.

    fair_queues:queue=50    tenant_cap:queue=200,cap=4    shared_fifo:workers=16    fair_queues:weights=A*3+B*1

The parameters are those of a profile's `admission:`, and its rules are the ones that hold here. `queue` is the bound
that the policy has, be it of the shared queue or of each tenant's; `workers` is for this policy instead of for all.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, fields
from typing import Any

from pydantic import ValidationError

from harness.profile.model import Admission
from harness.recorded.document import DEFAULT_QUEUE
from harness.recorded.errors import printable
from stub_service.admission import registry
from stub_service.config import AdmissionConfig

DEFAULTS: dict[str, dict[str, Any]] = {
    "shared_fifo": {"queue": DEFAULT_QUEUE["shared_fifo"]},
    "tenant_cap": {"queue": DEFAULT_QUEUE["tenant_cap"]},
    "fair_queues": {"queue_per_tenant": DEFAULT_QUEUE["fair_queues"]},
    "shuffle_sharded": {"queues": 64, "hand": 4, "queue": 50},
}
"""`tenant_cap` lets a tenant have half of the workers, unless `cap` is given."""

_TYPES = {field.name: str(field.type) for field in fields(AdmissionConfig) if field.name != "policy"}
_KNOWN = [name for name in _TYPES if name in Admission.model_fields and name != "queue_per_tenant"]


@dataclass(frozen=True, slots=True)
class Policy:
    """text: as it was asked for. given: parameters by name. workers: None: as many as for the others."""

    text: str
    name: str
    given: tuple[tuple[str, Any], ...] = ()
    workers: int | None = None

    def config(self, workers: int) -> AdmissionConfig:
        """Raises ValueError with the rule that it breaks."""
        values: dict[str, Any] = {**DEFAULTS.get(self.name, {}), **dict(self.given)}
        if self.name == "tenant_cap":
            values.setdefault("cap", max(1, workers // 2))
        try:
            admission = Admission.model_validate({"policy": self.name, **values})
        except ValidationError as error:
            first = error.errors()[0]
            place = f"{'.'.join(map(str, first['loc'][:2]))}: " if first["loc"] else ""
            raise ValueError(place + first["msg"].removeprefix("Value error, ")) from None
        made = {name: value for name in _TYPES if (value := getattr(admission, name, None)) is not None}
        return AdmissionConfig(self.name, **{**made, "weights": tuple(admission.weights.items())})


def parse(text: str) -> Policy:
    """`NAME` or `NAME:KEY=VALUE,...`. Raises ValueError with what is wrong and what would do."""
    name, _, rest = text.partition(":")
    if name not in registry.POLICIES:
        near = difflib.get_close_matches(name, registry.POLICIES, 1)
        raise ValueError((f"did you mean {near[0]}? " if near else "") + f"known: {', '.join(registry.POLICIES)}")
    given: dict[str, Any] = {}
    for part in filter(None, (piece.strip() for piece in rest.split(","))):
        key, equals, value = part.partition("=")
        if key != "workers" and key not in _KNOWN:
            raise ValueError(f"'{printable(key, 40)}' is no parameter (known: {', '.join([*_KNOWN, 'workers'])})")
        key = "queue_per_tenant" if key == "queue" and name == "fair_queues" else key
        if not equals or key in given:
            raise ValueError(f"'{printable(part, 40)}' is not KEY=VALUE, each key once")
        given[key] = dict(_pairs(value)) if key == "weights" else _number(key, value)
    workers = given.pop("workers", None)
    policy = Policy(text, name, tuple((key, value) for key, value in given.items()), workers)
    policy.config(workers or 2)
    return policy


def _number(key: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,8}", text) or (key == "workers" and not 1 <= int(text) <= 1_000_000):
        raise ValueError(f"{key}={printable(text, 40)}: expected a whole number")
    return int(text)


def _pairs(text: str) -> list[tuple[str, int]]:
    """`A*3+B*1`."""
    made = []
    for part in text.split("+"):
        name, star, number = part.rpartition("*")
        if not star or not name or not re.fullmatch(r"[0-9]{1,6}", number):
            raise ValueError(f"weights={printable(text, 40)}: expected TENANT*WEIGHT joined by +, such as A*3+B*1")
        made.append((name, int(number)))
    return made
