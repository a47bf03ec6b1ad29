"""`count: 10000` dealt out: one tenant of a profile that stands for many alike becomes those many, before it is used.

In the document, so that every later part (and the manifest of a trial) sees tenants and nothing else. Validated before
and after: a mistake in the group is told of once, at its own line.
"""

from __future__ import annotations

from typing import Any


def has_groups(document: dict[str, Any]) -> bool:
    return any(isinstance(tenant, dict) and tenant.get("count", 1) != 1 for tenant in document["tenants"].values())


def dealt_out(document: dict[str, Any]) -> dict[str, Any]:
    """document: a valid profile. NAME with `count: n` becomes NAME-1 to NAME-n, all digits equally many; its name in
    `ordinary`, and in weights, all of them."""
    names: dict[str, list[str]] = {}
    tenants: dict[str, Any] = {}
    for name, tenant in document["tenants"].items():
        count = tenant.get("count", 1)
        alike = {key: value for key, value in tenant.items() if key != "count"}
        names[name] = [f"{name}-{i:0{len(str(count))}d}" for i in range(1, count + 1)] if count > 1 else [name]
        tenants |= {one: dict(alike) for one in names[name]}
    made = {**document, "tenants": tenants}
    if "ordinary" in document:
        made["ordinary"] = [one for name in document["ordinary"] for one in names[name]]
    if document.get("service"):
        made["service"] = _with_weights(document["service"], names)
    return made


def _with_weights(service: dict[str, Any], names: dict[str, list[str]]) -> dict[str, Any]:
    made = dict(service)
    for key in ("admission", "shadow"):
        if made.get(key) and made[key].get("weights"):
            weights = {one: weight for name, weight in made[key]["weights"].items() for one in names[name]}
            made[key] = {**made[key], "weights": weights}
    return made
