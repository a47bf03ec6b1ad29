"""One profile in virtual time with a defect laid over its service, and the verdicts on it: a cell of the kill matrix.

A check earns its place by failing on each defect that it is there for and by passing on every healthy twin. Runs in a
temporary folder through the same ledger and the same judging as any trial.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from harness import checks
from harness.checks.verdict import Verdict, Word
from harness.errors import BadInput
from harness.ledger import manifest as manifests
from harness.ledger.reader import CALLS, Trial, read_trial
from harness.ledger.writer import JsonLines, write_manifest
from harness.profile.loader import load
from harness.profile.model import Profile
from harness.profile.scale import scaled
from harness.shipped import VERIFICATION
from harness.simulate.record import AnySimulation, files_of, simulation_of
from harness.workload.defects import is_of_callers
from harness.workload.plan import planned
from stub_service.defects.registry import DEFECTS, Defect

_SHIFT_NS = 10_000_000
_FILE_OF = {
    "fairness": "fairness",
    "fairness.max_min": "max_min",
    "fairness.identity_from_credential": "identity",
    "fairness.shuffle_isolation": "shuffle",
    "fairness.recovers": "recovers",
    "fairness.shadow_agrees": "shadow",
    "agent.budget_per_tenant": "budget_per_tenant",
    "agent.rounds_capped": "rounds",
    "agent.retry_budget": "retry_budget",
    "agent.adaptive_throttle": "adaptive_throttle",
    "agent.refusal_is_a_result": "refusal_result",
    "tree.delegate_priced": "tree_priced",
    "tree.inward_guard": "tree_guard",
    "trial": "decisions",
}
"""Check, or its family -> its file, where it is neither the family's name (`v06`) nor the rule's
(`capacity.coalesced`)."""


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
        target={"kind": "simulator", ("caller_defect" if is_of_callers(defect) else "defect"): defect},
        clock_domain="virtual",
        plan=planned(profile),
        evidence={"decisions": True},
    )
    files = {name: JsonLines(folder / name) for name in files_of(profile)}
    simulation = simulation_of(profile, {name: file.add for name, file in files.items()}, defect=defect)
    doctor(simulation)
    at_ns = simulation.run()
    for file in files.values():
        file.close()
    write_manifest(folder, manifests.end(begun, "completed", at_ns, files[CALLS].written, None, simulation.leftovers))
    return read_trial(folder)


@dataclass(frozen=True, slots=True)
class Job:
    """One cell to be filled. path: of the profile. defect: None for the healthy service. number: 0 as the profile is
    written, else with the seed and the phases of that number."""

    path: Path
    defect: str | None
    number: int


@dataclass(frozen=True, slots=True)
class Row:
    """A cell, judged by every check. own: the verdict of the check that it is there for. missed: checks that had to
    fail it and did not; alarms: verdicts that may not be; also: others that failed it, and may; passed: the others."""

    job: Job
    profile: str
    about: str
    own: Verdict
    missed: tuple[str, ...]
    alarms: tuple[Verdict, ...]
    also: tuple[str, ...]
    passed: tuple[str, ...]

    @property
    def right(self) -> bool:
        return not self.missed and not self.alarms


def profile_of_check(check: str) -> Path:
    """Where the profile is that puts a check to the test."""
    family, _, rule = check.partition(".")
    own = VERIFICATION / f"{family}_{rule}.yaml"
    if own.exists():
        return own
    other = rule.removesuffix("_bounded") if family == "capacity" else family
    name = _FILE_OF.get(check) or _FILE_OF.get(family, other)
    return VERIFICATION / f"{name}.yaml"


def profile_of_defect(defect: Defect) -> Path:
    """Its own, or that of the check that must catch it."""
    own = VERIFICATION / "defects" / f"{defect.name}.yaml"
    return own if own.exists() else profile_of_check((defect.caught_by or defect.twin_of)[0])


def jobs(only: Sequence[str] = (), seeds: int = 1) -> list[Job]:
    """The healthy service on every profile that is used, then each defect and twin, `seeds` times. only: defects or
    checks, by name or family. Raises BadInput on one that is not known."""
    named = [defect for defect in DEFECTS.values() if not only or any(_asked(defect, word) for word in only)]
    for word in only:
        if not any(_asked(defect, word) for defect in DEFECTS.values()):
            known = [*DEFECTS, *{check: None for defect in DEFECTS.values() for check in defect.caught_by}]
            near = get_close_matches(word, known, 1)
            hint = f"; did you mean {near[0]}?" if near else " (overload stub --list-defects shows those of defects)"
            raise BadInput(f"--only {word}: no defect or check has this name{hint}")
    paths = {defect.name: profile_of_defect(defect) for defect in named}
    healthy = [Job(path, None, number) for path in dict.fromkeys(paths.values()) for number in range(seeds)]
    return [*healthy, *(Job(paths[d.name], d.name, number) for d in named for number in range(seeds))]


def _asked(defect: Defect, word: str) -> bool:
    checks_of = (*defect.caught_by, *defect.twin_of)
    return word == defect.name or any(word in (check, check.partition(".")[0]) for check in checks_of)


def judge_job(job: Job) -> Row:
    """Runs and judges one cell by every check: a plain function, for a pool of processes."""
    document = load(job.path, checks=checks.PARAMETERS).document
    asked = [str(next(iter(ref)) if isinstance(ref, dict) else ref) for ref in document["checks"]]
    cell = judge_in_virtual_time(numbered(document, job.number), job.defect, list(checks.CHECKS))
    return row_of(job, cell, asked)


def row_of(job: Job, cell: Cell, asked: Sequence[str]) -> Row:
    """What the verdicts of a cell mean. asked: checks that the profile names. A healthy service must pass them,
    but for a profile that is there for a defect on which there may be too little to see."""
    defect = DEFECTS[job.defect] if job.defect is not None else None
    must = defect.caught_by if defect is not None else ()
    may = (*must, *defect.also) if defect is not None else ()
    failed = [verdict for verdict in cell.verdicts if verdict.word is Word.FAIL]
    alarms = [verdict for verdict in failed if verdict.check not in may]
    alarms += [verdict for verdict in cell.verdicts if verdict.word is Word.INVALID and verdict.check not in may]
    if (defect is None and job.path.parent == VERIFICATION) or (defect is not None and defect.healthy):
        passes = dict.fromkeys((*asked, *(defect.twin_of if defect is not None else ())))
        alarms += [cell.of(check) for check in passes if cell.of(check).word is Word.INCONCLUSIVE]
    return Row(
        job=job,
        profile=cell.profile,
        about=defect.about if defect is not None else "",
        own=cell.of((*must, *(defect.twin_of if defect is not None else ()), *asked)[0]),
        missed=tuple(check for check in must if cell.of(check).word is not Word.FAIL),
        alarms=tuple(alarms),
        also=tuple(verdict.check for verdict in failed if verdict.check in may and verdict.check not in must[:1]),
        passed=tuple(verdict.check for verdict in cell.verdicts if verdict.word is Word.PASS),
    )


def numbered(document: dict[str, Any], number: int) -> dict[str, Any]:
    """The same with another seed, and with tenants shifted by up to 10 ms: all that have runs, and of the others those
    after the first; 0 is as written."""
    if not number:
        return document
    made, rng = deepcopy(document), Random(f"{number}:phases")
    made["seed"] = number
    for place, tenant in enumerate(made["tenants"].values()):
        if place or "runs" in tenant:
            tenant["phase"] = f"{rng.randrange(_SHIFT_NS)}ns"
    return made
