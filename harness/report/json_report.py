"""The report for machines: one document with stable keys, free of NaN.

Keys (schema 1; new keys may be added, none changes its meaning):

    schema, trial_id, created, driver, profile, variant, seed, time_scale, target
    verdict        {word, exit_code, sentence}: the word that counts for the trial
    verdicts       [{check, word, measured, bound, unit, samples, sentence, add, witnesses, findings}], worst first;
                   findings: [{subject, quantity, word, measured, low, high, bound, unit, samples, note}]
    rows           [{tenant, kind, ordinary, phase, due, offered, served, ..., outcomes, served_share, replan_share,
                   wait, wait_all, latency}]; kind: tenant | rest | pooled; phase: a phase | other | whole; the last
                   three: {samples, mean_ms, p50_ms, p95_ms, p99_ms, p95_firm, p99_firm} (firm: enough to judge by)
    capacity       of a capacity layer, else null: {runs, steps, in_flight: {ceiling, peak}, circuits_left_out,
                   classes: [{traffic_class, runs, steps, outcomes, latency, wait}],
                   refusals: [{traffic_class, outcome, reason, count}] of batches and steps,
                   refused_runs: [{class, outcome, reason, count}] of runs that were not opened,
                   cost: null, or {tenants, sizes, most, oldest_ns, left_out} (harness/report/cost.py),
                   expired: {steps, started_late},
                   attempts: {"how many reached the dependency": steps},
                   retries: {tokens_spent, denied: {reason: n}, read_backs},
                   circuits: [{t_ns, dependency, state, reason}],
                   bulkheads: [{dependency, operation, limit, peak, waiting, arrivals, failed, effects}]}
                   (what each number means: harness/report/capacity.py)
    rounds         [{tenant, cut, traced, rounds: [{number, calls, served, refused, ..., replanned, led_to}]}]: what the
                   calls of each round led to, of those tenants that re-planned most
    recorded       the account of the recording that was replayed (`overload replay --json`), or null
    not_observable [sentence]
    series         only if asked for: {width_s, starts_s, end_s, lines: [{tenant, ordinary, offered_per_s, ...}],
                   bulkheads: [{name, in_use, waiting, limit, circuit}]}

Names stand as they were recorded, not made safe to show. A number that is not there is null.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from harness.checks.verdict import Verdict
from harness.ledger.reader import Trial
from harness.report.capacity import capacity_json, capacity_of, lines_of
from harness.report.notes import named_in, not_observable, overall, worst_first
from harness.report.rounds import flows_of
from harness.report.series import series_of
from harness.report.summary import Row, Summary, Times, charted, summarise
from harness.report.traffic import traffic_of

SCHEMA = 1


def report_json(
    trial: Trial, verdicts: Sequence[Verdict], series: bool = False, summary: Summary | None = None
) -> dict[str, Any]:
    """The document, ready to be dumped. Raises LedgerError if the manifest holds no profile."""
    summary = summary or summarise(trial, keep=named_in(trial, verdicts))
    manifest = trial.manifest
    word, code, sentence = overall(verdicts)
    traffic, capacity = traffic_of(trial), capacity_of(trial)
    document = {
        "schema": SCHEMA,
        **{
            key: manifest.get(key)
            for key in ("trial_id", "created", "driver", "variant", "seed", "time_scale", "target")
        },
        "profile": manifest["profile"].get("name"),
        "verdict": {"word": word.value, "exit_code": code, "sentence": sentence},
        "verdicts": [verdict_json(verdict) for verdict in worst_first(verdicts)],
        "calls": summary.calls,
        "rows": [row_json(row) for row in summary.rows],
        "capacity": capacity_json(capacity) if capacity else None,
        "rounds": [asdict(flow) for flow in flows_of(trial)[0]],
        "recorded": traffic.document if traffic else None,
        "not_observable": not_observable(trial, summary.frame),
    }
    if series:
        over_time = series_of(trial, summary.frame, charted(summary))
        bulkheads = [asdict(line) for line in lines_of(trial, over_time)] if capacity else []
        document["series"] = {**asdict(over_time), "bulkheads": bulkheads}
    said: dict[str, Any] = finite(document)
    return said


def row_json(row: Row) -> dict[str, Any]:
    document = asdict(row)
    for name in ("wait", "wait_all", "latency"):
        times: Times = getattr(row, name)
        document[name] |= {"p95_firm": times.p95_firm, "p99_firm": times.p99_firm}
    return document | {"served_share": row.served_share, "replan_share": row.replan_share}


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    document = asdict(verdict)
    document["word"] = verdict.word.value
    for finding in document["findings"]:
        finding["word"] = finding["word"].value
    return document


def finite(value: Any) -> Any:
    """NaN and infinities, which JSON does not have, become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list | tuple) else value
