"""The long trial: is memory flat, does the audit balance, is nothing left?

Samples the resident memory of the command, the stub and the live driver every second. Growth is the slope of its block
means, with an interval; FAIL where it is surely more than allowed, INCONCLUSIVE where that cannot be told. At the end
nothing may be lost (`trial.conserved`) or left (`trial.leak_free`).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from benchmarks.processes import LIVE, PARENT, STUB, by_kind, tree_of
from benchmarks.soak.profile import document
from benchmarks.soak.scenes import Started, run_of, started
from harness import trial
from harness.measure.intervals import t_of

BLOCKS, CONFIDENCE = 20, 0.95
WARM_UP_S = 660.0
"""Until then the stub fills what it keeps: its last 5,000 runs, and what was committed in the last ten minutes."""
UNSURE = 0.2
"""Of a shorter trial so much is left out, and growth is told, not judged."""
ALLOWED_MIB, ALLOWED_SHARE = 4.0, 0.05
"""How much a process may grow from the end of the warm-up to the end of the trial: the larger of the two."""
SAMPLE_S, END_S, SHOWN = 1.0, 120.0, 60
"""SHOWN: samples at either end whose mean is shown."""


@dataclass(frozen=True, slots=True)
class Growth:
    """MiB over the length of the trial after its warm-up: estimate and the ends of its interval."""

    process: str
    samples: int
    mean_mib: float
    grown_mib: float
    low_mib: float
    high_mib: float
    warm: bool = True

    @property
    def allowed_mib(self) -> float:
        return max(ALLOWED_MIB, ALLOWED_SHARE * self.mean_mib)

    @property
    def word(self) -> str:
        if self.high_mib < self.allowed_mib:
            return "PASS"
        return "FAIL" if self.low_mib > self.allowed_mib and self.warm else "INCONCLUSIVE"


def growth(process: str, samples: Sequence[float], every_s: float = SAMPLE_S) -> Growth | None:
    """Slope of the block means by least squares: single samples follow one another too closely. None where there are
    too few samples for the blocks."""
    warm = (len(samples) - 2 * BLOCKS) * every_s >= WARM_UP_S
    skipped = int(WARM_UP_S / every_s) if warm else int(len(samples) * UNSURE)
    kept = np.asarray(samples[skipped:], dtype=float)
    if len(kept) < 2 * BLOCKS:
        return None
    means = np.array([block.mean() for block in np.array_split(kept, BLOCKS)])
    at = np.linspace(0.0, 1.0, BLOCKS)
    slope, base = np.polyfit(at, means, 1)
    left = means - (base + slope * at)
    error = np.sqrt((left**2).sum() / (BLOCKS - 2) / ((at - at.mean()) ** 2).sum())
    reach = t_of(CONFIDENCE, BLOCKS - 2) * error
    return Growth(
        process, len(kept), float(kept.mean()), float(slope), float(slope - reach), float(slope + reach), warm
    )


def sample(child: Started, every_s: float = SAMPLE_S) -> dict[str, list[float]]:
    """Resident memory [MiB] of each process while the trial is driven: from when all are there to when one is gone."""
    memory: dict[str, list[float]] = defaultdict(list)
    wanted = {PARENT, STUB, LIVE}
    begun = False
    while child.poll() is None:
        kinds = by_kind(tree_of(child.pid))
        if wanted <= kinds.keys():
            begun = True
            for kind in wanted:
                memory[kind].append(kinds[kind][0].rss_mib)
        elif begun:
            break
        time.sleep(every_s)
    return memory


def soak(minutes: float, rate: int, reports: Path) -> int:
    """Drives it and tells. Exit code 0: all held; 1: something did not; 3: cannot tell."""
    path = reports / "soak.yaml"
    path.write_bytes(orjson.dumps(document(minutes * 60, rate)))
    begun = time.monotonic()
    with started(run_of(path, reports)) as child:
        memory = sample(child)
        code = child.wait(END_S + minutes * 60)
    folder = newest(reports)
    words = verdicts(folder)
    calls = (words.pop("manifest").get("ended") or {}).get("calls", 0)
    print(f"{calls:,} calls in {time.monotonic() - begun:.0f} s; exit code {code}; {folder}")
    for check, (word, sentence) in words.items():
        print(f"  {check:20} {word:12} {sentence}")
    said = [word for word, _ in words.values()]
    for kind in sorted(memory):
        found = growth(kind, memory[kind])
        said.append("INCONCLUSIVE" if found is None else found.word)
        print(f"  memory of {kind:10} {told(found, memory[kind])}")
    if not memory:
        said.append("INCONCLUSIVE")
    return 1 if {"FAIL", "INVALID"} & {*said} else 3 if "INCONCLUSIVE" in said else 0


def told(found: Growth | None, samples: Sequence[float]) -> str:
    first, last = float(np.mean(samples[:SHOWN])), float(np.mean(samples[-SHOWN:]))
    ends = f"{first:.1f} MiB in the first minute, {last:.1f} in the last"
    if found is None:
        return f"INCONCLUSIVE {ends}; too short for a slope: give it more minutes"
    return (
        f"{found.word:12} {ends}; grown by {found.grown_mib:+.2f} after the warm-up ({found.low_mib:+.2f} to "
        f"{found.high_mib:+.2f}; allowed {found.allowed_mib:.1f}), {found.samples} samples"
    )


def newest(reports: Path) -> Path | None:
    """The trial's folder; None if none was begun."""
    return max((path for path in reports.iterdir() if path.is_dir()), default=None, key=lambda path: path.name)


def verdicts(folder: Path | None) -> dict[str, Any]:
    """check -> (word, sentence), and the manifest."""
    if folder is None:
        return {"manifest": {}, "trial": ("INVALID", "no folder was made")}
    judged = trial.judge(folder, write=False)
    found: dict[str, Any] = {v.check: (v.word.value, v.sentence) for v in judged.verdicts}
    return {"manifest": judged.trial.manifest, **found}
