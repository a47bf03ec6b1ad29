"""Kills: SIGKILL to one process of a command, at a moment drawn from a seed, and a look at what is left.

Whom (benchmarks/soak/scenes.py): the stub, the live driver, the command itself; with two workers also each of them and
their master; the same of `overload verify`; the stand-ins of `serve` and `judge`; a pool of processes. When: while it
starts, while calls are under way, and while the record and the reports are written.

Afterwards no process may be left; what was written must be whole lines, but for a last one that was cut; `overload
check` must say INVALID and why, or what it says of any other where all had ended by then; and a command that lives must
end by itself, with a sentence. Nothing here is judged by how long it takes, so several may run at a time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from benchmarks.processes import LIVE, PARENT, Process, by_kind, gone_within, tree_of
from benchmarks.soak.left import BAD_INPUT, BROKEN, INVALID, Left, duration_s, left_in, wrong_in
from benchmarks.soak.scenes import DRIVEN, END, KINDS, START, Kind, Started, started
from harness.ledger.reader import ARRIVALS, CALLS, MANIFEST

END_S, GONE_S, LOOK_S = 120.0, 10.0, 0.02
HELD, NOBODY = "held", "nobody was killed: it had ended before"


@dataclass(frozen=True, slots=True)
class Kill:
    """What came of one. told: of what is left. wrong: what ought not to be, one sentence each."""

    kind: str
    moment: str
    at_s: float
    killed: bool
    told: str
    wrong: tuple[str, ...]


@dataclass(slots=True)
class Watch:
    """A command from outside: every process that it had, and when each sign was first seen."""

    folder: Path
    processes: dict[int, Process] = field(default_factory=dict)
    since: dict[str, float] = field(default_factory=dict)
    manifests: dict[Path, float] = field(default_factory=dict)

    def look(self, child: Started, victim: str) -> dict[str, list[Process]]:
        """Its processes by kind."""
        now = time.monotonic()
        tree = tree_of(child.pid)
        kinds = by_kind(tree)
        self.processes.update({one.pid: one for one in tree})
        for path in self.folder.rglob(MANIFEST):
            self.manifests.setdefault(path.parent, now)
        rows = any(path.stat().st_size for name in (CALLS, ARRIVALS) for path in self.folder.rglob(name))
        signs = {START: victim in kinds, DRIVEN: rows, "live": LIVE in kinds}
        signs[END] = rows and "live" in self.since and LIVE not in kinds
        for sign, seen in signs.items():
            if seen:
                self.since.setdefault(sign, now)
        return kinds


def kill_once(name: str, rng: Random, folder: Path) -> Kill:
    """Starts a command of its own, kills one of its processes, and looks at what is left."""
    kind = KINDS[name]
    sign, from_s, to_s = rng.choice(kind.moments)
    at_s, chosen = rng.uniform(from_s, to_s), rng.random()
    folder.mkdir(parents=True, exist_ok=True)
    watch = Watch(folder)
    with started(kind.arguments(folder)) as child:
        hit = _kill(child, kind, sign, at_s, chosen, watch)
        killed_at = time.monotonic()
        wrong = list(_ended(child, kind, hit))
        left = gone_within(watch.processes.values(), GONE_S)
        wrong += [f"{one.command[-80:]} is left alive" for one in left]
        for one in left:
            with suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)
        code, said = child.returncode, child.said
    found = left_in(folder)
    if hit is not None:
        wrong += _wrong(found, hit, kind, killed_at, watch)
        wrong += _wrong_of_command(code, said, found, kind)
    return Kill(name, sign, at_s, hit is not None, _told(found, said), tuple(wrong))


def _kill(child: Started, kind: Kind, sign: str, at_s: float, chosen: float, watch: Watch) -> Process | None:
    """Waits for the moment; whom it killed. chosen: which of several, from 0 to 1."""
    while child.poll() is None:
        victims = watch.look(child, kind.victim).get(kind.victim, [])
        due = watch.since.get(sign)
        if due is not None and time.monotonic() >= due + at_s and victims:
            victim = victims[int(chosen * len(victims))]
            with suppress(ProcessLookupError):
                os.kill(victim.pid, signal.SIGKILL)
                return victim
        kind.each(child)
        time.sleep(LOOK_S)
    return None


def _ended(child: Started, kind: Kind, hit: Process | None) -> list[str]:
    try:
        child.wait(END_S)
    except subprocess.TimeoutExpired:
        return [f"the command did not end within {END_S:.0f} s"]
    return []


def _wrong(found: Sequence[Left], hit: Process, kind: Kind, killed_at: float, watch: Watch) -> list[str]:
    wrong: list[str] = []
    for one in found:
        seen = watch.manifests.get(one.folder)
        too_early = seen is not None and killed_at < seen + duration_s(one.folder)
        wrong += wrong_in(one, kind.victim == PARENT or str(one.folder) in hit.command, too_early)
    return wrong


def _wrong_of_command(code: int, said: str, found: Sequence[Left], kind: Kind) -> list[str]:
    """Of a command that was not killed itself: it says INVALID where a trial is not whole, and never breaks."""
    wrong = [f"the command broke: {said.strip().splitlines()[-1][:200]}" for word in BROKEN if word in said][:1]
    if kind.victim != PARENT and not all(one.whole for one in found) and code != INVALID:
        wrong.append(f"the command ended with exit code {code} where a trial is INVALID ({INVALID})")
    if kind.victim != PARENT and code == BAD_INPUT:
        wrong.append(f"the command says that its input was bad: {said.strip()[-200:]}")
    return wrong


def _told(found: Sequence[Left], said: str) -> str:
    if not found:
        return f"nothing is on record; the command said: {' '.join(said.split())[-120:]}"
    unfinished = [one for one in found if not one.whole]
    return unfinished[0].told if unfinished else "had ended by then"


def kills(n: int, kinds: Sequence[str], seed: int, jobs: int, reports: Path) -> int:
    """Kills n processes, and tells of each. Where one had ended before its moment, another is drawn."""
    done: Counter[tuple[str, str]] = Counter()
    bad = 0

    def one(number: int) -> Kill:
        name = kinds[number % len(kinds)]
        for again in range(5):
            found = kill_once(name, Random(f"{seed}-{number}-{again}"), reports / f"kill-{number}-{again}")
            if found.killed or found.wrong:
                break
        return found

    with ThreadPoolExecutor(jobs) as pool:
        for number, found in enumerate(pool.map(one, range(n)), 1):
            bad += bool(found.wrong)
            done[found.kind, found.moment] += found.killed
            said = "; ".join(found.wrong) or (HELD if found.killed else NOBODY)
            print(
                f"{number:>4}  {found.kind:17} {found.moment:6} +{found.at_s:4.2f} s  {said}  [{found.told}]",
                flush=True,
            )
    for name in dict.fromkeys(kinds):
        each = ", ".join(f"{done[name, moment]} {moment}" for moment in (START, DRIVEN, END) if done[name, moment])
        print(f"  {name:17} {each or 'nobody'}")
    print(f"{sum(done.values())} killed, {bad} of {n} did not hold (seed {seed})")
    return 1 if bad else 0
