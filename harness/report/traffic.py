"""Where the calls of a replay came from: the account of the recording that lies in a trial's folder.

`recorded.json` is written by `overload replay`; a trial without recorded traffic has none, and a damaged one is said to
be damaged, once. Broken lines were cut and escaped by their reader, and are made safe again here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from harness.ledger.reader import Trial
from harness.report.text import clean, count

RECORDED = "recorded.json"
_STEPS = (
    ("lines", "lines read"),
    ("aside", "never sent"),
    ("broken_lines", "broken"),
    ("without_tenant", "naming no tenant"),
    ("outside", "outside the window"),
    ("kept", "kept"),
    ("folded", "folded into the rest"),
    ("amplified", "added by amplifying"),
    ("runaway", "added by the runaway"),
    ("planned", "planned"),
)


@dataclass(frozen=True, slots=True)
class Traffic:
    """steps: (what, how many), in the order of reading. reasons: why lines were broken. samples: some, safe to show."""

    steps: tuple[tuple[str, int], ...]
    reasons: tuple[tuple[str, int], ...]
    samples: tuple[str, ...]
    document: dict[str, Any] | None
    fault: str = ""

    def sentence(self) -> str:
        return (
            self.fault
            or "Recorded traffic: " + ", ".join(f"{count(number)} {what}" for what, number in self.steps) + "."
        )


def traffic_of(trial: Trial) -> Traffic | None:
    """The account of a replay; None for a trial without recorded traffic."""
    path = trial.folder / RECORDED
    if not path.exists():
        return None
    try:
        document = orjson.loads(path.read_bytes())
        account = document["account"]
        steps = [(what, int(account[key])) for key, what in _STEPS if account.get(key)]
        reasons = [(clean(reason, 100), int(number)) for reason, number in account["broken"].items()]
        samples = [
            f"{clean(s['where'], 200)}: {clean(s['reason'], 100)}: {clean(s['text'])}" for s in account["samples"]
        ]
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
        return Traffic((), (), (), None, f"The account of the recording ({RECORDED}) cannot be read.")
    return Traffic(tuple(steps), tuple(reasons), tuple(samples), document)
