"""v05.one_retry_owner: retries have one owner, who pays for each of them before it is scheduled.

Attempts are counted by what arrived at the dependencies, whatever their headers say. For a step that fails

    once                    exactly two attempts
    again and again         at most 1 + retry tokens; all retries of a run together at most its tokens
    in a way not retryable  one attempt; so does a write without a key, unless a read-back came between

and all attempts of a step name one owner and one layer, each retry was decided and its token spent before, its delay is
jittered, and no retry goes into an open circuit, past a bulkhead's limit, or beyond the attempts of its run.

Plain calls of a described target are judged by v05_plain_calls.py.

Layers that each retry three times make 3 x 3 x 3 = 27 attempts of one step: Site Reliability Engineering (2016),
chapter 21, "Handling Overload". What a controller says of its own retries is never taken for what arrived.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Annotated

import numpy as np
from pydantic import Field

from harness.checks.capacity_frames import (
    Frame,
    Run,
    Step,
    bulkheads,
    by_bulkhead,
    envelope_limit,
    frame_of,
    in_flight,
    limited,
    may_have_timed_out,
    was_full,
    within,
)
from harness.checks.registry import CHECKS, Check
from harness.checks.rules import Rule, at_most, enough, none_of, verdict, withheld
from harness.checks.v05_histories import (
    Histories,
    histories_of,
    is_open,
    ok,
    open_windows,
    retryable,
)
from harness.checks.v05_plain_calls import judge_plain
from harness.checks.verdict import Finding, Verdict, Word
from harness.ledger.outcomes import CANCELLED
from harness.ledger.reader import Trial
from harness.measure.quantiles import quantile
from harness.profile.base import Count, DurationNs, Part

NAME = "v05.one_retry_owner"
ADD_FAULTS = "give the profile a fault"


class Params(Part):
    """steps: of each kind of failure that must have been seen (once, twice, persistent, not retryable, write without a
    key). runs: that ran out of attempts before tokens, and retries that met a full bulkhead or an open circuit. spread:
    least (p90 - p10) / median of the first delay; +- 50 % of jitter gives 0.8. delays: of one dependency, from how many
    on the spread is judged. in_flight: how long after a circuit opened a retry that was on its way may still arrive.
    settle: a failure so near to its deadline, or to a circuit's opening, need not be retried.
    """

    steps: Count = 10
    runs: Count = 5
    spread: Annotated[float, Field(ge=0, le=2)] = 0.2
    delays: Count = 20
    in_flight: DurationNs = 50_000_000
    settle: DurationNs = 1_000_000_000


def judge(trial: Trial, params: Params) -> Verdict:
    frame = frame_of(trial)
    if not frame.evidence.has_arrivals:
        return withheld(
            NAME, "there are no arrivals, and attempts are counted where they arrive",
            "let the layer under test call the stub's dependencies (`overload stub --dependencies-only`)",
        )  # fmt: skip
    if not frame.bundled and not frame.calls:
        return judge_plain(trial, NAME, params.steps)
    found = histories_of(frame)
    rules = [
        *_too_many(frame, found), *_owners(found), *_not_retried(frame, found, params), *_wrongly_retried(found),
        *_into_open_circuit(frame, found, params), *_decided(frame, found), *_jitter(frame, found, params),
        *_past_limits(frame, found), *_evidence(frame, found, params),
    ]  # fmt: skip
    seen = found.counts()
    passed = (
        f"One failure led to exactly two attempts ({seen['once']} steps), none to more than its tokens allow "
        f"({seen['persistent']} persistent), each retry by one owner, paid before, jittered; "
        f"{seen['not_retryable']} failures that must not be retried were not."
    )
    return verdict(NAME, rules, passed)


def _too_many(frame: Frame, found: Histories) -> list[Rule]:
    """Attempts of a step, retries of a run, arrivals of a run, against what its envelope gave it."""
    rules: list[Rule] = []
    worst: tuple[int, Step, int] | None = None
    for step in found.steps:
        tokens = envelope_limit(frame, frame.runs[frame.root(step.run)], "retry_tokens")
        over = len(step.arrivals) - 1 - (tokens or 0)
        if tokens is not None and over > 0 and (worst is None or len(step.arrivals) > len(worst[1].arrivals)):
            worst = over, step, tokens
    if worst is not None:
        rules.append(_one_step(worst[1], worst[2], len(found.steps)))
    over_tokens, over_attempts, runs = [], [], 0
    for root, tree in frame.trees().items():
        steps = [step for run in tree for step in frame.of_run.get(run, ())]
        tokens, attempts = (envelope_limit(frame, frame.runs[root], name) for name in ("retry_tokens", "attempts"))
        runs += bool(steps)
        if tokens is not None and sum(max(0, len(step.arrivals) - 1) for step in steps) > tokens:
            over_tokens.append(root)
        firsts = sum(bool(step.arrivals) for step in steps)  # too many of these are not a matter of retries
        if attempts is not None and sum(len(step.arrivals) for step in steps) > max(attempts, firsts):
            over_attempts.append(root)
    text = f"{len(over_tokens)} runs retried more than their retry tokens allow, all their steps together"
    rules.append(none_of("runs", "retries beyond the tokens", over_tokens, runs, "runs", text))
    text = f"{len(over_attempts)} runs made more attempts than their envelope has, so retries are not counted"
    rules.append(none_of("runs", "attempts beyond the envelope", over_attempts, runs, "runs", text))
    return rules


def _one_step(step: Step, tokens: int, samples: int) -> Rule:
    layers = list(dict.fromkeys(str(row.get("layer") or "an unnamed layer") for row in step.arrivals))
    by = f" by {len(layers)} layers ({', '.join(layers)})" if len(layers) > 1 else f" by {layers[0]}"
    n = len(step.arrivals)
    sentence = f"step {step.id}: {n} attempts{by} where at most {1 + tokens} are allowed (1 + {tokens} retry tokens)"
    return at_most("steps", "attempts of one step", n, 1 + tokens, "attempts", samples, sentence, [step.id])


def _owners(found: Histories) -> list[Rule]:
    retried = [step for step in found.steps if len(step.arrivals) > 1]
    several, twice = [], []
    named: dict[str, None] = {}
    for step in retried:
        owners = {str(row["owner"]) for row in step.arrivals if row.get("owner")}
        layers = dict.fromkeys(str(row["layer"]) for row in step.arrivals if row.get("layer"))
        if len(owners) > 1 or len(layers) > 1:
            several.append(step.id)
            named |= layers if len(layers) > 1 else dict.fromkeys(sorted(owners))
        numbers = [row["attempt"] for row in step.arrivals if row.get("attempt") is not None]
        if len(numbers) != len(set(numbers)):
            twice.append(step.id)
    text = f"{len(several)} steps were retried by more than one owner ({', '.join(named)})"
    same = f"{len(twice)} steps had one and the same attempt sent more than once: somebody below the owner retries"
    return [
        none_of("steps", "retried by several owners", several, len(retried), "steps", text),
        none_of("steps", "attempts sent twice", twice, len(retried), "steps", same),
    ]


def _not_retried(frame: Frame, found: Histories, params: Params) -> list[Rule]:
    """A single failure that could be retried and was not; a success that was repeated. Whether a circuit was open, and
    forbade the retry, only the controller's decisions tell."""
    missed, repeated = [], []
    told = frame.evidence.has_decisions
    windows = open_windows(frame, "closed")
    between = frame.stalls.between
    for step in found.steps:
        statuses = [row.get("status") for row in step.arrivals]
        if any(ok(row.get("status")) and not may_have_timed_out(frame, row) for row in step.arrivals[:-1]):
            repeated.append(step.id)
        if len(statuses) == 1 and retryable(statuses[0]) and found.repeatable(step) and not step.readbacks:
            last = step.arrivals[0]
            ended = int(last["ended_ns"])
            late = last.get("deadline_ns") is not None and between(ended, int(last["deadline_ns"])) < params.settle
            shut = any(
                between(ended, a) <= params.settle and ended <= b for a, b in windows.get(str(last["dependency"]), ())
            )
            stopped = (frame.runs[step.run].ended or {}).get("outcome") == CANCELLED
            if told and not (late or shut or stopped or last.get("retry_after")) and found.has_room(step):
                missed.append(step.id)
    n = len(found.steps)
    text = f"{len(missed)} steps failed once and were not retried, though a token and an attempt were left"
    again = f"{len(repeated)} steps were sent again after they had succeeded"
    return [
        none_of("steps", "one failure, no retry", missed, n if told else 0, "steps", text),
        none_of("steps", "repeated after success", repeated, n, "steps", again),
    ]


def _wrongly_retried(found: Histories) -> list[Rule]:
    final = [step.id for step in found.not_retryable if len(step.arrivals) > 1]
    keyless = [step.id for step in found.keyless if _blindly_repeated(step)]
    text = f"{len(final)} steps were retried after a failure that no retry can help (a 400 or the like)"
    blind = f"{len(keyless)} writes without an idempotency key were repeated without looking whether they had committed"
    return [
        none_of("steps", "not retryable, retried", final, len(found.not_retryable), "steps", text),
        none_of("writes", "without a key, repeated", keyless, len(found.keyless), "steps", blind),
    ]


def _blindly_repeated(step: Step) -> bool:
    """Some attempt followed another without a read-back that ended between them."""
    for before, after in zip(step.arrivals, step.arrivals[1:], strict=False):
        if not any(before["t_ns"] <= row["t_ns"] and row["ended_ns"] <= after["t_ns"] for row in step.readbacks):
            return True
    return False


def _into_open_circuit(frame: Frame, found: Histories, params: Params) -> list[Rule]:
    """Open as the controller itself says; whether it says so when it must is v08's to judge."""
    windows = open_windows(frame, "half_open", "closed")
    if not windows:
        return []
    wrong = []
    retries = 0
    for step in found.steps:
        for row in step.arrivals[1:]:
            retries += 1
            inside = is_open(frame, windows, str(row["dependency"]), int(row["t_ns"]), params.in_flight)
            if inside and not row.get("probe"):
                wrong.append(step.id)
    text = f"{len(wrong)} retries were sent to a dependency whose circuit was open"
    return [none_of("retries", "into an open circuit", wrong, retries, "retries", text)]


def _past_limits(frame: Frame, found: Histories) -> list[Rule]:
    """Limits that first attempts keep, and retries must keep too. One that first attempts pass is not theirs."""
    firsts = {id(step.arrivals[0]) for step in found.steps}
    return [
        within(frame, subject, what, rows, bound) for subject, what, rows, bound in limited(frame)
        if in_flight(frame, [row for row in rows if id(row) in firsts]).peak().most <= bound
    ]  # fmt: skip


def _decided(frame: Frame, found: Histories) -> list[Rule]:
    """Each retry was decided before it arrived, and its token was gone by then."""
    if not frame.evidence.has_decisions:
        return []
    scheduled: dict[str, list[tuple[str, int, int | None]]] = defaultdict(list)
    for row in frame.of_kind("retry", "scheduled"):
        left = row.get("remaining_retry_tokens")
        scheduled[str(row.get("run"))].append((str(row.get("step")), int(row["t_ns"]), left))
    undecided, retries = [], 0
    for step in found.steps:
        due = sorted(t for name, t, _ in scheduled.get(step.run, ()) if name == step.step)
        for k, row in enumerate(step.arrivals[1:]):
            retries += 1
            if k >= len(due) or due[k] > int(row["t_ns"]):
                undecided.append(step.id)
    unpaid = [run for run, rows in scheduled.items() if run in frame.runs and _unpaid(frame, frame.runs[run], rows)]
    text = f"{len(set(undecided))} steps were retried without a decision of the owner before it"
    late = f"in {len(unpaid)} runs a retry was scheduled before its token was spent"
    return [
        none_of("retries", "without a decision", undecided, retries, "retries", text),
        none_of("runs", "token not spent first", unpaid, len(scheduled), "runs", late),
    ]


def _unpaid(frame: Frame, run: Run, rows: list[tuple[str, int, int | None]]) -> bool:
    """With T tokens at its opening, at most T - k are left when retry k of the run is scheduled."""
    given = (run.opened or {}).get("remaining_retry_tokens") if run.parent else None
    tokens = given if given is not None else envelope_limit(frame, run, "retry_tokens")
    if tokens is None:
        return False
    return any(left is None or left > tokens - k for k, (_, _, left) in enumerate(rows, 1))


def _spread(delays: list[int]) -> float:
    """(p90 - p10) / median"""
    low, middle, high = (quantile(np.array(delays, dtype=np.int64), p) or 0 for p in (0.1, 0.5, 0.9))
    return (high - low) / max(1, middle)


def _delays(frame: Frame, found: Histories, params: Params) -> dict[str, list[int]]:
    """Those to judge, of each dependency: what no stall drew out, if that is enough; else all, but not if they come as
    one wave, for that may be the stall's."""
    calm, judged = found.first_delays(frame.stalls), found.first_delays()
    for dependency, delays in judged.items():
        undisturbed = calm.get(dependency, [])
        if len(undisturbed) >= params.delays or _spread(delays) < params.spread:
            judged[dependency] = undisturbed
    return judged


def _jitter(frame: Frame, found: Histories, params: Params) -> list[Rule]:
    """Spread of the first delay at each dependency: equal delays send every retry of a wave at one instant."""
    rules = []
    for dependency, delays in sorted(_delays(frame, found, params).items()):
        if len(delays) < params.delays:
            continue
        spread = _spread(delays)
        word = Word.PASS if spread >= params.spread else Word.FAIL
        sentence = (
            f"{dependency}: {len(delays)} first retries came after nearly the same delay (spread {spread:.2f}, at "
            f"least {params.spread:g}): no jitter, so they come as one wave"
        )
        finding = Finding(
            dependency, "spread of the first delay", word, spread, None, None, params.spread,
            "of the median", len(delays), sentence if word is Word.FAIL else "at least",
        )  # fmt: skip
        named = [s.id for s in found.steps if len(s.arrivals) > 1 and s.arrivals[0].get("dependency") == dependency]
        rules.append(Rule(finding, sentence, tuple(named[:5]) if word is Word.FAIL else ()))
    return rules


def _evidence(frame: Frame, found: Histories, params: Params) -> list[Rule]:
    n = found.counts()
    decided = sum(len(step.arrivals) > 1 for step in found.steps) if frame.evidence.has_decisions else 0
    judged = max((len(delays) for delays in _delays(frame, found, params).values()), default=0)
    kinds = [
        ("failed once", n["once"], f"{ADD_FAULTS} `error` with `times` as many as runs that begin together"),
        ("failed twice", n["twice"], f"{ADD_FAULTS} `error` with `times` twice as many as runs that begin together"),
        ("failed for good", n["persistent"], f"{ADD_FAULTS} `error` that lasts, and runs with retry tokens"),
        ("not retryable", n["not_retryable"], f"{ADD_FAULTS} `error` with `status: 400`"),
        ("write without a key", n["keyless"], f"{ADD_FAULTS} `error`, and write steps with `key: none`"),
    ]
    rules = [enough("steps", what, have, params.steps, "steps", add) for what, have, add in kinds]
    several = sum(len(frame.of_run[run]) > 1 for run in found.out_of("retry_tokens"))
    more = [
        ("several steps, out of tokens", several, "runs whose several steps fail, with few retry tokens"),
        ("out of attempts", len(found.out_of("attempts")), "failing runs with fewer attempts than tokens"),
        ("retries at a full bulkhead", _at_full(frame), "failing steps enough to fill a bulkhead"),
        ("kept from an open circuit", _kept_back(frame, found, params), "an outage that opens a circuit"),
    ]  # fmt: skip
    rules += [enough("runs", what, have, params.runs, "cases", add) for what, have, add in more]
    rules.append(enough("retries", "decided", decided, params.steps, "steps", "the controller's decisions"))
    rules.append(enough("retries", "first delays at one dependency", judged, params.delays, "delays", "more retries"))
    return rules


def _at_full(frame: Frame) -> int:
    """Retries at bulkheads that were full at some time."""
    count = 0
    for key, rows in by_bulkhead(frame).items():
        if was_full(frame, key):
            count += sum((row.get("attempt") or 1) > 1 for row in rows)
    return count if bulkheads(frame) else 0


def _kept_back(frame: Frame, found: Histories, params: Params) -> int:
    """Steps that failed retryably, had room, and ended there while the circuit was open."""
    windows = open_windows(frame, "half_open", "closed")
    return sum(
        retryable(step.arrivals[-1].get("status"))
        and found.has_room(step)
        and any(
            a - int(step.arrivals[-1]["ended_ns"]) < params.settle and int(step.arrivals[-1]["ended_ns"]) <= b
            for a, b in windows.get(str(step.arrivals[-1]["dependency"]), ())
        )
        for step in found.steps
        if found.repeatable(step)
    )


CHECKS[NAME] = Check(
    NAME,
    "retries have one owner: one failure gives two attempts, and none more than its retry tokens allow",
    "arrivals and decisions of steps that fail once, twice, for good, and in ways that no retry helps",
    Params,
    judge,
)
