"""What Prometheus is told of the capacity layer."""

from __future__ import annotations

from stub_service.capacity.records import Arrival, Decision
from stub_service.capacity_metrics import BulkheadFigures, CapacityMetrics

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
    text = metrics.render({'b"g': (2, 1)}, [BulkheadFigures('b"g', "read", 3, 4, 5)])
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
        assert line in text.splitlines()
    assert 'outcome="admitted"' not in text
    metrics.restart()
    assert "overload_stub_steps_total{" not in metrics.render({})
