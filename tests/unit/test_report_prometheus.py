"""What a running trial tells Prometheus, from the driver's events."""

from __future__ import annotations

from harness.live.progress import Tally
from harness.profile.model import Profile
from harness.report.prometheus import TrialMetrics
from stub_service.exposition import LATE_BUCKETS_NS, MOST_LABELLED, text
from tests.conftest import WORKED_EXAMPLE, with_values

S = 1_000_000_000


def event(now_ns=40 * S, **tenants):
    late = {"late_p99_ns": 1, "late_ns": 2_000_000, "late_counts": [3, *[0] * (len(LATE_BUCKETS_NS) - 1), 1]}
    return {"event": "progress", "now_ns": now_ns, "tenants": tenants, **late}


def counts(**values):
    tally = Tally()
    for name, value in values.items():
        setattr(tally, name, value)
    return tally.counts()


def said(metrics):
    return text(metrics.families()).decode().splitlines()


def test_a_trial_as_it_goes():
    metrics = TrialMetrics(Profile.model_validate(WORKED_EXAMPLE), "fair")
    waits = [0, 2, *[0] * 14]
    d = counts(due=10, held_back=2, replans=4, served=3, refused=4, in_flight=1, wait_ns=3_000_000, wait_counts=waits)
    assert metrics.add(event(D=d, A=counts(due=5, served=5)))
    lines = said(metrics)
    for line in (
        'overload_trial_info{profile="worked-example",variant="fair"} 1',
        "overload_trial_elapsed_seconds 40",
        'overload_trial_phase{phase="burst"} 1',
        'overload_trial_phase{phase="calm"} 0',
        'overload_trial_ordinary{tenant="A"} 1',
        'overload_calls_total{source="callers",tenant="D"} 10',
        'overload_offered_total{source="callers",tenant="D"} 8',
        'overload_held_back_total{source="callers",tenant="D"} 2',
        'overload_replans_total{source="callers",tenant="D",rounds="recorded"} 4',
        'overload_replan_share{source="callers",tenant="D",rounds="recorded"} 0.4',
        'overload_queue_wait_seconds_bucket{source="callers",tenant="D",le="0.002"} 2',
        'overload_queue_wait_seconds_sum{source="callers",tenant="D"} 0.003',
        'overload_trial_lateness_seconds_bucket{le="0.00001"} 3',
        'overload_trial_lateness_seconds_bucket{le="+Inf"} 4',
        "overload_trial_lateness_limit_seconds 0.02",
    ):
        assert line in lines, line
    assert 'overload_trial_ordinary{tenant="D"} 1' not in lines


def test_before_the_first_event_there_is_a_whole_answer_too():
    lines = said(TrialMetrics(Profile.model_validate(WORKED_EXAMPLE)))
    assert 'overload_trial_phase{phase="calm"} 1' in lines
    assert "# TYPE overload_offered_total counter" in lines


def test_what_is_no_progress_is_passed_over():
    metrics = TrialMetrics(Profile.model_validate(WORKED_EXAMPLE))
    for other in ({}, {"event": "waiting"}, {"event": "progress"}, {"event": "progress", "tenants": []}):
        assert not metrics.add(other)
    assert 'overload_trial_phase{phase="calm"} 1' in said(metrics)


def test_the_rest_of_very_many_share_a_label():
    tenants = {f"t{place}": {"rate": "1/s"} for place in range(MOST_LABELLED + 5)}
    document = with_values(WORKED_EXAMPLE, {"tenants": tenants, "ordinary": list(tenants)})
    metrics = TrialMetrics(Profile.model_validate(document))
    metrics.add(event(t0=counts(due=1)) | {"rest": counts(due=7)})
    lines = said(metrics)
    assert 'overload_calls_total{source="callers",tenant="(others)"} 7' in lines
    assert sum(line.startswith("overload_trial_ordinary{") for line in lines) == MOST_LABELLED


def test_without_a_described_service_there_is_no_limit_of_lateness():
    document = {key: value for key, value in WORKED_EXAMPLE.items() if key != "service"}
    metrics = TrialMetrics(Profile.model_validate(document))
    assert not [line for line in said(metrics) if line.startswith("overload_trial_lateness_limit_seconds ")]
