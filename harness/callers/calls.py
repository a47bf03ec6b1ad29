"""From single arrivals to logical calls: which attempts belong together, and how many layers repeated them.

Two steps, the surest evidence first.

    run    attempts of one layer     amz-sdk-invocation-id; x-stainless-retry-count, counting up; else one arrival
    call   runs of one logical call  Overload-Call; one idempotency key; else the same content (who, what, body), when
                                     the run before had failed, was over, and was at most `within` ago

A retry count that begins again at 0 for the same call is a second layer: the one above gave the call to its SDK once
more. Where no header counts, the delays are read: an inner layer shows as a rhythm that repeats. What rests on content,
time or rhythm is inferred, and every figure made of it says so.

Two calls of the same content at one time are not confused with retries: a run joins a call only when all that is known
of it had ended before. Nor is a poll, which comes at its own steady pace whether it is served or not.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.callers.log import Arrival
from harness.measure import retry_after
from harness.profile.units import NS_PER_S

BY_CALL, BY_KEY, BY_SDK, BY_CONTENT, ALONE = "call header", "key", "SDK's count", "content and time", "one attempt"
_SDK_ATTEMPT = re.compile(r"attempt=(\d{1,6})", re.ASCII)
LEAST_PACES, LEAST_PACE_NS = 3, 200_000_000
_ALIKE_NS, _APART_NS = 100_000_000, 250_000_000
RHYTHM_CALLS = 2
"""So many calls of one rhythm, or so many repeats in one call less one, before delays alone prove a layer."""


@dataclass(frozen=True, slots=True)
class Run:
    """Attempts of one layer, in order. counted: headers say so."""

    attempts: tuple[Arrival, ...]
    counted: bool

    @property
    def first(self) -> Arrival:
        return self.attempts[0]

    @property
    def last(self) -> Arrival:
        return self.attempts[-1]


@dataclass(frozen=True, slots=True)
class Call:
    """One thing that the caller wanted done. by: what the grouping rests on, weakest last link."""

    runs: tuple[Run, ...]
    by: str

    @property
    def attempts(self) -> tuple[Arrival, ...]:
        return tuple(sorted((a for run in self.runs for a in run.attempts), key=lambda a: a.at_ns))

    @property
    def id(self) -> str:
        return self.runs[0].first.id

    @property
    def counted(self) -> bool:
        return any(run.counted for run in self.runs)

    @property
    def inferred(self) -> bool:
        return self.by == BY_CONTENT

    @property
    def failed(self) -> bool:
        """It never succeeded."""
        return all(attempt.failed for attempt in self.attempts)

    def pairs(self) -> list[tuple[Arrival, Arrival]]:
        """Each attempt with the next one."""
        attempts = self.attempts
        return list(itertools.pairwise(attempts))

    def gaps_ns(self) -> list[int]:
        """From knowing how an attempt ended to the next one."""
        return [after.at_ns - before.over_ns for before, after in self.pairs()]


def calls_of(arrivals: Sequence[Arrival], within_ns: int) -> list[Call]:
    """All logical calls, by the instant of their first attempt. within_ns: longest pause between runs of one call,
    beyond what the answer before asked for."""
    work = [a for a in arrivals if a.form != "readback"]
    groups = _by_headers(_runs(work))
    paces = _paces(work)
    calls: list[list[Run]] = []
    by: list[str] = []
    last: dict[tuple[str, ...], int] = {}
    for runs, how in sorted(groups, key=lambda group: (group[0][0].first.at_ns, group[0][0].first.id)):
        content = runs[0].first.content
        place = last.get(content)
        named = how == BY_CALL or (place is not None and by[place] == BY_CALL)
        if place is not None and not named and _follows(calls[place], runs, within_ns, paces.get(content)):
            calls[place] += runs
            by[place] = BY_CONTENT
        else:
            last[content] = len(calls)
            calls.append(list(runs))
            by.append(how)
    return [Call(tuple(runs), how) for runs, how in zip(calls, by, strict=True)]


def _runs(arrivals: Sequence[Arrival]) -> list[Run]:
    by_invocation: dict[tuple[str, str], list[Arrival]] = {}
    open_runs: dict[tuple[str, ...], list[list[Arrival]]] = {}
    runs: list[tuple[list[Arrival], bool]] = []
    for arrival in arrivals:
        invocation, count = arrival.said.get("invocation"), _count(arrival)
        if invocation is not None:
            run = by_invocation.setdefault((arrival.identity, invocation), [])
            if not run:
                runs.append((run, True))
            run.append(arrival)
        elif count is not None:
            known = open_runs.setdefault((*arrival.content, arrival.key or ""), [])
            found = next((r for r in known if count and _count(r[-1]) == count - 1 and _ended(r[-1], arrival)), None)
            if found is None:
                found = []
                known.append(found)
                runs.append((found, True))
            found.append(arrival)
        else:
            runs.append(([arrival], False))
    return [Run(tuple(attempts), counted) for attempts, counted in runs]


def _count(arrival: Arrival) -> int | None:
    """Retries that the SDK says it has made before this attempt."""
    raw = arrival.said.get("retry_count")
    if raw is not None and raw.isascii() and raw.isdigit() and len(raw) < 7:
        return int(raw)
    told = _SDK_ATTEMPT.search(arrival.said.get("sdk_request", ""))
    return int(told[1]) - 1 if told and int(told[1]) else None


def _ended(before: Arrival, after: Arrival) -> bool:
    return before.failed and before.over_ns <= after.at_ns and before.done_ns is not None


def _by_headers(runs: Iterable[Run]) -> list[tuple[list[Run], str]]:
    """Runs of one call by what the caller itself says."""
    named: dict[tuple[str, str, str], list[Run]] = {}
    found: list[tuple[list[Run], str]] = []
    for run in runs:
        first = run.first
        call = first.said.get("call")
        name = (BY_CALL, first.identity, call) if call else (BY_KEY, first.identity, first.key) if first.key else None
        if name is None:
            found.append(([run], BY_SDK if run.counted and len(run.attempts) > 1 else ALONE))
            continue
        group = named.setdefault(name, [])
        if not group:
            found.append((group, name[0]))
        group.append(run)
    return found


def _paces(arrivals: Sequence[Arrival]) -> dict[tuple[str, ...], int]:
    """How steadily a content comes when it is served: ns from start to start, where three or more agree."""
    spans: dict[tuple[str, ...], list[int]] = {}
    before: dict[tuple[str, ...], Arrival] = {}
    for arrival in arrivals:
        known = before.get(arrival.content)
        if known is not None and not known.failed:
            spans.setdefault(arrival.content, []).append(arrival.at_ns - known.at_ns)
        before[arrival.content] = arrival
    return {
        content: sorted(found)[len(found) // 2]
        for content, found in spans.items()
        if len(found) >= LEAST_PACES and min(found) >= LEAST_PACE_NS and _alike(min(found), max(found))
    }


def _alike(one_ns: int, other_ns: int) -> bool:
    return abs(one_ns - other_ns) <= max(max(one_ns, other_ns) / 10, 20_000_000)


def _follows(call: list[Run], runs: list[Run], within_ns: int, pace_ns: int | None) -> bool:
    last = max((run.last for run in call), key=lambda a: a.at_ns)
    first = runs[0].first
    if not _ended(last, first) or (pace_ns is not None and _alike(first.at_ns - last.at_ns, pace_ns)):
        return False
    stated = stated_waits_ns(last)
    return first.at_ns - last.over_ns <= within_ns + (min(max(stated), 3600 * NS_PER_S) if stated else 0)


def stated_waits_ns(answered: Arrival) -> list[int]:
    """Every reading of how long the answer asks to wait, in ns; none if it states nothing usable (0 included).

    A date is counted from the answer's own Date; both have a grain of a second, so its earliest reading is a second
    before the difference. Forms in milliseconds are readings beside the standard one, not instead of it.
    """
    if answered.answer not in ("refused", "failed") or answered.hung_up:
        return []
    readings: list[int] = []
    parsed = retry_after.parse(answered.told.get("retry-after"))
    if parsed.kind == "delay" and parsed.delay_s > 0:
        readings.append(round(parsed.delay_s * NS_PER_S))
    elif parsed.kind == "date":
        own = retry_after.parse(answered.told.get("date"))
        ahead_s = parsed.at_epoch_s - own.at_epoch_s if own.kind == "date" else 0
        if ahead_s > 0:
            readings += [(ahead_s - 1) * NS_PER_S, ahead_s * NS_PER_S]
    if readings:
        for name in ("retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after"):
            ms = retry_after.parse_ms(answered.told.get(name), None)
            if ms.kind == "delay" and ms.delay_s > 0:
                readings.append(round(ms.delay_s * NS_PER_S))
    return readings


@dataclass(frozen=True, slots=True)
class Layers:
    """How many layers repeat a call: 0, 1 or 2 (at least). inner, outer: attempts a run, and runs.

    inferred: from delays alone. sure: enough to say so; else it is a suspicion.
    """

    owners: int
    inner: int
    outer: int
    inferred: bool = False
    sure: bool = True


def layers_of(call: Call) -> Layers:
    runs, attempts = call.runs, len(call.attempts)
    longest = max(len(run.attempts) for run in runs)
    if attempts == 1:
        return Layers(0, 1, 1)
    if call.counted:
        owners = 2 if len(runs) > 1 and longest > 1 else 1
        return Layers(owners, longest, len(runs), inferred=call.inferred)
    period = rhythm(call.gaps_ns())
    if period is None:
        return Layers(1, 1, attempts, inferred=call.inferred)
    repeats = attempts // period
    return Layers(2, period, repeats, inferred=True, sure=repeats > RHYTHM_CALLS)


def rhythm(gaps_ns: Sequence[int]) -> int | None:
    """Attempts of an inner run, if the delays repeat like those of a layer within a layer; else None.

    With p attempts a run and m runs there are m * p - 1 delays: the inner ones of each run are alike (within a quarter,
    or 100 ms), and each delay between runs is longer than the first inner one by more than half and 250 ms. Delays that
    only grow have no period; nor have equal ones.
    """
    attempts = len(gaps_ns) + 1
    for period in range(2, attempts // 2 + 1):
        if attempts % period == 0 and _repeats(gaps_ns, period):
            return period
    return None


def _repeats(gaps_ns: Sequence[int], period: int) -> bool:
    inner = [gaps_ns[start : start + period - 1] for start in range(0, len(gaps_ns), period)]
    between = [gaps_ns[place] for place in range(period - 1, len(gaps_ns), period)]
    first = inner[0]
    alike = all(
        abs(a - b) <= max(max(a, b) / 4, _ALIKE_NS) for run in inner[1:] for a, b in zip(first, run, strict=True)
    )
    apart = all(gap - first[0] > max(gap / 2, _APART_NS) for gap in between)
    return alike and apart and not _grows(gaps_ns)


def _grows(gaps_ns: Sequence[int]) -> bool:
    return all(after >= before for before, after in itertools.pairwise(gaps_ns))
