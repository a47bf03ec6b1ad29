"""What a report needs to know of a trial beside its calls: phases, length, patience, who is ordinary.

Read from the manifest alone, where the profile stands as its author wrote it; `time_scale` is applied here. Pure.
Raises LedgerError when the manifest does not hold a profile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from harness.ledger.reader import MANIFEST, Ints, LedgerError, Trial
from harness.profile.model import Phases
from harness.profile.scale import exact_factor, scale_ns
from harness.profile.units import parse_duration


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """Instants and durations in ns of the trial's own clock (time scale applied).

    phases: (name, from, to), half open, in order of time. patience_ns: one place a tenant; -1: endless.
    until_start: patience bounds the wait in the queue (else: the whole call). ended_ns: None if it never ended.
    """

    duration_ns: int
    phases: tuple[tuple[str, int, int], ...]
    ordinary: tuple[str, ...]
    patience_ns: Ints
    until_start: bool
    ended_ns: int | None

    def phase_codes(self, due_ns: Ints) -> Ints:
        """Place of the phase in which each instant lies; len(phases): in none."""
        codes = np.full(len(due_ns), len(self.phases), dtype=np.int64)
        for place, (_, from_ns, to_ns) in enumerate(self.phases):
            codes[(due_ns >= from_ns) & (due_ns < to_ns)] = place
        return codes


def frame_of(trial: Trial) -> Frame:
    """The frame of a trial. Raises LedgerError."""
    manifest = trial.manifest
    try:
        return _frame(manifest, manifest["profile"], trial.tenants)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        where = trial.folder / MANIFEST
        raise LedgerError(f"{where}: the profile in it cannot be read ({_brief(error)}); was it edited?") from None


def _frame(manifest: Mapping[str, Any], profile: Mapping[str, Any], tenants: tuple[str, ...]) -> Frame:
    scale = exact_factor(manifest.get("time_scale") or 1)
    phases = [
        (str(name), scale_ns(window.from_ns, scale), scale_ns(window.to_ns, scale))
        for name, window in Phases.model_validate(profile.get("phases") or {}).items()
    ]
    common = profile.get("patience")
    patience = [_patience((profile["tenants"][name] or {}).get("patience", common), scale) for name in tenants]
    ended = manifest.get("ended")
    return Frame(
        duration_ns=scale_ns(parse_duration(profile["duration"]), scale),
        phases=tuple(sorted(phases, key=lambda phase: phase[1])),
        ordinary=tuple(str(name) for name in profile.get("ordinary") or ()),
        patience_ns=np.array(patience, dtype=np.int64),
        until_start=profile.get("patience_until") == "start",
        ended_ns=int(ended["at_ns"]) if ended else None,
    )


def _patience(value: object, scale: Fraction) -> int:
    return -1 if value is None else scale_ns(parse_duration(value), scale)


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:200] if not isinstance(error, KeyError) else f"no {str(error.args[0])[:100]!r}"
