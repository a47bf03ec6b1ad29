"""What a trial could not show: said in every report, so that a missing number is not taken for a zero.

Pure. Each note is one sentence for people.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.checks.tiers import ADD, Tier, tiers_of
from harness.checks.verdict import EXIT_CODES, Verdict, Word, worst
from harness.ledger.outcomes import SERVED
from harness.ledger.reader import Trial
from harness.report.frame import Frame
from harness.report.text import clean, count

HEADLINES = {
    Word.PASS: "Every rule held, with enough evidence to have caught a breach.",
    Word.FAIL: "A rule was broken; the witnesses are named.",
    Word.INCONCLUSIVE: "Not enough evidence to say; what to add is written below.",
    Word.INVALID: "The trial itself is not to be trusted: read no other verdict from it.",
}


def overall(verdicts: Sequence[Verdict]) -> tuple[Word, int, str]:
    """The word that counts, its exit code, and a sentence."""
    word = worst(verdict.word for verdict in verdicts)
    sentence = HEADLINES[word] if verdicts else "Nothing was judged: the profile asks for no check."
    return word, EXIT_CODES[word], sentence


def worst_first(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """In the order in which people should read them; those of one word stay in the order given."""
    order = [Word.INVALID, Word.FAIL, Word.INCONCLUSIVE, Word.PASS]
    return sorted(verdicts, key=lambda verdict: order.index(verdict.word))


def named_in(trial: Trial, verdicts: Sequence[Verdict]) -> set[str]:
    """Tenants that a finding that did not pass speaks of: they keep a row of their own."""
    subjects = {f.subject for verdict in verdicts for f in verdict.findings if f.word is not Word.PASS}
    return subjects & set(trial.tenants)


def title_of(manifest: dict[str, Any]) -> str:
    """Profile, variant, defect, driver, target, seed and time scale in one line."""
    target = manifest.get("target") or {}
    named = f"{target['name']} ({target.get('url')})" if target.get("name") else str(target.get("url"))
    against = {"stub": "the bundled stub", "simulator": ""}.get(str(target.get("kind")), named)
    scale = manifest.get("time_scale")
    parts = [
        str(manifest["profile"].get("name", "?")),
        f"variant {manifest['variant']}" if manifest.get("variant") else "",
        f"defect {target['defect']}" if target.get("defect") else "",
        str(manifest.get("driver", "?")) + (f" against {against}" if against else ""),
        f"seed {manifest.get('seed')}",
        f"time scale {scale}" if scale not in (None, 1) else "",
    ]
    return clean(", ".join(part for part in parts if part), 200)


def not_observable(trial: Trial, frame: Frame) -> list[str]:
    """What this trial's evidence cannot tell."""
    calls, manifest = trial.calls, trial.manifest
    notes = []
    served = calls.is_outcome(SERVED)
    told = int(np.count_nonzero(served & (calls.queue_wait_ns >= 0)))
    total = int(np.count_nonzero(served))
    if total and told < total:
        notes.append(
            f"The service told its queue wait for {count(told)} of {count(total)} served calls; "
            f"waits are of those alone, latency is of all.{_to_see(manifest, Tier.TYPED)}"
        )
    if not (manifest.get("evidence") or {}).get("decisions"):
        notes.append(
            "The service's own decisions could not be read: what it saw is taken from its answers."
            + _to_see(manifest, Tier.DECISIONS)
        )
    if manifest.get("clock_domain") == "separate":
        notes.append(_clock_of(manifest))
    notes += _of_target(manifest)
    if not frame.until_start and bool(np.any(frame.patience_ns >= 0)):
        notes.append(
            "Patience bounded whole calls: how long an abandoned call had queued is not known. To see it, use "
            "`patience_until: start`, where the service takes a queue deadline."
        )
    if frame.ended_ns is None:
        notes.append("The trial never said that it ended: calls that were in flight are missing.")
    elif (reason := (manifest.get("ended") or {}).get("reason")) != "completed":
        notes.append(f"The trial ended early ({reason}): what was planned after that was not sent.")
    if trial.cut_lines:
        notes.append(f"{count(trial.cut_lines)} unfinished last line of the ledger was left out.")
    if not frame.phases:
        notes.append(
            "The profile names no phases: nothing can be compared between calm and burst. To compare, add "
            "`phases: {calm: [from, to], burst: [from, to]}`."
        )
    return notes


def _to_see(manifest: dict[str, Any], tier: Tier) -> str:
    """What to add to see more of a service at a URL; a target file's gaps have notes of their own."""
    if (manifest.get("target") or {}).get("kind") != "url":
        return ""
    return f" To see it, describe the service in a target file (docs/targets.md), with {ADD[tier]}."


_NO_CLOCK_MS = 86_400_000.0
"""A day: no clock that tells the time is so far off."""


def _clock_of(manifest: dict[str, Any]) -> str:
    clock = manifest.get("clock") or {}
    if not clock.get("samples"):
        return "The service has a clock of its own: its instants are not compared with the callers'."
    offset_ms, error_ms = (float(clock.get(key) or 0) / 1e6 for key in ("offset_ns", "error_ns"))
    drifts = (
        "" if clock.get("consistent", True) else ", and it was set or drifts, so its instants are not to be trusted"
    )
    samples = count(int(clock["samples"]))
    told = f"{abs(offset_ms):,.1f} ms {'behind' if offset_ms < 0 else 'ahead of'} the callers'"
    if abs(offset_ms) > _NO_CLOCK_MS:
        told = "counted from another beginning than the callers'"
    return (
        f"The service's clock was {told}, as {samples} calls tell; its instants were brought to theirs, and are good "
        f"to {error_ms:,.1f} ms{drifts}."
    )


def _of_target(manifest: dict[str, Any]) -> list[str]:
    """What the target file does not let be seen, and what its log said that nobody understood."""
    given = tiers_of(manifest)
    if given is None:
        return []
    names = [tier for tier in (Tier.TYPED, Tier.DECISIONS, Tier.DEPENDENCIES) if tier not in given]
    notes = [f"Not to be seen without {tier.value}; add {ADD[tier]}." for tier in names]
    log = manifest.get("decision_log") or {}
    if log.get("unreadable") or log.get("words"):
        words = clean(", ".join(str(word) for word in list(log.get("words") or {})[:5]), 200)
        unknown = f"; words that are no outcome: {words} (map them in evidence.decisions.outcomes)" if words else ""
        notes.append(
            f"{count(int(log.get('unreadable') or 0))} lines of the decision log were not understood{unknown}."
        )
    if log and not log.get("rows"):
        others = count(int(log.get("foreign") or 0))
        notes.append(
            f"No line of the decision log is about this trial ({others} are about others): does it hold what came in "
            "the header Overload-Attempt?"
        )
    return notes
