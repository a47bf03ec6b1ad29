"""A long trial, and trials whose processes are killed: memory stays flat, the audit balances, the record stays whole.

    python -m benchmarks.soak --minutes 60                 200 calls/s, an agent that re-plans, faults all along
    python -m benchmarks.soak --kills 100 --seed 1         a hundred processes killed at random moments
    python -m benchmarks.soak --kills 4 --kinds stub,parent

The long trial samples the resident memory of the command, the stub and the live driver every second. Growth is the
slope of its block means, with an interval; FAIL where it is surely more than allowed, INCONCLUSIVE where that cannot
be told. At the end nothing may be lost (`trial.conserved`) or left (`trial.leak_free`).

A kill is SIGKILL to the stub, the live driver, one of its workers, or the command itself, at a moment drawn from the
seed. Afterwards no process may be left; what was written must be whole lines, but for a last one that was cut; and
`overload check` must say INVALID and why, in a sentence. Where the trial had ended by then, it is judged as any other.

Never run beside anything whose figures matter. Exit code 0: all held; 1: something did not; 3: cannot tell.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import orjson

from benchmarks.processes import LIVE, PARENT, STUB, WORKER, Process, by_kind, gone_within, tree_of
from harness.measure.intervals import t_of

KINDS = (STUB, LIVE, PARENT, WORKER)
BLOCKS, CONFIDENCE = 20, 0.95
WARM_UP_S = 660.0
"""Until then the stub fills what it keeps: its last 5,000 runs, and what was committed in the last ten minutes."""
UNSURE = 0.2
"""Of a shorter trial so much is left out, and growth is told, not judged."""
ALLOWED_MIB, ALLOWED_SHARE = 4.0, 0.05
"""How much a process may grow from the end of the warm-up to the end of the trial: the larger of the two."""
SAMPLE_S, END_S, GONE_S = 1.0, 120.0, 10.0
KILLED_TRIAL_S = 4
FAULTS: tuple[dict[str, Any], ...] = (
    {"kind": "error", "status": 503, "from": 1, "to": 9},
    {"kind": "slow", "factor": 5, "from": 18, "to": 25},
    {"kind": "retry_after", "retry_after": "1", "from": 31, "to": 36},
    {"kind": "hang", "operation": "write", "from": 42, "to": 44},
    {"kind": "outage", "from": 50, "to": 53},
)
"""Of every minute, in its seconds."""


def document(duration_s: float, rate: int = 200) -> dict[str, Any]:
    """A shared service with three ordinary tenants and an agent that re-plans, and runs behind a capacity layer whose
    dependency has one fault after another. About `rate` calls a second in all."""
    share = max(1, rate // 10)
    bursts = [
        {"from": f"{at}s", "to": f"{min(at + 8, int(duration_s))}s", "rate": f"{6 * share}/s"}
        for at in range(20, int(duration_s), 60)
    ]
    faults = [
        {
            **fault,
            "dependency": "customer",
            "from": f"{minute + fault['from']}s",
            "to": f"{min(minute + fault['to'], int(duration_s))}s",
        }
        for minute in range(0, int(duration_s) + 1, 60)
        for fault in FAULTS
        if minute + fault["from"] < duration_s
    ]
    limits = {"limit": 40, "queue": 60, "timeout": "500ms"}
    return {
        "name": "soak",
        "duration": f"{int(duration_s * 1000)}ms",
        "drain": "10s",
        "patience": "1s",
        "patience_until": "start",
        "service": {"workers": max(4, rate // 10), "service_time": "50ms",
                    "admission": {"policy": "fair_queues", "queue_per_tenant": 50}},
        "capacity": {
            "ceiling": 80,
            "dependencies": {"customer": {
                "workers": 60, "service_time": "20ms", "reads": limits, "writes": limits,
                "circuit": {"window": "1s", "slow": "400ms", "open_for": "500ms", "lease": "1s"}}},
            "envelope": {"deadline": "3s", "attempts": 12, "parallel": 3, "retry_tokens": 2},
            "retry": {"base": "50ms", "most": "400ms", "jitter": 0.5},
            "recovery": {"from_rate": "50/s", "to_rate": "400/s", "ramp": "1s"},
        },
        "faults": faults,
        "tenants": {
            **{name: {"rate": f"{share}/s"} for name in "ABC"},
            "agent": {"rate": [f"{3 * share}/s", *bursts], "replans": {"calls": 2, "after": "200ms", "rounds": 2}},
            "runs": {"runs": [{"name": "ticket", "rate": f"{share}/s", "batches": [
                [{"dependency": "customer", "tool": "read"}, {"dependency": "customer", "tool": "history"}],
                [{"dependency": "customer", "operation": "write", "tool": "update"}]]}]},
        },
        "ordinary": ["A", "B", "C"],
        "checks": ["trial.conserved", "trial.leak_free", "trial.on_time"],
    }  # fmt: skip


def command(profile: Path, reports: Path, workers: int = 0) -> list[str]:
    more = ["--workers", str(workers)] if workers else []
    return [sys.executable, "-m", "harness", "run", str(profile), "--reports", str(reports), *more]


@contextmanager
def started(arguments: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A command in a group of its own, so that a Ctrl-C here is not one there; killed if it is left."""
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(arguments, stdout=output, stderr=output, start_new_session=True)
        try:
            yield child
        finally:
            everybody = tree_of(child.pid)
            for one in everybody:
                if one.alive:
                    os.kill(one.pid, signal.SIGKILL)
            child.wait()


# The long trial


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


def sample(child: subprocess.Popen[bytes], every_s: float = SAMPLE_S) -> dict[str, list[float]]:
    """Resident memory [MiB] of each process while the trial is driven: from when all are there to when one is gone."""
    memory: dict[str, list[float]] = defaultdict(list)
    wanted = {PARENT, STUB, LIVE}
    begun = False
    while child.poll() is None:
        kinds = by_kind(child.pid)
        if wanted <= kinds.keys():
            begun = True
            for kind in wanted:
                memory[kind].append(kinds[kind][0].rss_mib)
        elif begun:
            break
        time.sleep(every_s)
    return memory


def soak(minutes: float, rate: int, reports: Path) -> int:
    path = reports / "soak.yaml"
    path.write_bytes(orjson.dumps(document(minutes * 60, rate)))
    begun = time.monotonic()
    with started(command(path, reports)) as child:
        memory = sample(child)
        code = child.wait(END_S + minutes * 60)
    folder = newest(reports)
    words = verdicts(folder)
    calls = (words.pop("manifest").get("ended") or {}).get("calls", 0)
    print(f"{calls:,} calls in {time.monotonic() - begun:.0f} s; exit code {code}; {folder}")
    for check, (word, sentence) in words.items():
        print(f"  {check:20} {word:12} {sentence}")
    found = [growth(kind, memory[kind]) for kind in sorted(memory)]
    for one in found:
        if one is not None:
            print(
                f"  memory of {one.process:10} {one.word:12} {one.mean_mib:7.1f} MiB; grown by {one.grown_mib:+.2f} "
                f"({one.low_mib:+.2f} to {one.high_mib:+.2f}; allowed {one.allowed_mib:.1f}), {one.samples} samples"
            )
    said = [one.word for one in found if one is not None] + [word for word, _ in words.values()]
    if None in found or not found:
        print("  too short for a slope: give it more minutes")
        said.append("INCONCLUSIVE")
    return 1 if {"FAIL", "INVALID"} & {*said} else 3 if "INCONCLUSIVE" in said else 0


def newest(reports: Path) -> Path | None:
    """The trial's folder; None if none was begun."""
    return max((path for path in reports.iterdir() if path.is_dir()), default=None, key=lambda path: path.name)


def verdicts(folder: Path | None) -> dict[str, Any]:
    """check -> (word, sentence), and the manifest."""
    from harness import trial

    if folder is None:
        return {"manifest": {}, "trial": ("INVALID", "no folder was made")}
    judged = trial.judge(folder, write=False)
    found: dict[str, Any] = {v.check: (v.word.value, v.sentence) for v in judged.verdicts}
    return {"manifest": judged.trial.manifest, **found}


# Kills


@dataclass(frozen=True, slots=True)
class Kill:
    """What came of one. wrong: what ought not to be, one sentence each."""

    kind: str
    at_s: float
    told: str
    wrong: tuple[str, ...]


def kill_once(kind: str, at_s: float, reports: Path) -> Kill:
    """Starts a trial of its own, kills one of its processes, and looks at what is left. at_s: after the first moment at
    which the process is there."""
    reports.mkdir(parents=True, exist_ok=True)
    path = reports / "killed.json.yaml"
    path.write_bytes(orjson.dumps(document(KILLED_TRIAL_S, 100)))
    seen: dict[int, Process] = {}
    with started(command(path, reports, workers=2 if kind == WORKER else 0)) as child:
        _kill(child, kind, at_s, seen)
        try:
            child.wait(END_S)
            wrong = []
        except subprocess.TimeoutExpired:
            wrong = [f"the command did not end within {END_S:.0f} s"]
        left = gone_within(seen.values(), GONE_S)
        wrong += [f"{one.command[-80:]} is left alive" for one in left]
        for one in left:
            os.kill(one.pid, signal.SIGKILL)
    folder = newest(reports)
    told, more = ("nothing was begun", []) if folder is None else what_is_left(folder)
    return Kill(kind, at_s, told, (*wrong, *more))


def _kill(child: subprocess.Popen[bytes], kind: str, at_s: float, seen: dict[int, Process]) -> None:
    """Waits for the process, then for the moment; remembers every process on the way."""
    due: float | None = None
    while child.poll() is None:
        kinds = by_kind(child.pid)
        seen.update({one.pid: one for one in tree_of(child.pid)})
        if due is None and kind in kinds:
            due = time.monotonic() + at_s
        if due is not None and time.monotonic() >= due and kind in kinds:
            os.kill(kinds[kind][0].pid, signal.SIGKILL)
            return
        time.sleep(0.01)


def what_is_left(folder: Path) -> tuple[str, list[str]]:
    """(what `overload check` says, what is wrong with it)."""
    wrong = [f"{path.name}: {said}" for path in sorted(folder.glob("*.jsonl")) if (said := _not_whole(path))]
    done = subprocess.run(
        [sys.executable, "-m", "harness", "check", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=END_S,
    )
    said = done.stdout + done.stderr
    lines = [" ".join(line.split()) for line in said.splitlines()]
    sentence = next((after for line, after in pairwise(lines) if line.startswith("INVALID trial.")), said.strip())
    if "Traceback" in said:
        wrong.append("overload check broke: " + said.strip().splitlines()[-1])
    elif not (folder / "manifest.json").exists():
        return "no manifest yet: nothing was sent", wrong if done.returncode == 2 else [
            *wrong,
            f"code {done.returncode}",
        ]
    elif _completed(folder):
        return f"had ended by then; exit code {done.returncode}", wrong
    elif done.returncode != 4:
        wrong.append(f"overload check gave exit code {done.returncode} where 4 is INVALID")
    return sentence[:200], wrong


def _completed(folder: Path) -> bool:
    ended = orjson.loads((folder / "manifest.json").read_bytes()).get("ended") or {}
    return bool(ended.get("reason") == "completed")


def _not_whole(path: Path) -> str:
    """Why a file of the ledger is not whole; empty if it is. Its last line may be cut."""
    *lines, _last = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            orjson.loads(line)
        except orjson.JSONDecodeError:
            return f"line {number} of {len(lines)} is cut or garbled"
    return ""


def kills(n: int, kinds: Sequence[str], seed: int, reports: Path) -> int:
    rng = Random(seed)
    bad = 0
    for number in range(n):
        kind = kinds[number % len(kinds)]
        at_s = rng.uniform(0.0, KILLED_TRIAL_S + 3.0)
        found = kill_once(kind, at_s, reports / f"kill-{number}")
        bad += bool(found.wrong)
        print(
            f"{number + 1:>4}  {kind:7} at {at_s:5.2f} s  {'; '.join(found.wrong) or 'held'}  [{found.told}]",
            flush=True,
        )
    print(f"{n - bad} of {n} held (seed {seed})")
    return 1 if bad else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="length of the long trial (%(default)s)")
    parser.add_argument("--rate", type=int, default=200, help="calls a second, re-plans included (%(default)s)")
    parser.add_argument("--kills", type=int, default=0, help="instead: so many trials with a process killed")
    parser.add_argument("--kinds", default=",".join(KINDS), help="which processes (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reports", type=Path, default=None, help="keep the trials here (default: nowhere)")
    given = parser.parse_args()
    kinds = [kind for kind in given.kinds.split(",") if kind]
    if given.minutes <= 0 or given.rate < 10 or given.kills < 0 or not kinds or not {*kinds} <= {*KINDS}:
        parser.error(f"--minutes above 0, --rate from 10 on, --kinds of {', '.join(KINDS)}")
    with tempfile.TemporaryDirectory() as folder:
        reports = given.reports or Path(folder)
        reports.mkdir(parents=True, exist_ok=True)
        if given.kills:
            return kills(given.kills, kinds, given.seed, reports)
        return soak(given.minutes, given.rate, reports)


if __name__ == "__main__":
    sys.exit(main())
