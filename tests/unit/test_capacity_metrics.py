"""What Prometheus is told of the capacity layer."""

from __future__ import annotations

from stub_service.capacity.cost_config import BucketLimits, CostConfig
from stub_service.capacity.costs import CostControl
from stub_service.capacity.records import Arrival, CostDecision, Decision
from stub_service.capacity_metrics import MOST_TENANTS, BulkheadFigures, CapacityMetrics
from stub_service.exposition import MOST_LABELLED, OTHERS, text

MS = 1_000_000


def decision(kind, outcome, **more):
    return Decision(0, kind, outcome, **({"traffic_class": "interactive", "dependency": 'b"g'} | more))


def test_it_counts_what_was_decided_and_what_arrived():
    metrics = CapacityMetrics(['b"g'])
    for one in (
        decision("step", "queued"), decision("step", "admitted", queue_wait_ns=3 * MS), decision("step", "served"),
        decision("step", "throttled"), decision("step", "throttled"), decision("retry", "scheduled"),
        decision("retry", "denied"), decision("run", "opened", dependency=None), decision("circuit", "opened"),
        decision("batch", "admitted"), decision("lend", "lent"),
    ):  # fmt: skip
        metrics.decided(one)
    metrics.arrived(Arrival(0, 0, 0, 'b"g', "read", 0))
    metrics.committed('b"g')
    said = text(metrics.families({'b"g': (2, 1)}, [BulkheadFigures('b"g', "read", 3, 4, 5)])).decode()
    label = 'dependency="b\\"g"'
    for line in (
        "# TYPE overload_stub_steps_total counter",
        f'overload_stub_steps_total{{class="interactive",{label},outcome="served"}} 1',
        f'overload_stub_steps_total{{class="interactive",{label},outcome="throttled"}} 2',
        f'overload_stub_step_queue_wait_seconds_bucket{{class="interactive",{label},le="0.002"}} 0',
        f'overload_stub_step_queue_wait_seconds_bucket{{class="interactive",{label},le="0.005"}} 1',
        f'overload_stub_step_queue_wait_seconds_sum{{class="interactive",{label}}} 0.003',
        f'overload_stub_retries_total{{{label},outcome="denied"}} 1',
        'overload_stub_runs_total{class="interactive",outcome="opened"} 1',
        f"overload_stub_circuit_state{{{label}}} 2",
        f'overload_stub_arrivals_total{{{label},operation="read",status="0"}} 1',
        f"overload_stub_effects_total{{{label}}} 1",
        f"overload_stub_dependency_in_use{{{label}}} 2",
        f"overload_stub_dependency_waiting{{{label}}} 1",
        f'overload_stub_controller_in_use{{{label},operation="read"}} 3',
        f'overload_stub_controller_waiting{{{label},operation="read"}} 4',
        f'overload_stub_controller_limit{{{label},operation="read"}} 5',
    ):
        assert line in said.splitlines()
    assert 'outcome="admitted"' not in said
    metrics.restart()
    assert "overload_stub_steps_total{" not in text(metrics.families({})).decode()


def test_what_runs_cost_is_told_per_tenant():
    """Forecast and actual of the same runs: those that are settled."""
    metrics, now = CapacityMetrics([]), [0]
    limits = (BucketLimits("A", 10.0, 100), BucketLimits("B", 1.0, 50))
    costs = CostControl(CostConfig(buckets=limits), lambda: now[0], metrics.decided, lambda run, why: None)
    for tenant in ("A", "B", "free"):
        costs.bucket_of(tenant)
    claim = costs.buckets["A"].reserve(30, 0)
    costs.buckets["B"].charge(60)
    for tenant, outcome, forecast, actual in (("A", "admitted", 40, None), ("A", "settled", 40, 25),
                                              ("A", "refused", 999, None), ("free", "settled", 7, 9)):  # fmt: skip
        metrics.decided(CostDecision(0, outcome, request_class="chat_turn", tenant=tenant, forecast=forecast,
                                     actual=actual, reason="tokens" if outcome == "refused" else None))  # fmt: skip
    now[0] = 2_000_000_000
    said = text(metrics.families({}, (), costs)).decode().splitlines()
    assert claim.held == 30
    for line in (
        'overload_stub_cost_balance{tenant="A"} 100',
        'overload_stub_cost_reserved{tenant="A"} 30',
        'overload_stub_cost_balance{tenant="B"} -8',
        'overload_stub_cost_forecast_total{tenant="A"} 40',
        'overload_stub_cost_actual_total{tenant="A"} 25',
        'overload_stub_cost_actual_total{tenant="B"} 0',
        'overload_stub_cost_forecast_total{tenant="free"} 7',
        'overload_stub_cost_actual_total{tenant="free"} 9',
        'overload_stub_cost_decisions_total{request_class="chat_turn",outcome="refused",reason="tokens"} 1',
        'overload_stub_cost_in_use{pool="sessions"} 0',
        "overload_stub_cost_waiting 0",
    ):
        assert line in said
    assert not any(line.startswith('overload_stub_cost_balance{tenant="free"') for line in said)


def test_tenants_of_costs_are_bounded():
    metrics = CapacityMetrics([])
    costs = CostControl(CostConfig(), lambda: 0, metrics.decided, lambda run, why: None)
    for place in range(MOST_TENANTS + 5):
        metrics.decided(CostDecision(0, "settled", tenant=f"t{place}", forecast=1, actual=2))
    said = text(metrics.families({}, (), costs)).decode().splitlines()
    actual = [line for line in said if line.startswith("overload_stub_cost_actual_total")]
    assert len(actual) == MOST_LABELLED + 1
    rest = MOST_TENANTS + 5 - MOST_LABELLED
    assert actual[-1] == f'overload_stub_cost_actual_total{{tenant="{OTHERS}"}} {2 * rest}'
