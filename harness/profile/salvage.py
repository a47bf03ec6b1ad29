"""What is sound in a document that is not: so that rules between fields are checked beside broken ones.

Each field of the profile, each phase, each tenant and each field of the service is validated by itself; one that fails
is left out (a tenant: None, so that its name still counts).
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError

from harness.profile.base import Part
from harness.profile.model import Phases, Profile, Service, Tenant

_BY_PART: dict[str, type[Part]] = {"phases": Phases, "service": Service}


def sound_parts(document: dict[str, Any]) -> dict[str, Any]:
    """What `model.contradictions` takes."""
    one_by_one = (*_BY_PART, "tenants", "ordinary")
    parts = _sound_fields(Profile, {key: value for key, value in document.items() if key not in one_by_one})
    for key, model in _BY_PART.items():
        value = document.get(key)
        if isinstance(value, dict):
            parts[key] = _sound_fields(model, value)
    tenants = document.get("tenants")
    if isinstance(tenants, dict):
        parts["tenants"] = {name: _sound(_TENANT, value) for name, value in tenants.items()}
    if isinstance(document.get("ordinary"), list):
        parts["ordinary"] = document["ordinary"]
    return parts


def _sound(adapter: TypeAdapter[Any], value: Any) -> Any:
    try:
        return adapter.validate_python(value)
    except ValidationError:
        return None


def _sound_fields(model: type[Part], document: dict[str, Any]) -> dict[str, Any]:
    adapters = _field_adapters(model)
    sound = {key: _sound(adapters[key], value) for key, value in document.items() if key in adapters}
    return {key: value for key, value in sound.items() if value is not None}


@cache
def _field_adapters(model: type[Part]) -> dict[str, TypeAdapter[Any]]:
    kinds: dict[str, Any] = {
        # An alias is the document's key; the validators of a field stand in its metadata.
        info.alias or name: Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation
        for name, info in model.model_fields.items()
    }
    return {name: TypeAdapter(kind) for name, kind in kinds.items()}


_TENANT: TypeAdapter[Any] = TypeAdapter(Tenant)
