"""v05 for plain calls: who retries between a caller and its dependencies, when the caller is the owner of its retries.

The live client says on each call which attempt of it this is (`Overload-Attempt-Number`), and a proxy, gateway or
service mesh passes that on unread. So

    one attempt sent, one arrival                  nobody else retries
    one attempt sent, it failed, another arrival   somebody below the caller retries: a second owner

and with c attempts by the caller and l by the layer, a call that fails for good arrives c x l times. Site Reliability
Engineering (2016), chapter 21, "Handling Overload"; RFC 9110, section 9.2.2: a proxy must not retry what is not
idempotent. What arrives again after a success is another step of the service's work and no retry; what a layer says of
itself (`Via`) is its name, never evidence.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from harness.checks.capacity_frames import is_readback
from harness.checks.rules import Rule, enough, none_of, verdict, withheld
from harness.checks.v05_histories import ok, retryable
from harness.checks.verdict import Verdict
from harness.ledger.call import CALL_STEP
from harness.ledger.evidence import Row, evidence_of
from harness.ledger.reader import Trial

_MOST_NAMES = 3


@dataclass(slots=True)
class PlainCall:
    """What one call made arrive at one operation of one dependency, in order of time. sent: attempts by its caller."""

    id: str
    where: str
    sent: int
    arrivals: list[Row] = field(default_factory=list)

    @property
    def failed(self) -> list[Row]:
        """Those that ended in a way that a retry might help."""
        return [row for row in self.arrivals if retryable(row.get("status"))]

    @property
    def hidden(self) -> int:
        """Arrivals that repeat a failed attempt under its own number: not sent by the caller."""
        failed: set[object] = set()
        count = 0
        for row in self.arrivals:
            number = row.get("attempt")
            count += number in failed
            if not ok(row.get("status")):
                failed.add(number)
        return count


def plain_calls_of(trial: Trial) -> list[PlainCall]:
    """Those of which something arrived at a dependency."""
    attempts = trial.attempts
    sent = Counter(attempts.id(int(i)) for i in (attempts.sent_ns >= 0).nonzero()[0])
    found: dict[tuple[str, str], PlainCall] = {}
    for row in evidence_of(trial).arrivals:
        call = str(row.get("run"))
        if row.get("step") != CALL_STEP or is_readback(row) or call not in sent:
            continue
        where = f"{row.get('dependency')} {row.get('operation')}"
        one = found.setdefault((call, where), PlainCall(call, where, sent[call]))
        one.arrivals.append(row)
    return list(found.values())


def judge_plain(trial: Trial, name: str, least: int) -> Verdict:
    """least: failed attempts of each kind that must have been seen."""
    calls = plain_calls_of(trial)
    if not calls:
        return withheld(
            name, "nothing that arrived at a dependency can be joined to a call",
            "in the service under test: pass Overload-Run, Overload-Step and Overload-Attempt-Number of a request on "
            "to the dependencies that it calls for it",
        )  # fmt: skip
    unanswered = sum(row.get("status") == 0 for call in calls for row in call.failed)
    refused = sum(len(call.failed) for call in calls) - unanswered
    rules = [
        *_rules(trial, calls),
        enough("attempts", "that got no answer", unanswered, least, "attempts", "give the profile a fault `hang`"),
        enough("attempts", "that failed with an answer", refused, least, "attempts",
               "give the profile a fault `error` with `status: 503`"),
    ]  # fmt: skip
    passed = (
        f"The caller alone retries: of {unanswered + refused} failed attempts ({unanswered} without an answer, "
        f"{refused} answered with a failure) none came again without it."
    )
    return verdict(name, rules, passed)


def _rules(trial: Trial, calls: list[PlainCall]) -> list[Rule]:
    """One rule for each operation at which something failed: a layer may retry reads and leave writes alone."""
    rules = []
    by_place: dict[str, list[PlainCall]] = defaultdict(list)
    for call in calls:
        if call.failed:
            by_place[call.where].append(call)
    for where, failed in sorted(by_place.items()):
        hidden = [call for call in failed if call.hidden]
        text = _sentence(trial, where, hidden, len(failed)) if hidden else ""
        ids = [call.id for call in sorted(hidden, key=lambda call: -len(call.arrivals))]
        rules.append(none_of(where, "retried by a second owner", ids, len(failed), "calls", text))
    return rules


def _sentence(trial: Trial, where: str, hidden: list[PlainCall], failed: int) -> str:
    worst = max(hidden, key=lambda call: len(call.arrivals))
    kinds = Counter("unanswered" if row.get("status") == 0 else f"status {row.get('status')}" for row in worst.failed)
    times = "1 attempt" if worst.sent == 1 else f"{worst.sent} attempts"
    return (
        f"{len(hidden)} of {failed} failed calls came to {where} again without their caller: {_layer(trial, hidden)} "
        f"retries, too (call {worst.id}: {times} by the caller, {len(worst.arrivals)} arrivals, "
        f"{', '.join(f'{n} {kind}' for kind, n in kinds.items())})"
    )


def _layer(trial: Trial, hidden: list[PlainCall]) -> str:
    target = (trial.manifest.get("target") or {}).get("name")
    vias = dict.fromkeys(str(row["via"])[:100] for call in hidden for row in call.arrivals if row.get("via"))
    says = f", which calls itself {' and '.join(map(repr, list(vias)[:_MOST_NAMES]))}" if vias else ""
    return f"a layer between the caller and the dependency (target {target}){says}"
