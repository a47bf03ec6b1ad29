"""What a scenario is: pure data, read by the machine (machine.py) and by whoever judges what arrived.

A scenario has a script that each call lives through by itself (a refusal, then success), and windows of time that all
calls share (an outage from 2 s to 5 s). A window that is open decides; else the script does; else the call is served.
Time counts from the first arrival, so that a caller may take as long as it likes to start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["served", "refused", "failed", "reset", "hang"]
SERVED, REFUSED, FAILED, RESET, HANG = "served", "refused", "failed", "reset", "hang"

NS_PER_S = 1_000_000_000
FOREVER_NS = 1 << 62
LEAST_HOLD_NS = 50_000_000
"""How long every answer takes at least, as real ones do: calls that a caller makes side by side are then seen side by
side, and are not taken for attempts of one."""


@dataclass(frozen=True, slots=True)
class Answer:
    """headers: as they are sent, but for dates to be made then, such as `{date+2}` (dependency/faults.py).

    retry_after_s: told in the body only. code: the provider's own name of the error; empty: the usual one.
    commits: the work is done, and its effect kept, though the answer does not say so. hold_ns: how long the answer is
    held; of a `hang`, until the connection is closed without one.
    """

    kind: Kind = "served"
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    retry_after_s: float | None = None
    code: str = ""
    commits: bool = False
    hold_ns: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """[from_ns, to_ns) since the first arrival. every: of the arrivals in it each n-th gets `answer`.

    probes: half-open instead: so many requests are let through at a time, and all others get `answer`, until `recover`
    of them were served; then the window closes for good.
    """

    from_ns: int
    to_ns: int
    answer: Answer
    every: int = 1
    probes: int = 0
    recover: int = 0


@dataclass(frozen=True, slots=True)
class Scenario:
    """script: a call's first, second, ... answer. lasting: the last of them is repeated for ever.

    judges: checks that this scenario is made to decide; others are judged where there happens to be evidence.
    """

    name: str
    about: str
    judges: tuple[str, ...] = ()
    script: tuple[Answer, ...] = ()
    lasting: bool = False
    windows: tuple[Window, ...] = ()
