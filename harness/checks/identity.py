"""fairness.identity_from_credential: a call is charged to the tenant of its credential, whatever it says in a header.

A runaway that names another tenant with each call would else get a fresh queue, share and budget each time; and a
service that is called with one credential for all cannot tell the runaway from those it hurts. In the service's own
decisions, each call (its id tells which of our tenants sent it) must have been charged so that

    one credential    is charged under one name
    one name          is charged for one credential

The names themselves may be any: a service may charge accounts. PASS needs a tenant that claims to be others, and
another one beside it. Source: RFC 9110, 11 (credentials authenticate, other fields do not); OWASP API Security 2023,
API2.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from harness.checks.context import MOST_WITNESSES, profile_of
from harness.checks.registry import CHECKS, Check
from harness.checks.verdict import Finding, Verdict, Word
from harness.ledger.reader import Trial
from harness.profile.base import Part

NAME = "fairness.identity_from_credential"
CHARGED = "names that it was charged under"
SHARED = "credentials that one name was charged for"


class Params(Part):
    """least_calls: of a tenant that claims to be others, and of all others together, that were decided on."""

    least_calls: Annotated[int, Field(ge=2, strict=True)] = 100


@dataclass(slots=True)
class _Charged:
    """Of one tenant: how many calls were charged under which name, and the first few of each."""

    names: Counter[str] = field(default_factory=Counter)
    first: dict[str, list[str]] = field(default_factory=dict)

    def add(self, name: str, call: str) -> None:
        self.names[name] += 1
        ids = self.first.setdefault(name, [])
        if len(ids) < MOST_WITNESSES:
            ids.append(call)

    @property
    def usual(self) -> str:
        return self.names.most_common(1)[0][0]

    def others(self) -> list[str]:
        """Calls charged under another name than most."""
        return [call for name, calls in self.first.items() if name != self.usual for call in calls]


def judge(trial: Trial, params: Params) -> Verdict:
    profile = profile_of(trial)
    charged = _charged(trial)
    if not charged:
        sentence = "The service does not tell whom it charged."
        return _verdict(
            Word.INCONCLUSIVE, None, 0, sentence, (), "a target that gives its decisions, with `tenant`", []
        )
    samples = sum(one.names.total() for one in charged.values())
    findings = [_of_tenant(name, one) for name, one in charged.items()]
    findings += _of_names(charged)
    failed = [finding for finding in findings if finding.word is Word.FAIL]
    if failed:
        first = failed[0]
        ids = charged[first.subject].others() if first.quantity == CHARGED else _ids_of(charged, first.subject)
        more = f"; {len(failed) - 1} more like it" if len(failed) > 1 else ""
        return _verdict(Word.FAIL, first, samples, f"{first.note}{more}.", tuple(ids), "", findings)
    claiming = {name for name, tenant in profile.tenants.items() if tenant.claims and tenant.claims.values > 1}
    own = max((charged[name].names.total() for name in claiming if name in charged), default=0)
    beside = sum(one.names.total() for name, one in charged.items() if name not in claiming)
    if min(own, beside) < params.least_calls:
        sentence = (
            f"Nothing was charged to another, in {own} calls that claim to be somebody else's and {beside} others"
        )
        add = "a tenant with `claims: {header: X-Tenant, values: 50}`, beside one without"
        return _verdict(Word.INCONCLUSIVE, findings[0], samples, f"{sentence}: too few.", (), add, findings)
    sentence = f"All {samples:,} calls were charged to their credential, {own:,} of which claim to be somebody else's."
    return _verdict(Word.PASS, findings[0], samples, sentence, (), "", findings)


def _verdict(
    word: Word, first: Finding | None, samples: int, sentence: str, ids: tuple[str, ...], add: str, rows: list[Finding]
) -> Verdict:
    measured, bound = (first.measured, first.bound) if first else (None, None)
    return Verdict(NAME, word, measured, bound, "names", samples, sentence, ids[:MOST_WITNESSES], add, tuple(rows))


def _charged(trial: Trial) -> dict[str, _Charged]:
    """By tenant, in the order of the profile: what the service decided on calls that we sent."""
    found: dict[str, _Charged] = {name: _Charged() for name in trial.tenants}
    seen: set[str] = set()
    for row in trial.decisions():
        call, name = row.get("call"), row.get("tenant")
        if "part" in row or call in seen:  # the first decision on a call: a log may tell how it ended, and no more
            continue
        if not isinstance(call, str) or not isinstance(name, str):
            continue
        index = call.partition(".")[0]
        if index.isdecimal() and int(index) < len(trial.tenants):
            seen.add(call)
            found[trial.tenants[int(index)]].add(name, call)
    return {name: one for name, one in found.items() if one.names}


def _of_tenant(name: str, one: _Charged) -> Finding:
    count = len(one.names)
    word = Word.PASS if count == 1 else Word.FAIL
    note = f"Calls with the credential of {name} were charged under {count} names" if count > 1 else ""
    return Finding(name, CHARGED, word, count, None, None, 1, "names", one.names.total(), note)


def _of_names(charged: dict[str, _Charged]) -> list[Finding]:
    owners: dict[str, list[str]] = {}
    for tenant, one in charged.items():
        owners.setdefault(one.usual, []).append(tenant)
    findings = []
    for name, tenants in owners.items():
        if len(tenants) > 1:
            shown = ", ".join(tenants[:3]) + (" and more" if len(tenants) > 3 else "")
            note = f"The service cannot tell {len(tenants)} tenants apart: {shown} are all charged as '{name[:40]}'"
            samples = sum(charged[tenant].names[name] for tenant in tenants)
            findings.append(Finding(name, SHARED, Word.FAIL, len(tenants), None, None, 1, "credentials", samples, note))
    return findings


def _ids_of(charged: dict[str, _Charged], name: str) -> list[str]:
    """A call of each tenant that was charged under the name."""
    return [one.first[name][0] for one in charged.values() if name in one.first]


CHECKS[NAME] = Check(
    NAME,
    "a call is charged to the tenant of its credential, whatever a header claims",
    "the service's decisions; a tenant that claims to be others, beside one that does not",
    Params,
    judge,
)
