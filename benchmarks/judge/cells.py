"""What the campaign tries: cells, in the order in which they are worth their time.

A cell is one trial: a part of the campaign, a profile and its length, what is laid over the service, and a number, from
which its seed and its tenants' phases come. Its key says all of that, and is how it is found again. Stages come in
growing numbers of seeds, so that a campaign that ends early has something of everything; a weaker form of a defect is
not tried where no check has seen the stronger one, and a longer trial not where the shorter has always seen it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import harness.workload.defects  # noqa: F401  registers those of callers
from benchmarks.judge.lengths import longer
from harness import checks
from harness.checks.judge import ALWAYS
from harness.errors import BadInput
from harness.matrix import profile_of_check, profile_of_defect
from harness.profile.loader import Loaded, load
from harness.shipped import VERIFICATION
from stub_service.defects import strengths
from stub_service.defects.registry import DEFECTS, Defect

HEALTHY, DEFECT, TWIN, DILUTED, SMALL, LOSSY, LENGTH = (
    "healthy", "defect", "twin", "diluted", "small", "lossy", "length",
)  # fmt: skip
LIVE_HEALTHY, LIVE_DEFECT = "live-healthy", "live-defect"
VIRTUAL, LIVE = (HEALTHY, DEFECT, TWIN, DILUTED, SMALL, LOSSY, LENGTH), (LIVE_HEALTHY, LIVE_DEFECT)
UNMOVED = "fairness.ordinary_unmoved"

ONE_IN = (2, 10, 100)
LONG = 4.0
LENGTHS = (0.25, 0.5, 2.0, 4.0)
SHARES = (0.0, 0.005, 0.01, 0.02, 0.05)
SIZED = "worked_example_x8"
"""The profile that is sized for verdicts; with fair queues, so that nothing else is lost."""

SEEDS = {
    HEALTHY: 1000, DEFECT: 200, TWIN: 200, DILUTED: 10, SMALL: 20, LOSSY: 200, LENGTH: 10,
    LIVE_HEALTHY: 20, LIVE_DEFECT: 1,
}  # fmt: skip
CHUNKS = (10, 20, 50, 100, 200, 500, 1000, 10_000, 1_000_000)


@dataclass(frozen=True, slots=True)
class Cell:
    """profile: stem of a file. laid: name of a defect, a diluted one (`name~10`), a small breach, or a share that is
    lost (`0.02`); `-` the healthy service. factor: of the length."""

    part: str
    profile: str
    laid: str
    factor: float
    number: int

    @property
    def key(self) -> str:
        return f"{self.part}|{self.profile}|{self.laid}|x{self.factor:g}|{self.number}"

    @property
    def series(self) -> str:
        """The key without its number: cells of one series differ by chance alone."""
        return self.key.rpartition("|")[0]


def parsed(key: str) -> Cell:
    """Raises BadInput on what is no key."""
    try:
        part, profile, laid, factor, number = key.split("|")
        if part not in (*VIRTUAL, *LIVE):
            raise ValueError
        return Cell(part, profile, laid, float(factor.removeprefix("x")), int(number))
    except ValueError:
        raise BadInput(f"{key!r:.100} is no cell; its form is 'healthy|v04|-|x1|17'") from None


# Profiles and what is laid over them


@cache
def paths() -> dict[str, Path]:
    """Profiles by stem; those that are there for one defect too."""
    found = {path.stem: path for path in sorted(VERIFICATION.rglob("*.yaml"))}
    return {**found, SIZED: VERIFICATION.parent / f"{SIZED}.yaml"}


@cache
def loaded(profile: str) -> Loaded:
    if profile not in paths():
        raise BadInput(f"there is no profile '{profile}' in {VERIFICATION}")
    return load(paths()[profile], variant="fair_queues" if profile == SIZED else None, checks=checks.PARAMETERS)


def document_of(cell: Cell) -> dict[str, Any]:
    return longer(loaded(cell.profile).document, cell.factor)


def asked_by(profile: str) -> tuple[str, ...]:
    """Checks that the profile names; the first is the one that it is there for."""
    refs = loaded(profile).document["checks"]
    return tuple(str(next(iter(ref)) if isinstance(ref, dict) else ref) for ref in refs)


@cache
def judged_on(profile: str) -> tuple[str, ...]:
    """Those, and others with defects that have no profile but this."""
    if profile == SIZED:
        return asked_by(profile)
    others = dict.fromkeys(check for one in DEFECTS.values() for check in one.caught_by)
    path = paths()[profile]
    return tuple(dict.fromkeys((*asked_by(profile), *(c for c in others if profile_of_check(c) == path))))


def must_see(cell: Cell) -> tuple[str, ...]:
    """Checks that the defect at its full strength must FAIL, or that its twin must PASS."""
    one = DEFECTS.get(cell.laid) if cell.part in (DEFECT, TWIN, LIVE_DEFECT) else None
    return (*one.caught_by, *one.twin_of) if one is not None else ()


def wanted(cell: Cell) -> list[str]:
    """Checks that judge a trial of the cell."""
    return list(dict.fromkeys((own_check(cell), *must_see(cell), *judged_on(cell.profile), *ALWAYS)))


def may_fail(cell: Cell) -> tuple[str, ...]:
    """Checks that may see what is laid over the service: what they say takes nothing from the others."""
    if cell.laid == "-" or cell.part == LOSSY:
        return ()
    name = cell.laid.partition("~")[0]
    one = DEFECTS[name] if name in DEFECTS else strengths.SMALL[name]
    return (*one.caught_by, *one.also)


def own_check(cell: Cell) -> str:
    """The check that the cell puts to the test."""
    if cell.part in (HEALTHY, LIVE_HEALTHY, LOSSY) or cell.laid == "-":
        return asked_by(cell.profile)[0]
    name = cell.laid.partition("~")[0]
    one = DEFECTS[name] if name in DEFECTS else strengths.SMALL[name]
    return (one.caught_by or one.twin_of)[0]


def laid_over(cell: Cell) -> Defect | None:
    """The defect that a cell's service has; not yet registered, if it is a weaker form of one."""
    if cell.laid == "-":
        return None
    if cell.part == LOSSY:
        profile = loaded(cell.profile).profile
        burst = profile.phases.burst
        assert burst is not None
        ends = (int(burst.from_ns * cell.factor), int(burst.to_ns * cell.factor))
        return strengths.lossy(float(cell.laid), list(profile.ordinary), *ends)
    name, _, one_in = cell.laid.partition("~")
    if name in strengths.SMALL:
        return strengths.SMALL[name]
    return strengths.diluted(DEFECTS[name], int(one_in)) if one_in else DEFECTS[name]


# The plan

Seen = Mapping[str, Sequence[str]]
"""Series -> words of its own check so far."""


def stages(seeds: Mapping[str, int], seed: int = 0) -> Iterator[Sequence[tuple[Cell, str]]]:
    """Stage by stage, each with a series that decides whether a cell is tried at all (`` none)."""
    begin = 0
    for chunk in CHUNKS:
        numbers = range(begin, chunk)
        for part in VIRTUAL:
            upto = [seed * 1_000_000 + n + 1 for n in numbers if n < seeds.get(part, 0)]
            for series in _SERIES[part]():
                yield [(Cell(*one, number), before) for number in upto for one, before in series]
        begin = chunk
        if chunk >= max(seeds.values(), default=0):
            return


_One = tuple[tuple[str, str, str, float], str]


def _healthy() -> list[list[_One]]:
    return [[((HEALTHY, path.stem, "-", 1.0), "") for path in sorted(VERIFICATION.glob("*.yaml"))]]


def _full() -> list[list[_One]]:
    return [[((DEFECT, profile_of_defect(one).stem, name, 1.0), "") for name, one in DEFECTS.items() if one.caught_by]]


def _twins() -> list[list[_One]]:
    """What looks suspicious and is right; and the healthy service on profiles that are there for one defect, which may
    hold too little to decide."""
    twins = [((TWIN, profile_of_defect(one).stem, name, 1.0), "") for name, one in DEFECTS.items() if one.healthy]
    own = [((TWIN, path.stem, "-", 1.0), "") for path in sorted((VERIFICATION / "defects").glob("*.yaml"))]
    return [[*twins, *own]]


def _has_longer(profile: str, factor: float) -> bool:
    try:
        longer(loaded(profile).document, factor)
    except ValueError:
        return False
    return True


def _diluted() -> list[list[_One]]:
    """Each strength at the length of the profile, then each at four times as much."""
    made: list[list[_One]] = []
    for factor in (1.0, LONG):
        stronger = ""
        for one_in in ONE_IN:
            stage: list[_One] = []
            for name, defect in strengths.known().items():
                profile = profile_of_defect(defect).stem
                if _has_longer(profile, factor):
                    before = f"{DILUTED}|{profile}|{name}~{stronger}|x{factor:g}" if stronger else ""
                    stage.append(((DILUTED, profile, f"{name}~{one_in}", factor), before))
            made.append(stage)
            stronger = str(one_in)
    return made


def _small() -> list[list[_One]]:
    rows = [(profile_of_check(one.caught_by[0]).stem, name) for name, one in strengths.SMALL.items()]
    return [
        [((SMALL, profile, name, factor), "") for profile, name in rows if _has_longer(profile, factor)]
        for factor in (1.0, LONG)
    ]


def _lossy() -> list[list[_One]]:
    default = profile_of_check(UNMOVED).stem
    return [
        [((LOSSY, default, f"{share:g}", factor), "") for share in SHARES for factor in (1.0, LONG)],
        [((LOSSY, SIZED, f"{share:g}", 1.0), "") for share in (0.0, 0.02)],
    ]


def _lengths() -> list[list[_One]]:
    healthy = [
        ((LENGTH, path.stem, "-", factor), "")
        for path in sorted(VERIFICATION.glob("*.yaml"))
        for factor in LENGTHS
        if _has_longer(path.stem, factor)
    ]
    return [healthy]


_SERIES = {
    HEALTHY: _healthy, DEFECT: _full, TWIN: _twins, DILUTED: _diluted, SMALL: _small, LOSSY: _lossy, LENGTH: _lengths,
}  # fmt: skip


def live_cells(seeds: Mapping[str, int]) -> list[Cell]:
    """One defect a check first, then each healthy situation again and again."""
    of_check: dict[str, str] = {}
    for name, one in DEFECTS.items():
        for check in one.caught_by[:1]:
            of_check.setdefault(check, name)
    profiles = sorted(VERIFICATION.glob("*.yaml"))
    broken = [
        Cell(LIVE_DEFECT, profile_of_defect(DEFECTS[name]).stem, name, 1.0, number)
        for number in range(seeds.get(LIVE_DEFECT, 0))
        for name in of_check.values()
    ]
    healthy = [
        Cell(LIVE_HEALTHY, path.stem, "-", 1.0, number)
        for number in range(seeds.get(LIVE_HEALTHY, 0))
        for path in profiles
    ]
    return broken + healthy


def worth_it(cell: Cell, before: str, seen: Seen) -> bool:
    """Whether a weaker, or a longer, form can tell anything: not below what nobody has seen, nor beyond what everybody
    has."""
    shorter_before = f"{before.rpartition('|x')[0]}|x1"  # the longer form is not tried where this is always seen
    if before and "FAIL" not in (*seen.get(before, ()), *seen.get(shorter_before, ())):
        return False
    if cell.part in (DILUTED, SMALL) and cell.factor != 1:
        shorter = seen.get(f"{cell.part}|{cell.profile}|{cell.laid}|x1", ())
        return not shorter or any(word != "FAIL" for word in shorter)
    return True


def is_asked(cell: Cell, only: Sequence[str]) -> bool:
    """only: parts (`healthy`, `live`), checks or their families, profiles, defects. All of them where it is empty."""
    check = own_check(cell)
    kind = "live" if cell.part in LIVE else "virtual"
    names = {cell.part, kind, check, check.partition(".")[0], cell.profile, cell.laid, cell.laid.partition("~")[0]}
    return not only or any(word in names for word in only)
