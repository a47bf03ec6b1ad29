"""The figures of one judged trial that a later one is compared with.

What is counted is what the checks count: original calls by the phase in which they were due, without those that the
tenant's own budget held back; all that is not served is lost; an abandoned call waited its whole patience
(harness/checks/ordinary_evidence.py). Re-plans are a share of all calls. Each quantity has an interval that sees that
losses come in clusters, so the calls themselves need not be kept.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
import orjson
from pydantic import ValidationError

from harness.baseline.model import CONFIDENCE, CheckFigures, Quantity, Situation, Tenant, Window
from harness.checks.context import NS_PER_MS, asked_of_service, bundled, profile_of, service_time
from harness.checks.ordinary_evidence import TOLD_SHARE, waits_of
from harness.checks.verdict import Verdict, Word
from harness.errors import BadInput
from harness.ledger.manifest import profile_hash
from harness.ledger.outcomes import ABANDONED, DROPPED, HELD_BACK, REFUSED, SERVED
from harness.ledger.reader import Ints, Trial
from harness.measure.alone import mean_of, quantile_of, share_of
from harness.measure.intervals import Interval
from harness.measure.unmoved import Sample
from harness.profile.model import Profile

MOST_ORDINARY, MOST_OTHERS = 20, 5
"""Tenants with figures of their own: those with most calls. All ordinary ones are in `pooled`."""

WHOLE = "whole"
_NO_TRAFFIC = frozenset(("name", "about", "seed", "checks", "variants"))
_SERVICE = ("service", "capacity")
_DIGITS = 6

Mask = npt.NDArray[np.bool_]


def name_of(trial: Trial) -> str:
    """Of the situation that a trial by itself is."""
    manifest = trial.manifest
    variant = manifest.get("variant")
    return str(manifest["profile"].get("name", "trial")) + (f"-{variant}" if variant else "")


def situation_of(trial: Trial, verdicts: Sequence[Verdict]) -> Situation:
    """Raises BadInput if its manifest cannot be read."""
    try:
        profile = profile_of(trial)
    except (ValidationError, ValueError, TypeError) as error:
        said = str(error).splitlines()[0]
        raise BadInput(f"{trial.folder}: the profile in its manifest is not valid ({said})") from None
    taking = _Taking.of(trial, profile)
    mean_ns = service_time(trial, profile).mean_ns
    document, manifest = trial.manifest["profile"], trial.manifest
    ours = bundled(trial)
    parts = {key: _hash(value) for key, value in document.items() if key not in (*_NO_TRAFFIC, *_SERVICE)}
    return Situation(
        profile=profile.name,
        variant=manifest.get("variant"),
        profile_hash=str(manifest.get("profile_hash") or profile_hash(document, manifest.get("time_scale", 1.0))),
        time_scale=float(manifest.get("time_scale", 1.0)),
        parts=parts,
        served_by={key: _hash(document[key]) for key in _SERVICE if ours and document.get(key) is not None},
        wait="queue wait" if taking.told else "latency",
        service_time_ms=_round(mean_ns / NS_PER_MS) if mean_ns else None,
        tenants={name: Tenant(ordinary=ordinary, phases=phases) for name, ordinary, phases in taking.tenants()},
        pooled=taking.pooled(),
        checks={verdict.check: _check(verdict) for verdict in verdicts},
    )


def environment_of(trial: Trial) -> dict[str, str]:
    """What must be equal for two trials to be comparable: of a trial in virtual time only what it computes with."""
    manifest = trial.manifest
    target, versions = manifest.get("target") or {}, manifest.get("versions") or {}
    machine = manifest.get("machine") or {}
    live = manifest.get("driver") == "live"
    named = ("overload", "python", "locust", "gevent", "aiohttp") if live else ("overload",)
    found = {name: str(versions[name]) for name in named if name in versions}
    if "python" in found:
        found["python"] = ".".join(found["python"].split(".")[:2])
    found["driver"] = str(manifest.get("driver", "live"))
    found["target"] = str(target.get("name") or target.get("kind") or "?")
    if target.get("url") and (host := urlsplit(str(target["url"])).hostname):
        found["target host"] = host
    if live:
        found |= {f"machine {key}": str(value) for key, value in machine.items()}
        found["processes"] = str(len(manifest.get("workers") or ()) or 1)
    return {key: value[:200] for key, value in found.items()}


def identity_of(trial: Trial) -> tuple[str, ...]:
    """What no other trial has. In virtual time the seed makes the trial: the same one twice is one trial."""
    manifest = trial.manifest
    seed = f"seed {manifest.get('seed')}"
    if manifest.get("driver") == "simulated":
        return (seed,)
    return str(manifest.get("trial_id"))[:200], str(manifest.get("created"))[:60], seed


def _hash(value: Any) -> str:
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()[:12]


def _round(value: float) -> float:
    """Six significant digits: more would be noise in a review."""
    return float(f"{value:.{_DIGITS}g}")


def _finite(value: float | None) -> float | None:
    return _round(value) if value is not None and math.isfinite(value) else None


def _check(verdict: Verdict) -> CheckFigures:
    decisive = next(
        (f for f in verdict.findings if (f.measured, f.unit, f.word) == (verdict.measured, verdict.unit, verdict.word)),
        None,
    )
    return CheckFigures(
        word=verdict.word,
        measured=_finite(verdict.measured),
        low=_finite(decisive.low) if decisive else None,
        high=_finite(decisive.high) if decisive else None,
        bound=_finite(verdict.bound),
        unit=verdict.unit,
        samples=verdict.samples,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Taking:
    """Columns of the trial's calls, and the windows that they are cut into."""

    trial: Trial
    profile: Profile
    windows: tuple[tuple[str, int, int], ...]
    asked: Mask
    waited_ns: Ints
    has_wait: Mask
    told: bool
    ends: dict[str, Mask]

    @classmethod
    def of(cls, trial: Trial, profile: Profile) -> _Taking:
        calls = trial.calls
        windows = tuple((name, window.from_ns, window.to_ns) for name, window in profile.phases.items())
        asked = asked_of_service(trial)
        served = calls.is_outcome(SERVED)
        told = bool(served.any()) and float((calls.queue_wait_ns[served] >= 0).mean()) >= TOLD_SHARE
        calm = profile.phases.calm
        in_calm = (calls.due_ns < calm.to_ns) if calm is not None else np.ones(len(calls), dtype=np.bool_)
        rows = np.arange(len(calls), dtype=np.int64)
        waited, has = waits_of(trial, profile, rows, np.asarray(in_calm), told)
        ordered = tuple(sorted(windows, key=lambda one: one[1])) or ((WHOLE, 0, profile.duration),)
        ends = {
            "served": served,
            "refused": calls.is_outcome(*REFUSED),
            "abandoned": calls.is_outcome(ABANDONED),
            "sent": ~calls.is_outcome(HELD_BACK, DROPPED),
        }
        return cls(trial, profile, ordered, asked, waited, has, told, ends)

    def tenants(self) -> Iterator[tuple[str, bool, dict[str, Window]]]:
        """(name, ordinary, windows by phase), of those with most calls."""
        calls, names = self.trial.calls, self.trial.tenants
        ordinary = self._ordinary()
        size = np.bincount(calls.tenant, minlength=len(names))
        largest = np.lexsort((np.arange(len(names)), -size))
        kept = np.sort(
            np.concatenate((largest[ordinary[largest]][:MOST_ORDINARY], largest[~ordinary[largest]][:MOST_OTHERS]))
        )
        order = np.argsort(calls.tenant, kind="stable")
        bounds = np.searchsorted(calls.tenant[order], np.arange(len(names) + 1))
        for tenant in kept.tolist():
            rows = order[bounds[tenant] : bounds[tenant + 1]]
            yield names[tenant], bool(ordinary[tenant]), self._phases(names[tenant], rows)

    def pooled(self) -> dict[str, Window]:
        """All ordinary tenants together; nothing where there are not at least two."""
        ordinary = self._ordinary()
        if int(ordinary.sum()) < 2:
            return {}
        return self._phases("", np.flatnonzero(ordinary[self.trial.calls.tenant]))

    def _ordinary(self) -> Mask:
        named = frozenset(self.profile.ordinary)
        return np.array([name in named for name in self.trial.tenants], dtype=np.bool_)

    def _phases(self, subject: str, rows: npt.NDArray[np.intp]) -> dict[str, Window]:
        due = self.trial.calls.due_ns[rows]
        inside = {name: rows[(due >= from_ns) & (due < to_ns)] for name, from_ns, to_ns in self.windows}
        return {
            name: self._window(subject, name, inside[name], from_ns, to_ns)
            for name, from_ns, to_ns in self.windows
            if len(inside[name])
        }

    def _window(self, subject: str, phase: str, rows: npt.NDArray[np.intp], from_ns: int, to_ns: int) -> Window:
        calls = self.trial.calls
        asked = rows[self.asked[rows]]
        rng = np.random.default_rng(zlib.crc32(f"{subject}:{phase}".encode("utf-8", "backslashreplace")))
        quantities: dict[str, Quantity] = {}
        replan = calls.round[rows] > 0
        hits = {name: (asked, self.ends[name][asked]) for name in ("served", "refused", "abandoned")}
        for name, (among, hit) in {**hits, "replans": (rows, replan)}.items():
            data = Sample(calls.due_ns[among], hit.astype(np.int64), from_ns, to_ns)
            quantities[name] = _quantity(share_of(data, CONFIDENCE, rng), len(data), int(data.value.sum()))
        waited = asked[self.has_wait[asked]]
        data = Sample(calls.due_ns[waited], self.waited_ns[waited], from_ns, to_ns)
        found = {
            "wait_mean_ms": mean_of(data, CONFIDENCE, rng) if len(data) else None,
            "wait_p50_ms": quantile_of(data, 0.5, CONFIDENCE, rng),
            "wait_p95_ms": quantile_of(data, 0.95, CONFIDENCE, rng),
        }
        for name, interval in found.items():
            if interval is not None:
                quantities[name] = _quantity(interval.times(1 / NS_PER_MS), len(data))
        due, offered = int((~replan).sum()), int(self.ends["sent"][rows].sum())
        return Window(due=due, offered=offered, quantities=quantities)


def _quantity(interval: Interval, n: int, hits: int | None = None) -> Quantity:
    return Quantity(
        estimate=_round(interval.estimate), low=_round(interval.low), high=_round(interval.high), n=n, hits=hits
    )


def refuse_invalid(trial: Trial, verdicts: Sequence[Verdict]) -> None:
    """Raises BadInput: what is not to be trusted is no measure of anything."""
    broken = next((verdict for verdict in verdicts if verdict.word is Word.INVALID), None)
    if broken is not None:
        raise BadInput(
            f"{trial.folder}: INVALID, so nothing can be compared with it ({broken.check}: {broken.sentence}); "
            "drive it again"
        )
