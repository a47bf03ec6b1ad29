"""What a trial says of the processes that drove it, when several did: which were lost, which came though they were not
planned for, and how well clocks were known.

Read from the manifest, which anybody may have edited: what cannot be read is a contradiction, never a reason to pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from harness.ledger.contradictions import Contradiction
from harness.ledger.reader import Trial

MOST_CHARS = 200


@dataclass(frozen=True, slots=True)
class ClockError:
    """error_ns: how far a worker's instants may be off those of the master, at most. calls: rows of its."""

    worker: str
    error_ns: int
    calls: int


def lost_workers(trial: Trial) -> Iterator[Contradiction]:
    """A worker that went away took calls along: what it had shipped is whole, the rest is unaccounted for."""
    told = (trial.manifest.get("ended") or {}).get("workers")
    if told is None:
        return
    lost = told.get("lost") if isinstance(told, dict) else None
    if not isinstance(lost, list):
        yield Contradiction("every worker to the end", "the manifest does not say which workers were lost", 1)
        return
    for one in lost:
        yield Contradiction("every worker to the end", _loss(one if isinstance(one, dict) else {}), 1)


def _loss(one: dict[str, Any]) -> str:
    name, why = (str(one.get(key, "of no name"))[:MOST_CHARS] for key in ("name", "why"))
    at_ns, calls, unaccounted = (one.get(key) for key in ("at_ns", "calls", "unaccounted"))
    when = f" at {at_ns / 1e9:.1f} s" if isinstance(at_ns, int) else ""
    kept = f": the {calls:,} calls that it had shipped are in the record" if isinstance(calls, int) else ""
    gone = f", {unaccounted:,} that were due are unaccounted for" if isinstance(unaccounted, int) else ""
    return f"worker {name} was lost{when} ({why}){kept}{gone}"


def late_workers(trial: Trial) -> Iterator[Contradiction]:
    """A worker that joined when the trial had all: somebody thinks of this trial otherwise than it was planned."""
    told = (trial.manifest.get("ended") or {}).get("workers")
    late = told.get("late", []) if isinstance(told, dict) else []
    if not isinstance(late, list):
        yield Contradiction("no worker but those planned for", "the manifest does not say which workers came late", 1)
    elif late:
        expected = told.get("expected") if isinstance(told, dict) else None
        yield Contradiction("no worker but those planned for", _lateness(late, expected), len(late))


def _lateness(late: list[Any], expected: object) -> str:
    first = late[0] if isinstance(late[0], dict) else {}
    name, at_ns = str(first.get("name", "of no name"))[:MOST_CHARS], first.get("at_ns")
    when = f"at {at_ns / 1e9:.1f} s" if isinstance(at_ns, int) else "before it began"
    others = f", and {len(late) - 1} more" if len(late) > 1 else ""
    planned, wanted = (expected, expected + len(late)) if isinstance(expected, int) else ("fewer", "more")
    return (
        f"worker {name} joined {when}{others}, and the trial was planned for {planned} and had them "
        f"(ask for {wanted} workers in all, or start no more)"
    )


def clock_errors(trial: Trial) -> list[ClockError]:
    """Of the workers on other machines than the master."""
    workers = trial.manifest.get("workers")
    found = []
    for one in workers if isinstance(workers, list) else []:
        error_ns = one.get("clock_error_ns") if isinstance(one, dict) else None
        if isinstance(error_ns, int) and error_ns:
            calls = one.get("calls")
            name = str(one.get("name", ""))[:MOST_CHARS]
            found.append(ClockError(name, error_ns, calls if isinstance(calls, int) else 0))
    return found
