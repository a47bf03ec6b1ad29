"""What a trial says of itself: begun before anything is sent, completed once when it has ended."""

from __future__ import annotations

import hashlib
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import orjson

from harness.machine import usable_cores

SCHEMA = 1
_NAMED = ("overload", "locust", "gevent", "aiohttp", "uvloop", "httptools", "numpy")


def begin(
    trial_id: str,
    created: str,
    driver: str,
    document: dict[str, Any],
    time_scale: float,
    seed: int,
    variant: str | None,
    target: dict[str, Any],
    clock_domain: str,
    plan: dict[str, dict[str, int]],
    evidence: dict[str, bool],
) -> dict[str, Any]:
    """The manifest of a trial that has not ended. created: UTC, ISO 8601. evidence: what the target lets us see."""
    return {
        "schema": SCHEMA,
        "trial_id": trial_id,
        "created": created,
        "driver": driver,
        "profile": document,
        "time_scale": time_scale,
        "profile_hash": profile_hash(document, time_scale),
        "seed": seed,
        "variant": variant,
        "target": target,
        "versions": versions(),
        "machine": machine(),
        "clock_domain": clock_domain,
        "evidence": evidence,
        "plan": plan,
        "ended": None,
    }


def end(
    manifest: dict[str, Any],
    reason: str,
    at_ns: int,
    calls: int,
    stub_loop_lag: dict[str, Any] | None,
    leftovers: dict[str, Any] | None = None,
    workers: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """reason: `completed`, or why the trial is not to be trusted. leftovers: what the capacity layer still holds.
    workers: of a trial that several processes drove, as its master tells it: how many, which were lost, and each."""
    ended = {"reason": reason, "at_ns": at_ns, "calls": calls, "stub_loop_lag": stub_loop_lag}
    if leftovers is not None:
        ended["leftovers"] = leftovers
    if workers is None:
        return {**manifest, "ended": ended}
    ended["workers"] = {key: value for key, value in workers.items() if key != "all"}
    return {**manifest, "workers": workers["all"], "ended": ended}


def profile_hash(document: dict[str, Any], time_scale: float) -> str:
    """sha256 over the resolved document and the time scale: same hash, same trial but for the seed's draws."""
    canonical = orjson.dumps([document, time_scale], option=orjson.OPT_SORT_KEYS)
    return "sha256:" + hashlib.sha256(canonical).hexdigest()


def machine() -> dict[str, str]:
    """What the figures of a live trial depend on, beside versions: those of another machine are not comparable."""
    return {"arch": platform.machine(), "cores": str(usable_cores())}


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "system": platform.system()}
    for name in _NAMED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
