"""The processes that a command has started, from /proc: who they are, what they hold, and whether they are gone."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

STUB, LIVE, PARENT, WORKER, OTHER = "stub", "live", "parent", "worker", "other"
LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class Process:
    """born: in clock ticks since the machine started; with it a number that is used again is another process."""

    pid: int
    parent: int
    born: int
    command: str

    @property
    def alive(self) -> bool:
        """Neither gone nor a body that nobody has buried yet."""
        found = _read(self.pid)
        return found is not None and found.born == self.born

    @property
    def rss_mib(self) -> float:
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_bytes().split()[1])
        except (OSError, IndexError):
            return 0.0
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _read(pid: int, command: bool = True) -> Process | None:
    """None for one that is gone, or dead and not yet buried. command: whether its command line is wanted, too."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        words = Path(f"/proc/{pid}/cmdline").read_bytes() if command else b""
    except OSError:
        return None
    state, parent, *rest = stat.rpartition(")")[2].split()
    said = words.replace(b"\0", b" ").decode(errors="replace").strip()
    return None if state in "ZX" else Process(pid, int(parent), int(rest[17]), said)


def tree_of(pid: int) -> list[Process]:
    """The process and all that descend from it, as they are now; itself first."""
    numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    everybody = [one for number in numbers if (one := _read(number, command=False)) is not None]
    found = [one for one in everybody if one.pid == pid]
    for one in found:
        found += [child for child in everybody if child.parent == one.pid]
    whole = [_read(one.pid) for one in found]
    return [one for one, bare in zip(whole, found, strict=True) if one is not None and one.born == bare.born]


def by_kind(tree: Sequence[Process]) -> dict[str, list[Process]]:
    """Of a command of overload and all that descend from it (`tree_of`): the command itself, stubs, live drivers (of
    several workers: their master), workers of those, and others, such as the processes of a pool."""
    found: dict[str, list[Process]] = {}
    live = {one.pid for one in tree if "-m harness.live" in one.command}
    for place, one in enumerate(tree):
        if not place:
            kind = PARENT
        elif "-m stub_service" in one.command:
            kind = STUB
        elif one.pid in live:
            kind = WORKER if one.parent in live else LIVE
        else:
            kind = OTHER
        found.setdefault(kind, []).append(one)
    return found


def gone_within(processes: Iterable[Process], seconds: float) -> list[Process]:
    """Those that are still there when the time is over; none as soon as all are gone."""
    until = time.monotonic() + seconds
    left = [one for one in processes if one.alive]
    while left and time.monotonic() < until:
        time.sleep(LOOK_S)
        left = [one for one in left if one.alive]
    return left
