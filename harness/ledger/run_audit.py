"""Nothing is lost, for agent runs: each call of a run belongs to one that was opened, and each run came to its end.

On the caller's side always; against the controller's decisions where they say which request they are about. Asked by
audit.py. Pure over a Trial.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from harness.ledger.contradictions import MOST_WITNESSES, UNSEEN_OK, Contradiction, Mask, Places, broken, places_of
from harness.ledger.outcomes import COALESCED, NEVER_SENT, SERVED
from harness.ledger.reader import Trial
from harness.profile.model import Profile

OPEN_RUN, SUBMIT, CANCEL, FINISH = "open", "submit", "cancel", "finish"


def tenants_with_runs(trial: Trial, profile: Profile) -> Mask:
    """One place a tenant."""
    return np.array([bool(profile.tenants[name].runs) for name in trial.tenants], dtype=np.bool_)


def runs_of_family(trial: Trial, profile: Profile, order: Places, notes: list[str]) -> Iterator[Contradiction]:
    """Calls of runs against each other, and against what the profile says at most. order: that sorts `call_key`."""
    calls = trial.calls
    mine = tenants_with_runs(trial, profile)[calls.tenant]
    if not mine.any():
        return
    opens = calls.action.equals(OPEN_RUN)
    yield from broken(
        trial, "actions", "are of a run and do nothing, or the reverse", mine != (calls.action.codes >= 0)
    )
    yield from broken(trial, "runs", "open a run and belong to another", mine & opens & (calls.run != calls.seq))
    child = mine & (calls.parent >= 0)
    yield from broken(trial, "runs", "belong to no run, and do not open one", mine & ~child & ~opens)
    yield from broken(trial, "rounds", "are re-planned, and submit nothing", _replanned_wrongly(trial, mine))
    children = np.flatnonzero(child)
    parents, known = places_of(trial, order, children)
    orphan = np.zeros(len(calls), dtype=np.bool_)
    orphan[children[~known]] = True
    yield from broken(trial, "no call without a cause", "follow from a call that is not there", orphan)
    children, parents = children[known], parents[known]
    wrong = np.zeros(len(calls), dtype=np.bool_)
    wrong[children] = (
        ~opens[parents]
        | ~calls.is_outcome(SERVED)[parents]
        | (calls.due_ns[children] < calls.done_ns[parents])
        | (~opens[children] & (calls.run[children] != calls.seq[parents]))
    )
    yield from broken(trial, "no call without a cause", "do not fit the call that opened their run", wrong)
    yield from _ends(trial, profile, children, parents, notes)


def _replanned_wrongly(trial: Trial, mine: Mask) -> Mask:
    return np.asarray(mine & (trial.calls.round > 0) & ~trial.calls.action.equals(SUBMIT))


def _ends(
    trial: Trial, profile: Profile, children: Places, parents: Places, notes: list[str]
) -> Iterator[Contradiction]:
    """Each run that was opened is finished or cancelled, once, and has no more calls than its kind may have."""
    calls = trial.calls
    of_run = {
        action: np.bincount(parents[calls.action.equals(action)[children]], minlength=len(calls))
        for action in (SUBMIT, CANCEL, FINISH)
    }
    twice = (of_run[FINISH] > 1) | (of_run[CANCEL] > 1)
    yield from broken(trial, "runs end once", "opened a run that was finished, or cancelled, more than once", twice)
    cancels = calls.action.equals(CANCEL) & calls.is_outcome(SERVED, COALESCED)
    cancelled = np.bincount(parents[cancels[children]], minlength=len(calls)) > 0
    opened = calls.action.equals(OPEN_RUN) & calls.is_outcome(SERVED)
    unheard = opened & (of_run[FINISH] == 0) & ~cancelled
    gone = unheard & np.array([_may_vanish(profile, name) for name in trial.tenants], dtype=np.bool_)[calls.tenant]
    if gone.any():
        notes.append(f"{int(gone.sum())} run(s) of tenants whose agents vanish, as the profile says, were not finished")
    lost = unheard & ~gone
    if (trial.manifest.get("target") or {}).get("finishes") is False:
        if lost.any():
            notes.append("the target cannot be told that a run is over: runs were not finished")
    elif lost.any() and _reached_the_drain_limit(trial, profile):
        notes.append(f"{int(lost.sum())} run(s) had not come to their end at the drain limit")
    else:
        yield from broken(trial, "runs come to their end", "opened a run that was never finished nor cancelled", lost)
    most = np.array([_most_submits(profile, name) for name in trial.tenants], dtype=np.int64)[calls.tenant]
    too_many = of_run[SUBMIT] > most
    yield from broken(trial, "runs as the profile says", "opened a run that submitted more than it may", too_many)


def _reached_the_drain_limit(trial: Trial, profile: Profile) -> bool:
    ended = trial.manifest.get("ended") or {}
    return int(ended.get("at_ns") or 0) >= profile.duration + profile.drain


def _may_vanish(profile: Profile, name: str) -> bool:
    return any(group.crash_after is not None for group in profile.tenants[name].runs)


def _most_submits(profile: Profile, name: str) -> int:
    most = 0
    for group in profile.tenants[name].runs:
        own = len(group.batches) * (1 + (group.replans.rounds if group.replans else 0))
        most = max(most, own, *(len(child.batches) for child, _, _ in group.sub_agents()))
    return most


def runs_against_controller(trial: Trial, notes: list[str]) -> Iterator[Contradiction]:
    """The controller decided each of our opens and submits once, and nobody else's."""
    calls = trial.calls
    if not (calls.action.codes >= 0).any():
        return
    decided = Counter(_requests(trial))
    if not decided:
        notes.append("the capacity layer does not say which request a decision is about")
        return
    settled = ~calls.is_outcome(*NEVER_SENT, *UNSEEN_OK)
    asked = calls.action.equals(OPEN_RUN) | calls.action.equals(SUBMIT)
    places = np.flatnonzero(asked)
    ids = [f"{calls.id(int(place))}.{calls.attempt[place]}" for place in places]
    times = np.zeros(len(calls), dtype=np.int64)
    times[places] = [decided.pop(request, 0) for request in ids]
    unseen = asked & settled & (times == 0)
    yield from broken(trial, "ours were seen", "have an answer, and no decision is about them", unseen)
    yield from broken(trial, "one decision a call", "were decided more than once by the controller", times > 1)
    if decided:
        strangers = sum(decided.values())
        sentence = f"{strangers} decision(s) of the controller are about requests that this trial did not send"
        witnesses = tuple(sorted(decided)[:MOST_WITNESSES])
        yield Contradiction("what the service saw is ours", sentence, strangers, witnesses)


def _requests(trial: Trial) -> Iterable[str]:
    """Of decisions on opening a run and on a batch."""
    for row in trial.decisions():
        if row.get("part") == "capacity" and _answers(row) and isinstance(row.get("request"), str):
            yield row["request"]


def _answers(row: dict[str, object]) -> bool:
    """A run's own end is a decision of the same kind as its opening, and about another request."""
    kind = row.get("kind")
    return kind == "batch" or (kind == "run" and (row.get("outcome") == "opened" or row.get("run") is None))
