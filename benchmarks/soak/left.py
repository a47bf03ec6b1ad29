"""What a command whose process was killed has left: files, the word of `overload check`, and whether that is right."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson

from benchmarks.soak.scenes import OVERLOAD
from harness.cli.judge import MANIFEST as STAND_IN
from harness.ledger.reader import ARRIVALS, CALLS, MANIFEST
from harness.profile.units import parse_duration

CHECK_S = 120.0
BAD_INPUT, INVALID = 2, 4
BROKEN = ("Traceback", "a bug of overload", "the check itself broke")
REASONS = ("the trial has no end", "the trial did not complete", "was lost", "was killed or still runs")
"""Why a record that does not go to its end is INVALID, whatever else is wrong with it."""


@dataclass(frozen=True, slots=True)
class Left:
    """A folder of evidence. begun: something may have been sent. whole: it says that it ran to its end. told: by
    `overload check`, or `judge` of a stand-in, with its exit code. wrong: what ought not to be."""

    folder: Path
    begun: bool
    whole: bool
    code: int
    told: str
    wrong: tuple[str, ...]


def left_in(folder: Path) -> list[Left]:
    """Of each folder of evidence, in order."""
    names = (MANIFEST, CALLS, STAND_IN, ARRIVALS)
    return [_left(one) for one in sorted({path.parent for name in names for path in folder.rglob(name)})]


def _left(folder: Path) -> Left:
    stands_in = not (folder / CALLS).exists()
    asked = [*OVERLOAD, "judge" if stands_in else "check", str(folder)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=CHECK_S)
    said = done.stdout + done.stderr
    wrong = [f"{path.name}: {why}" for path in sorted(folder.glob("*.jsonl")) if (why := not_whole(path))]
    wrong += [f"{asked[-2]} broke: {said.strip().splitlines()[-1][:200]}" for word in BROKEN if word in said][:1]
    document = _document(folder / (STAND_IN if stands_in else MANIFEST))
    told = "no manifest yet: nothing was sent" if document is None else _sentence(said)
    whole = document is not None and (document["ended_ns"] is not None if stands_in else _completed(document))
    if document is not None and not whole and not any(reason in said for reason in REASONS):
        wrong.append(f"nothing is said of its having no end: {told}")
    return Left(folder, document is not None, whole, done.returncode, told, tuple(wrong))


def _document(path: Path) -> dict[str, Any] | None:
    """None if there is none: it is written whole, or not at all."""
    return orjson.loads(path.read_bytes()) if path.exists() else None


def _completed(manifest: dict[str, Any]) -> bool:
    ended = manifest.get("ended") or {}
    return bool(ended.get("reason") == "completed") and not (ended.get("workers") or {}).get("lost")


def _sentence(said: str) -> str:
    """Why it has no end, or else is INVALID, in its own words; else its first line."""
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
    found = [
        f"{line}: {after}" for line, after in pairwise(lines) if line.startswith(("INVALID trial.", "INVALID call"))
    ]
    found.sort(key=lambda text: not any(reason in text for reason in REASONS))
    return next(iter(found), lines[0] if lines else "nothing")[:200]


def not_whole(path: Path) -> str:
    """Why a file of the ledger is not whole; empty if it is. Its last line may be cut."""
    *lines, _last = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            orjson.loads(line)
        except orjson.JSONDecodeError:
            return f"line {number} of {len(lines)} is cut or garbled"
    return ""


def duration_s(folder: Path) -> float:
    """From when a trial's manifest is there to when it can have ended, at the earliest."""
    manifest = _document(folder / MANIFEST)
    if manifest is None:
        return 0.0
    scaled = parse_duration(manifest["profile"]["duration"]) * manifest.get("time_scale", 1.0)
    return float(scaled) / 1e9


def wrong_in(one: Left, concerned: bool, too_early: bool) -> Iterator[str]:
    """concerned: the process that was killed worked on it. too_early: it was killed before that could have ended."""
    name = one.folder.name
    yield from (f"{name}: {why}" for why in one.wrong)
    if not concerned:
        if not one.whole:
            yield f"{name} is another trial than the one that was hit, and did not end: {one.told}"
    elif one.whole:
        if too_early:
            yield f"{name} says that it ran to its end, and a process was killed before that"
    elif one.code != (INVALID if one.begun else BAD_INPUT):
        yield f"{name}: exit code {one.code} where it is INVALID ({INVALID}): {one.told}"
