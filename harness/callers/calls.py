"""From single arrivals to logical calls: which attempts belong together, and how many layers repeated them.

Two steps, the surest evidence first.

    run    attempts of one layer     amz-sdk-invocation-id; x-stainless-retry-count, Overload-Attempt or
                                     x-envoy-attempt-count, counting up; else one arrival
    call   runs of one logical call  Overload-Call; one idempotency key; else the same content (who, what, body), when
                                     the run before had failed, was over, and was at most `within` ago

How many layers that makes is read in layers.py. What rests on content and time is inferred, and every figure made of it
says so.

Two calls of the same content at one time are not confused with retries: a run joins a call only when all that is known
of it had ended before. Where calls of one content come side by side and some begin after others have failed, nobody can
say which attempt is whose: they are joined with nothing, and are evidence of nothing that needs to know (`crowded`).
Nor is a poll a retry, which comes at its own steady pace whether it is served or not.
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
_COUNTS_FROM_ONE = {
    "sdk_request": re.compile(r"attempt=(\d{1,6})", re.ASCII),
    "attempt": re.compile(r"(?:^|\.)(\d{1,6})$", re.ASCII),
    "envoy_attempt": re.compile(r"^(\d{1,6})$", re.ASCII),
}
LEAST_PACES, LEAST_PACE_NS = 3, 200_000_000
_HANG_UP_NS = 50_000_000
"""So late may it be known that a caller has hung up, when its next attempt is here already."""


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
    """One thing that the caller wanted done. by: what the grouping rests on, weakest last link.

    crowded: others of its content were under way beside it, so that it may be a part of a call only.
    """

    runs: tuple[Run, ...]
    by: str
    crowded: bool = False

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
    groups = sorted(_by_headers(_runs(work)), key=lambda group: (group[0][0].first.at_ns, group[0][0].first.id))
    paces = _paces(work)
    crowds = _crowds(groups, within_ns, paces)
    calls: list[list[Run]] = []
    ends: list[Arrival] = []
    by: list[str] = []
    last: dict[tuple[str, ...], int] = {}
    for runs, how in groups:
        content = runs[0].first.content
        place = last.get(content)
        named = how == BY_CALL or (place is not None and by[place] == BY_CALL) or content in crowds
        if place is not None and not named and _follows(ends[place], runs, within_ns, paces.get(content)):
            calls[place] += runs
            ends[place] = max(ends[place], _last(runs), key=lambda a: a.at_ns)
            by[place] = BY_CONTENT
        else:
            last[content] = len(calls)
            calls.append(list(runs))
            ends.append(_last(runs))
            by.append(how)
    return [
        Call(tuple(runs), how, runs[0].first.content in crowds and how not in (BY_CALL, BY_KEY))
        for runs, how in zip(calls, by, strict=True)
    ]


def _crowds(
    groups: Iterable[tuple[list[Run], str]], within_ns: int, paces: dict[tuple[str, ...], int]
) -> set[tuple[str, ...]]:
    """Contents of which some calls were under way side by side, and some began when another had failed: those may be
    its next attempts, or calls of their own."""
    before: dict[tuple[str, ...], list[Arrival]] = {}
    beside: set[tuple[str, ...]] = set()
    after: set[tuple[str, ...]] = set()
    until: dict[tuple[str, ...], int] = {}
    groups = [(runs, how) for runs, how in groups if how != BY_CALL]
    for runs, _ in groups:
        content, at_ns = runs[0].first.content, runs[0].first.at_ns
        if at_ns < until.get(content, -1):
            beside.add(content)
        if content not in after:
            awaited = [end for end in before.get(content, ()) if at_ns <= _awaited_until_ns(end, within_ns)]
            if any(_follows(end, runs, within_ns, paces.get(content)) for end in awaited):
                after.add(content)
            before[content] = [*awaited, _last(runs)]
        until[content] = max(until.get(content, -1), *(_surely_over_ns(run.last) for run in runs))
    return (beside | _interleaved(attempt for runs, _ in groups for run in runs for attempt in run.attempts)) & after


def _interleaved(arrivals: Iterable[Arrival]) -> set[tuple[str, ...]]:
    """Contents that came over two connections in turn: who does one thing after another goes on with the one it has."""
    spans: dict[tuple[str, ...], dict[int, list[int]]] = {}
    for arrival in arrivals:
        if arrival.connection:
            spans.setdefault(arrival.content, {}).setdefault(arrival.connection, []).append(arrival.at_ns)
    return {
        content
        for content, found in spans.items()
        if any(
            begin < end
            for (_, end), (begin, _) in itertools.pairwise(
                sorted((min(at), max(at)) for at in found.values() if len(at) > 1)
            )
        )
    }


def _surely_over_ns(attempt: Arrival) -> int:
    return attempt.over_ns - (_HANG_UP_NS if attempt.hung_up else 0)


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
    """Retries that the layer which sent it says it has made before this attempt."""
    raw = arrival.said.get("retry_count")
    if raw is not None and raw.isascii() and raw.isdigit() and len(raw) < 7:
        return int(raw)
    for name, form in _COUNTS_FROM_ONE.items():
        told = form.search(arrival.said.get(name, ""))
        if told and int(told[1]):
            return int(told[1]) - 1
    return None


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


def _last(runs: Iterable[Run]) -> Arrival:
    return max((run.last for run in runs), key=lambda a: a.at_ns)


def _follows(last: Arrival, runs: list[Run], within_ns: int, pace_ns: int | None) -> bool:
    first = runs[0].first
    if not _ended(last, first) or (pace_ns is not None and _alike(first.at_ns - last.at_ns, pace_ns)):
        return False
    return first.at_ns <= _awaited_until_ns(last, within_ns)


def _awaited_until_ns(last: Arrival, within_ns: int) -> int:
    """When a further attempt is one of this call's no more; at once where it needs none."""
    if not last.failed:
        return -1
    stated = stated_waits_ns(last)
    return last.over_ns + within_ns + (min(max(stated), 3600 * NS_PER_S) if stated else 0)


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
