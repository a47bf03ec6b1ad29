"""Nothing is lost: whether a ledger accounts for every call that was due, and for every re-plan that it led to.

On the caller's side always; against the service's own evidence where there is any. A contradiction means that the
ledger cannot be trusted; what cannot be seen is a note. Pure over a Trial: never writes, never repairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.ledger.attempts_audit import attempts_of_calls
from harness.ledger.contradictions import MOST_WITNESSES, UNSEEN_OK, Contradiction, broken, call_key
from harness.ledger.manifest import profile_hash
from harness.ledger.outcomes import (
    CANCELLED,
    EXPIRED,
    FAILED,
    HELD_BACK,
    NEVER_SENT,
    QUEUED,
    SERVED,
    THROTTLED,
)
from harness.ledger.plans_audit import family
from harness.ledger.reader import Decisions, Trial, attempt_key, read_decisions
from harness.ledger.run_audit import runs_against_controller, runs_of_family, tenants_with_runs
from harness.ledger.workers import late_workers, lost_workers
from harness.profile.model import Profile

MOST_LINES_LOST = 0.01
"""Of a described target's own log, as a share of the answered calls; beyond it, the two do not belong together."""
AGREES = {
    SERVED: (SERVED,),
    THROTTLED: (THROTTLED,),
    EXPIRED: (EXPIRED,),
    CANCELLED: (CANCELLED,),
    FAILED: (FAILED,),
}
"""What the caller may record of an outcome at the service, beside UNSEEN_OK: the answer may have come too late."""


@dataclass(frozen=True, slots=True)
class Audit:
    """calls: rows audited. notes: what could not be seen."""

    calls: int
    contradictions: tuple[Contradiction, ...]
    notes: tuple[str, ...]


def audit(trial: Trial, profile: Profile) -> Audit:
    """profile: at the trial's own time scale."""
    notes: list[str] = []
    found = [*lost_workers(trial), *late_workers(trial), *_as_begun(trial), *_ended(trial), *_unique(trial)]
    if not any(item.rule == "one row a call" for item in found):
        order = np.argsort(call_key(trial), kind="stable")
        found += [*_gapless(trial, order), *_as_planned(trial, profile), *_rows(trial, profile)]
        found += [*attempts_of_calls(trial, profile), *family(trial, profile, order, notes)]
        found += runs_of_family(trial, profile, order, notes)
        decisions = read_decisions(trial)
        if decisions is not None:
            found += [*_against_service(trial, decisions, notes), *runs_against_controller(trial, notes)]
        elif (trial.manifest.get("evidence") or {}).get("decisions"):
            sentence = "the manifest says that the service's decisions were recorded, and the file is not there"
            found.append(Contradiction("evidence is whole", sentence, 1))
        else:
            notes.append("the service's own evidence is not to be had: judged on the caller's side alone")
    return Audit(len(trial.calls), tuple(found), tuple(notes))


def _as_begun(trial: Trial) -> Iterator[Contradiction]:
    """The profile is judged by: margins, ordinary tenants and checks are those that the trial was begun with."""
    manifest = trial.manifest
    told = manifest.get("profile_hash")
    if told is not None and told != profile_hash(manifest["profile"], manifest.get("time_scale", 1.0)):
        sentence = "the manifest's profile is not the one that the trial was begun with (profile_hash)"
        yield Contradiction("the profile that was run", sentence, 1)


def _ended(trial: Trial) -> Iterator[Contradiction]:
    ended = trial.manifest.get("ended")
    if not isinstance(ended, dict):
        yield Contradiction("the trial ended", "the trial has no end: it was killed, or is still running", 1)
    else:
        reason = ended.get("reason")
        if reason != "completed":
            yield Contradiction("the trial ended", f"the trial did not complete: it ended as '{reason}'", 1)
        told = ended.get("calls")
        if reason == "completed" and not isinstance(told, int):
            yield Contradiction("as many rows as calls", "the trial does not say how many calls it ended with", 1)
        elif isinstance(told, int) and told != len(trial.attempts):
            sentence = f"the driver ended with {told} rows, the ledger holds {len(trial.attempts)}"
            yield Contradiction("as many rows as calls", sentence, abs(told - len(trial.attempts)))
    if trial.cut_lines:
        yield Contradiction("whole lines", "the last line of calls.jsonl is cut short", trial.cut_lines)


def _unique(trial: Trial) -> Iterator[Contradiction]:
    keys, counts = np.unique(call_key(trial), return_counts=True)
    twice = np.isin(call_key(trial), keys[counts > 1]) if (counts > 1).any() else np.zeros(len(trial.calls), bool)
    yield from broken(trial, "one row a call", "end more than once", twice)


def _gapless(trial: Trial, order: npt.NDArray[np.intp]) -> Iterator[Contradiction]:
    """Sequences of a tenant count from 0 without a gap: a call that left no row leaves a hole."""
    tenant, seq = trial.calls.tenant[order], trial.calls.seq[order]
    first = np.concatenate(([True], tenant[1:] != tenant[:-1])) if len(tenant) else np.zeros(0, bool)
    begin = np.where(first, 0, np.concatenate(([0], seq[:-1] + 1))) if len(seq) else seq
    holes = np.flatnonzero(seq != begin)
    if len(holes):
        missing = int((seq - begin)[holes].sum())
        ids = tuple(f"{tenant[i]}.{begin[i]}" for i in holes[:MOST_WITNESSES])
        yield Contradiction("no call is missing", f"{missing} call(s) left no row", missing, ids)


def _as_planned(trial: Trial, profile: Profile) -> Iterator[Contradiction]:
    """Original calls in the ledger are those of the plan, per tenant and phase."""
    plan = trial.manifest.get("plan")
    if not isinstance(plan, dict):
        yield Contradiction("as planned", "the manifest holds no plan", 1)
        return
    calls = trial.calls
    original = calls.parent < 0
    phase = np.full(len(calls), -1, dtype=np.int64)
    phases = profile.phases.items()
    for place, (_, window) in enumerate(phases):
        phase[(calls.due_ns >= window.from_ns) & (calls.due_ns < window.to_ns)] = place
    width = len(phases) + 1
    counts = np.bincount((calls.tenant * width + phase + 1)[original], minlength=width * len(trial.tenants))
    names = ["", *(name for name, _ in phases)]
    wrong = []
    for index, tenant in enumerate(trial.tenants):
        planned = plan.get(tenant) or {}
        for place, name in enumerate(names):
            have, want = int(counts[index * width + place]), planned.get(name, 0)
            if have != want:
                wrong.append(f"{tenant}, {name or 'no phase'}: {want} planned, {have} in the ledger")
    if wrong:
        yield Contradiction("as planned", f"not the planned calls: {'; '.join(wrong[:5])}", len(wrong))


def _rows(trial: Trial, profile: Profile) -> Iterator[Contradiction]:
    """What holds for each row alone."""
    trial = trial.by_attempt()
    calls = trial.calls
    never = calls.is_outcome(*NEVER_SENT)
    yield from broken(trial, "sent or not", "were both sent and not sent", never != (calls.attempt == 0))
    yield from broken(trial, "sent or not", "were sent at no instant", ~never & (calls.sent_ns < 0))
    yield from broken(trial, "in order", "ended before they were sent", ~never & (calls.done_ns < calls.sent_ns))
    yield from broken(trial, "in order", "ended before they were due", never & (calls.done_ns < calls.start_ns))
    of_run = tenants_with_runs(trial, profile)[calls.tenant]
    # What has begun is driven to its end, which is the drain limit at the latest.
    late = np.where(of_run & (calls.parent >= 0), profile.duration + profile.drain + 1, profile.duration)
    outside = (calls.due_ns < 0) | (calls.start_ns >= late)
    yield from broken(trial, "in the trial", "were due outside of the trial", outside)
    tenants = [profile.tenants[name] for name in trial.tenants]
    holds = np.array([bool(one.budget or one.loop or one.throttle) for one in tenants], dtype=np.bool_)
    held = calls.is_outcome(HELD_BACK) & ~holds[calls.tenant]
    yield from broken(trial, "held back by a budget", "were held back, and their tenant has no budget", held)


def _against_service(trial: Trial, decisions: Decisions, notes: list[str]) -> Iterator[Contradiction]:
    """Their attempts are ours; ours that they did not see, or did not settle, failed or were given up. What a service
    of a target's own says of calls of agent runs is only known to be about ours: one batch may be many decisions. Its
    log may lose a line now and then, as many do under load: what cannot be seen is a note, not a contradiction."""
    trial = trial.by_attempt()
    calls = trial.calls
    asked = ~calls.is_outcome(*NEVER_SENT)
    sent = asked & (calls.action.codes < 0)
    ours = np.where(asked, attempt_key(calls.tenant, calls.seq, calls.attempt), -2)
    order = np.argsort(ours, kind="stable")
    place = np.minimum(np.searchsorted(ours[order], decisions.key), max(0, len(order) - 1))
    known = ours[order][place] == decisions.key if len(order) else np.zeros(len(decisions.key), bool)
    if not known.all():
        strangers = int((~known).sum())
        ids = tuple(_attempt_id(int(key)) for key in np.unique(decisions.key[~known])[:MOST_WITNESSES])
        sentence = f"{strangers} decision(s) of the service are about calls that this trial did not send"
        yield Contradiction("what the service saw is ours", sentence, strangers, ids)
    rows = order[place] if len(order) else place  # of no calls nothing is known, and nothing is looked up
    lenient = calls.is_outcome(*UNSEEN_OK)
    terminal = known & ~decisions.is_outcome(QUEUED)
    seen = np.bincount(rows[known], minlength=len(calls)) > 0
    settled = np.bincount(rows[terminal], minlength=len(calls))
    queued = np.bincount(rows[known & decisions.is_outcome(QUEUED)], minlength=len(calls))
    unseen = sent & ~seen & ~lenient
    lost, answered = int(unseen.sum()), int((sent & ~lenient).sum())
    if lost and (trial.manifest.get("target") or {}).get("kind") == "file" and lost <= MOST_LINES_LOST * answered:
        notes.append(f"the target's decision log has no line for {lost} of {answered} answered calls: it loses some")
    else:
        yield from broken(trial, "ours were seen", "have an answer, and the service saw nothing", unseen)
    yield from broken(trial, "one decision a call", "were settled more than once by the service", sent & (settled > 1))
    yield from broken(trial, "one decision a call", "were queued more than once by the service", sent & (queued > 1))
    unsettled = sent & seen & (settled == 0) & ~lenient
    yield from broken(trial, "one decision a call", "have an answer that the service never decided", unsettled)
    for theirs, may_be in AGREES.items():
        mask = np.zeros(len(calls), dtype=np.bool_)
        mask[rows[terminal & decisions.is_outcome(theirs)]] = True
        sentence = f"were {theirs} at the service and something else here"
        yield from broken(trial, "outcomes agree", sentence, mask & sent & ~lenient & ~calls.is_outcome(*may_be))


def _attempt_id(key: int) -> str:
    return f"{key >> 44}.{(key >> 8) & ((1 << 36) - 1)}.{key & 255}" if key >= 0 else "no attempt id"
