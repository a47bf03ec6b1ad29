"""The checks of a caller by name, and which of them a run is judged by.

A scenario names the checks that it is made to decide: those are always judged, and INCONCLUSIVE when the caller gave
too little to see. The others are judged where there happens to be evidence; what was not judged is listed, never left
out in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from harness.callers import crowds, retries, waits, writes
from harness.callers.log import Log
from harness.callers.parameters import Params
from harness.callers.seen import Seen, seen
from harness.checks.verdict import Verdict, Word
from harness.errors import BadInput


@dataclass(frozen=True, slots=True)
class Check:
    judges: str
    judge: Callable[[Seen], Verdict]


CHECKS: dict[str, Check] = {
    retries.ONE_OWNER: Check("a call is retried by one layer, not by layers within layers", retries.one_owner),
    retries.ATTEMPTS: Check("a call takes a bounded number of attempts", retries.attempts_bounded),
    retries.AMPLIFICATION: Check("attempts over logical calls stay bounded", retries.amplification),
    retries.BUDGET: Check("retries stay a small share of all calls", retries.retry_budget),
    retries.FINAL: Check("what cannot succeed is not tried again", retries.non_retryable),
    waits.KEPT: Check("no attempt comes before Retry-After allows it", waits.retry_after_kept),
    waits.BACKS_OFF: Check("without a usable Retry-After there is a pause, never a hot loop", waits.backs_off),
    waits.JITTERED: Check("retries of many calls do not come back as one wave", waits.jittered),
    writes.IDEMPOTENT: Check(
        "a write that may be done is repeated under its own key, or not at all", writes.idempotent
    ),
    crowds.REPLANS: Check("few calls are new plans after a failure", crowds.replan_share),
    crowds.STORM: Check("an outage does not come back as a storm", crowds.no_storm),
    crowds.HALF_OPEN: Check("a service that is half-open is sent its probes, and no more", crowds.half_open),
}


@dataclass(frozen=True, slots=True)
class Judged:
    """name: of the folder. not_judged: verdicts without enough evidence that nobody had asked for."""

    name: str
    seen: Seen
    verdicts: tuple[Verdict, ...]
    not_judged: tuple[Verdict, ...]


def judge(name: str, log: Log, params: Params, only: Sequence[str] = ()) -> Judged:
    """only: these checks, whatever the scenario names."""
    view = seen(log, params)
    if log.manifest.cut_short:
        return Judged(name, view, (_cut_short(),), ())
    if log.manifest.ended_ns is None:
        return Judged(name, view, (_no_end(),), ())
    asked = list(only) or [check for check in log.manifest.judges if check in CHECKS]
    if not view.work:
        return Judged(name, view, tuple(_nothing_came(check) for check in asked or list(CHECKS)[:1]), ())
    found = {check: _crowds_told(CHECKS[check].judge(view), view) for check in CHECKS if not only or check in only}
    kept = tuple(v for check, v in found.items() if check in asked or v.word is not Word.INCONCLUSIVE)
    rest = tuple(v for check, v in found.items() if check not in asked and v.word is Word.INCONCLUSIVE)
    return Judged(name, view, kept, rest)


_NEED_NO_CALLS = (crowds.REPLANS, crowds.STORM, crowds.HALF_OPEN)


def _crowds_told(verdict: Verdict, view: Seen) -> Verdict:
    """What is missing, if it is missing because calls could not be told apart."""
    if verdict.word is not Word.INCONCLUSIVE or not view.crowded or verdict.check in _NEED_NO_CALLS:
        return verdict
    why = f"{view.crowded} arrivals are of calls with one body side by side, and which is whose attempt nobody can say"
    add = f"a body, an Idempotency-Key or an Overload-Call of its own for each call ({why})"
    return replace(verdict, add=f"{add}; or {verdict.add}" if verdict.add else add)


def known(names: Sequence[str]) -> list[str]:
    """Whole names of checks; `caller.` may be left out. Raises BadInput with what was perhaps meant."""
    found = []
    for name in names:
        whole = name if name.startswith("caller.") else f"caller.{name}"
        if whole not in CHECKS:
            near = get_close_matches(whole, CHECKS, 1, 0.6)
            hint = f": did you mean {near[0]}?" if near else ""
            raise BadInput(f"there is no check '{name}'{hint} (known: {', '.join(CHECKS)})")
        found.append(whole)
    return found


def _cut_short() -> Verdict:
    said = "More arrived than is written down: what came after is not known. Judge a shorter run, or a smaller load."
    return Verdict("caller", Word.INVALID, None, None, "", 0, said)


def _no_end() -> Verdict:
    said = "The stand-in was killed or still runs: its last arrivals are not on record; end it with Ctrl-C, then judge."
    return Verdict("caller", Word.INVALID, None, None, "", 0, said)


def _nothing_came(check: str) -> Verdict:
    said = "Nothing arrived: the caller did not use the URL that it was given, or ended before its first call."
    add = "a caller that reads its base URL from the environment; `overload serve --list` names the variables"
    return Verdict(check, Word.INCONCLUSIVE, None, None, "", 0, said, add=add)
