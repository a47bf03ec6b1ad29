"""v07.retry_after: a Retry-After that fits the deadline gives one retry, not early; one that does not gives none.

Source: RFC 9110, 10.2.3; the forms that are met in the wild are those of harness/measure/retry_after.py. For each
answer that carried the header, with `a` the instant of the answer:

    seconds, decimals     stated instant a + d
    dates                 d = header - the answer's own Date, each good to a second: the earliest reading is
                          a + d - 1 s, the latest a + d; early means before every reading
    0, past, malformed    no instant is stated: own backoff, never a hot loop

    fits        stated instant + expected service <= deadline   -> exactly one retry, not early, that can end in time
    does not    -> no retry; a typed outcome with its reason, told at once and not slept for

In between (the earliest reading fits, the latest with some room does not) either is right. Dates have a grain of a
second, so at another time scale than 1 they are not judged. Judged by arrivals: a retry is what reached the dependency.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from harness.checks import rules
from harness.checks.context import NS_PER_MS
from harness.checks.registry import CHECKS, Check
from harness.checks.rules import Rule
from harness.checks.rulings import Breach, missing, never, noted
from harness.checks.step_rows import Frame, StepRows, answered, at, ended_ns, frame_of
from harness.checks.verdict import Verdict
from harness.ledger.evidence import Row
from harness.ledger.outcomes import DEPENDENCY_UNAVAILABLE, EXPIRED, FAILED, THROTTLED
from harness.ledger.reader import Trial
from harness.ledger.stalls import WAY_NS
from harness.measure import retry_after
from harness.profile.base import DurationNs, Part
from harness.profile.units import NS_PER_S

NAME = "v07.retry_after"
THROTTLES = frozenset((429, 503))
TYPED = frozenset((THROTTLED, DEPENDENCY_UNAVAILABLE, EXPIRED))
DATES = ("IMF date", "RFC 850 date", "asctime date")
STATED = ("seconds", "decimal seconds", *DATES)
ZERO, PAST, MALFORMED, ABSENT = "zero", "past date", "malformed", "absent"
Least = Annotated[int, Field(ge=0, le=1_000_000, strict=True)]


class Params(Part):
    """early: how much before the stated instant an arrival may be seen (timers). late: how much past the last start
    that can end in time. room: what a value must leave over to be one that surely fits. told_within: longest until an
    infeasible one has its outcome. own_backoff, own_backoff_most: shortest and longest delay where no instant is
    stated; left out: the profile's `retry` with its jitter. expected: service time; left out: the profile's.
    least: answers of each form, inside and beyond the deadline. malformed: different malformed values.
    """

    early: DurationNs = 5 * NS_PER_MS
    late: DurationNs = 25 * NS_PER_MS
    room: DurationNs = 500 * NS_PER_MS
    told_within: DurationNs = 250 * NS_PER_MS
    own_backoff: DurationNs | None = None
    own_backoff_most: DurationNs | None = None
    expected: DurationNs | None = None
    least: Least = 2
    malformed: Least = 3


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer with a Retry-After, or without the one it should have had. place: of its attempt in the step.

    earliest_ns, latest_ns: readings of the instant at which a retry may start. fits: True, False, or None (either is
    right). tokens: whether the run had a retry left for it.
    """

    step: StepRows
    place: int
    form: str
    raw: str
    at_ns: int
    earliest_ns: int
    latest_ns: int
    deadline_ns: int
    expected_ns: int
    fits: bool | None
    tokens: bool

    @property
    def stated(self) -> bool:
        return self.form in STATED

    @property
    def retry(self) -> Row | None:
        later = self.step.attempts[self.place + 1 :]
        return later[0] if later else None

    def says(self, what: str) -> Breach:
        return self.step.id, f"Retry-After: {self.raw or '(none)'}, {what}"


def judge(trial: Trial, params: Params) -> Verdict:
    frame = frame_of(trial)
    withheld = missing(NAME, frame.evidence, "decisions", "arrivals")
    if withheld:
        return withheld
    answers = list(_answers(frame, params))
    notes = _notes(frame)
    found = [
        *_feasible(frame, answers, params),
        *_infeasible(frame, answers, params),
        *_evidence(frame, answers, params),
        *notes,
    ]
    forms = len({answer.form for answer in answers})
    passed = (
        f"{len(answers)} answers with Retry-After in {forms} forms: each that fits its deadline was followed by "
        f"exactly one retry, none early, and each that does not fit by none."
    )
    return rules.verdict(NAME, found, passed)


def form_of(raw: str | None) -> str:
    """The form of a header's value, before it is held against the answer's Date."""
    parsed = retry_after.parse(raw)
    text = (raw or "").strip(" \t")
    if not parsed.usable:
        return MALFORMED if text else ABSENT
    if parsed.kind == "delay":
        return ZERO if parsed.delay_s == 0 else "decimal seconds" if "." in text else "seconds"
    return "asctime date" if "," not in text else "RFC 850 date" if "-" in text else "IMF date"


def _answers(frame: Frame, params: Params) -> Iterator[Answer]:
    for step in frame.steps.values():
        deadline_ns = frame.deadline_of(step)
        repeatable = step.told("operation") != "write" or step.told("idempotency_key") is not None
        if deadline_ns is None or not repeatable:
            continue
        for place, attempt in enumerate(step.attempts):
            if answered(attempt) in THROTTLES and (attempt.get("retry_after") or attempt.get("fault") == "retry_after"):
                answer = _answer(frame, params, step, place, deadline_ns)
                if answer is not None:
                    yield answer


def _answer(frame: Frame, params: Params, step: StepRows, place: int, deadline_ns: int) -> Answer | None:
    attempt = step.attempts[place]
    raw, at_ns = str(attempt.get("retry_after") or ""), ended_ns(attempt)
    form, parsed = form_of(raw), retry_after.parse(raw)
    shortest_ns, longest_ns = _backoff(frame, params)
    earliest, latest = at_ns + shortest_ns, at_ns + longest_ns
    if parsed.kind == "date":
        own = retry_after.parse(attempt.get("date"))
        if own.kind != "date" or frame.scale != 1:
            return None
        delay_s = parsed.at_epoch_s - own.at_epoch_s
        if delay_s > 0:
            earliest, latest = at_ns + (delay_s - 1) * NS_PER_S, at_ns + delay_s * NS_PER_S
        else:
            form = PAST
    elif form not in (ZERO, MALFORMED, ABSENT):
        earliest = latest = at_ns + round(parsed.delay_s * NS_PER_S)
    expected_ns = _expected(frame, params, step)
    fits: bool | None = None
    heard_ns = frame.stalls.latest(at_ns, WAY_NS) - at_ns
    if frame.stalls.between(latest + heard_ns, deadline_ns) >= params.room + expected_ns:
        fits = True
    elif earliest + expected_ns > deadline_ns:
        fits = False
    tokens = _tokens_left(frame, step, at_ns)
    return Answer(step, place, form, raw, at_ns, earliest, latest, deadline_ns, expected_ns, fits, tokens)


def _backoff(frame: Frame, params: Params) -> tuple[int, int]:
    """(shortest, longest) own backoff before a first retry, in ns; a target of its own may have any above 50 ms."""
    retry = frame.profile.capacity.retry if frame.profile.capacity else None
    shortest = int(retry.base * (1 - retry.jitter)) if retry else 50 * NS_PER_MS
    longest = int(retry.most * (1 + retry.jitter)) if retry else NS_PER_S
    return (
        params.own_backoff if params.own_backoff is not None else shortest,
        params.own_backoff_most if params.own_backoff_most is not None else longest,
    )


def _expected(frame: Frame, params: Params, step: StepRows) -> int:
    if params.expected is not None:
        return params.expected
    capacity = frame.profile.capacity
    dependency = capacity.dependencies.get(step.told("dependency") or "") if capacity else None
    if dependency is None:
        return 0
    return dependency.expected if dependency.expected is not None else dependency.service_time


def _tokens_left(frame: Frame, step: StepRows, at_ns: int) -> bool:
    """Whether its run can still have had a retry: tokens at its opening, less the retries that arrived before."""
    run = frame.runs[step.run]
    tokens = run.opened.get("remaining_retry_tokens") if run.opened else None
    if tokens is None:
        return True
    before = sum(1 for other in run.steps for attempt in other.attempts[1:] if at(attempt) <= at_ns)
    return before < int(tokens)


def _feasible(frame: Frame, answers: list[Answer], params: Params) -> list[Rule]:
    between = frame.stalls.between
    fitting = [a for a in answers if a.fits and a.tokens]
    retried = [a for a in answers if a.retry is not None]
    none: list[Breach] = []
    early: list[Breach] = []
    hot: list[Breach] = []
    twice: list[Breach] = []
    overdue: list[Breach] = []
    for a in fitting:
        retry = a.retry
        if retry is None:
            none.append(a.says("fits the deadline and was not retried"))
        elif not a.stated and between(a.latest_ns, at(retry)) > params.room:
            none.append(a.says(f"states no instant, and was slept for {_ms(at(retry) - a.at_ns)}"))
    for a in retried:
        retry = a.retry
        if retry is None:
            continue
        if at(retry) < a.earliest_ns - params.early:
            said = f"retried after {_ms(at(retry) - a.at_ns)} instead of {_ms(a.earliest_ns - a.at_ns)} or more"
            (early if a.stated else hot).append(a.says(said))
        extra = [x for x in a.step.attempts[a.place + 2 :] if at(x) < ended_ns(retry) or answered(retry) < 400]
        if extra:
            twice.append(a.says(f"{1 + len(extra)} retries"))
        if between(a.deadline_ns - a.expected_ns, at(retry)) > params.late:
            overdue.append(a.says(f"retried {_ms(a.deadline_ns - at(retry))} before the deadline"))
    n, add = len(retried), "answers with a Retry-After that fits the deadline"
    return [
        never("feasible", "were not retried, or far too late", none, len(fitting), 1, add, "answers"),
        never("stated instant", "were retried early", early, n, 1, add, "answers"),
        never("no stated instant", "were retried in a hot loop", hot, n, 1, add, "answers"),
        never("feasible", "led to more than one retry", twice, n, 1, add, "answers"),
        never("deadline", "were retried too late to end before the deadline", overdue, n, 1, add, "answers"),
    ]


def _infeasible(frame: Frame, answers: list[Answer], params: Params) -> list[Rule]:
    beyond = [a for a in answers if a.fits is False]
    retried: list[Breach] = []
    slept: list[Breach] = []
    untyped: list[Breach] = []
    for a in beyond:
        end = a.step.end
        if a.retry is not None:
            retried.append(a.says(f"retried after {_ms(at(a.retry) - a.at_ns)}"))
            continue
        if end is None or frame.stalls.between(a.at_ns, at(end)) > params.told_within:
            slept.append(a.says("no outcome" if end is None else f"told after {_ms(at(end) - a.at_ns)}"))
        if end is not None and (a.step.outcome not in _typed(a) or not end.get("reason")):
            untyped.append(a.says(f"ended {a.step.outcome}, reason {end.get('reason') or '(none)'}"))
    n, add = len(beyond), "answers whose Retry-After lies beyond the deadline"
    return [
        never("infeasible", "were retried though the retry cannot end in time", retried, n, 1, add, "answers"),
        never("infeasible", "were slept for instead of answered", slept, n, 1, add, "answers"),
        never("infeasible", "ended without a typed outcome and its reason", untyped, n, 1, add, "answers"),
    ]


def _typed(answer: Answer) -> frozenset[str]:
    """Outcomes that tell it: a 429 is no failure of the dependency, anything else may be told as one."""
    return TYPED if answered(answer.step.attempts[answer.place]) == 429 else TYPED | {FAILED}


def _evidence(frame: Frame, answers: list[Answer], params: Params) -> Iterator[Rule]:
    """Each form inside and beyond the deadline; and those that state nothing."""
    seen: Counter[tuple[str, bool | None]] = Counter((a.form, a.fits) for a in answers)
    forms = STATED if frame.scale == 1 else tuple(form for form in STATED if form not in DATES)
    for form in forms:
        for fits, where in ((True, "inside"), (False, "beyond")):
            add = f"answers with a Retry-After in {form} {where} the deadline (fault `retry_after`)"
            yield rules.enough(
                "evidence", f"{form} {where} the deadline", seen[form, fits], params.least, "answers", add
            )
    nothing = (ZERO, PAST, MALFORMED) if frame.scale == 1 else (ZERO, MALFORMED)
    for form in nothing:
        add = f"answers whose Retry-After is {form}, with time to retry"
        yield rules.enough("evidence", form, seen[form, True], params.least, "answers", add)
    values = defaultdict(set)
    for a in answers:
        values[a.form].add(a.raw)
    add = "more malformed values, such as `-10`, `20, 30`, `abc`"
    yield rules.enough(
        "evidence", "different malformed values", len(values[MALFORMED]), params.malformed, "values", add
    )


def _notes(frame: Frame) -> Iterator[Rule]:
    dates = [a for a in frame.evidence.arrivals if retry_after.parse(a.get("retry_after")).kind == "date"]
    if dates and frame.scale != 1:
        yield noted("dates", f"{len(dates)} answers not judged: a date is good to one second, and the scale is not 1")
    undated = sum(1 for a in dates if retry_after.parse(a.get("date")).kind != "date")
    if undated and frame.scale == 1:
        yield noted("dates", f"{undated} answers not judged: the answer has no Date of its own")


def _ms(ns: int) -> str:
    return f"{ns / NS_PER_MS:.0f} ms"


CHECKS[NAME] = Check(
    NAME,
    "a Retry-After inside the deadline gives exactly one retry, not early; one beyond it gives none",
    "arrivals with every form of Retry-After inside and beyond the deadline; the controller's decisions",
    Params,
    judge,
)
