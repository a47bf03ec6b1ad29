"""One profile in virtual time with a defect laid over its service, and the verdicts on it: a cell of the kill matrix.

A check earns its place by failing on each defect that it is there for and by passing on every healthy twin. Runs in a
temporary folder through the same ledger and the same judging as any trial.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from harness import checks
from harness.checks.verdict import Verdict
from harness.ledger import manifest as manifests
from harness.ledger.reader import CALLS, Trial, read_trial
from harness.ledger.writer import JsonLines, write_manifest
from harness.profile.model import Profile
from harness.profile.scale import scaled
from harness.simulate.record import AnySimulation, files_of, simulation_of
from harness.workload.plan import planned


@dataclass(frozen=True, slots=True)
class Cell:
    """What each check said of one defect, on one profile. defect: None for the healthy service."""

    profile: str
    defect: str | None
    verdicts: tuple[Verdict, ...]

    def of(self, check: str) -> Verdict:
        return next(verdict for verdict in self.verdicts if verdict.check == check)


def judge_in_virtual_time(
    document: dict[str, Any],
    defect: str | None = None,
    only: Sequence[str] | None = None,
    time_scale: float = 1.0,
    doctor: Callable[[AnySimulation], None] = lambda simulation: None,
) -> Cell:
    """document: a resolved profile, as YAML would say it. doctor: may replace parts of the callers (a defect there)."""
    with TemporaryDirectory() as folder:
        trial = trial_in_virtual_time(Path(folder), document, defect, time_scale, doctor)
        return Cell(document["name"], defect, tuple(checks.judge_all(trial, only)))


def trial_in_virtual_time(
    folder: Path,
    document: dict[str, Any],
    defect: str | None = None,
    time_scale: float = 1.0,
    doctor: Callable[[AnySimulation], None] = lambda simulation: None,
) -> Trial:
    """Writes the trial's ledger to the folder and reads it back."""
    profile = scaled(Profile.model_validate(document), time_scale)
    begun = manifests.begin(
        trial_id=f"{profile.name}-{defect or 'healthy'}",
        created="1970-01-01T00:00:00Z",
        driver="simulated",
        document=document,
        time_scale=time_scale,
        seed=profile.seed,
        variant=None,
        target={"kind": "simulator", "defect": defect},
        clock_domain="virtual",
        plan=planned(profile),
        decisions=True,
    )
    files = {name: JsonLines(folder / name) for name in files_of(profile)}
    simulation = simulation_of(profile, {name: file.add for name, file in files.items()}, defect=defect)
    doctor(simulation)
    at_ns = simulation.run()
    for file in files.values():
        file.close()
    write_manifest(folder, manifests.end(begun, "completed", at_ns, files[CALLS].written, None, simulation.leftovers))
    return read_trial(folder)
