"""The shared service without a clock: workers, starts, refusals; and each policy by the smallest examples."""

from __future__ import annotations

import math
from random import Random
from statistics import fmean, pvariance

import pytest

from stub_service.admission.policy import GONE, RUNNING, WAITING, Ticket
from stub_service.admission.registry import build
from stub_service.admission.service import SharedService
from stub_service.config import AdmissionConfig, ServiceTimeConfig, SharedServiceConfig, from_json, to_json
from stub_service.dependency import service_time

MS = 1_000_000
FIFO = AdmissionConfig("shared_fifo", queue=2)


def service(workers=((0, 1),), admission=FIFO, mean_ns=100 * MS, **times) -> SharedService:
    return SharedService(SharedServiceConfig(workers, ServiceTimeConfig(mean_ns=mean_ns, **times), admission))


def offer(made: SharedService, tenant: str, now_ns: int = 0) -> Ticket:
    ticket = Ticket(tenant, -1.0, None)
    made.offer(ticket, now_ns)
    return ticket


def test_a_call_from_arrival_to_end():
    made = service()
    first, second = offer(made, "A", 5), offer(made, "A", 6)
    assert made.start_ready(7) == [first]
    assert (first.state, first.arrived_ns, first.started_ns, first.service_ns) == (RUNNING, 5, 7, 100 * MS)
    assert (second.state, made.running, made.policy.waiting) == (WAITING, 1, 1)
    assert made.start_ready(8) == []
    made.finish(first)
    assert (first.state, made.running) == (GONE, 0)
    assert made.start_ready(9) == [second]


def test_queue_bound_does_not_count_what_free_workers_take():
    made = service(workers=((0, 3),))
    assert [offer(made, "A").state for _ in range(6)] == [WAITING] * 5 + [GONE]
    assert len(made.start_ready(0)) == 3


def test_only_a_waiting_call_can_leave():
    made = service()
    running, waiting = offer(made, "A"), offer(made, "A")
    made.start_ready(0)
    assert made.leave(running) is False
    assert made.leave(waiting) is True
    assert made.leave(waiting) is False
    assert (made.running, made.policy.waiting) == (1, 0)


def test_workers_follow_their_schedule_and_running_calls_are_not_killed():
    made = service(workers=((0, 2), (10, 4), (20, 1)), admission=AdmissionConfig("shared_fifo", queue=9))
    assert made.worker_changes() == [10, 20]
    tickets = [offer(made, "A") for _ in range(8)]
    counts = []
    for now_ns in (-5, 0, 9, 10, 19, 20, 99):
        made.set_time(now_ns)
        counts.append(made.workers)
        made.start_ready(now_ns)
    assert counts == [2, 2, 2, 4, 4, 1, 1]
    assert made.running == 4
    for ticket in tickets[:3]:
        made.finish(ticket)
        assert made.start_ready(100) == []
    made.finish(tickets[3])
    assert made.start_ready(100) == [tickets[4]]


@pytest.mark.parametrize(
    ("waiting", "mean_ms", "workers", "retry_after_s"),
    [(1, 100, 1, 1), (2, 3000, 1, 6), (2, 3001, 1, 7), (2, 3000, 4, 2)],
)
def test_retry_after_is_when_what_waits_ahead_should_have_started(waiting, mean_ms, workers, retry_after_s):
    made = service(((0, workers),), AdmissionConfig("shared_fifo", queue=waiting), mean_ms * MS)
    for _ in range(workers):
        offer(made, "A")
    made.start_ready(0)
    for _ in range(waiting):
        assert offer(made, "A").state == WAITING
    refused = Ticket("B", -1.0, None)
    assert made.offer(refused, 0) == "queue_full"
    answer = made.refusal(refused, "queue_full")
    assert (answer.status, answer.retry_after, answer.delay_ns) == (429, str(retry_after_s), 0)
    assert answer.body == {
        "outcome": "throttled", "reason": "queue_full", "tenant": "B", "retry_after_s": retry_after_s,
    }  # fmt: skip


def takes(policy, offers, free=0):
    """Tenants as taken, and those refused."""
    refused = [ticket.tenant for ticket in (Ticket(t, -1.0, None) for t in offers) if policy.offer(ticket, free)]
    taken = []
    while (ticket := policy.take()) is not None:
        taken.append(ticket.tenant)
    return "".join(taken), "".join(refused)


def test_policies_by_example():
    assert takes(build(AdmissionConfig("shared_fifo", queue=5)), "DDDABDC") == ("DDDAB", "DC")
    assert takes(build(AdmissionConfig("fair_queues", queue_per_tenant=2)), "DDDABDC") == ("DABCD", "DD")
    assert takes(build(AdmissionConfig("fair_queues", queue_per_tenant=2)), "DDDABDC", free=2) == ("DABCDD", "D")
    assert takes(build(AdmissionConfig("tenant_cap", queue=5, cap=2)), "DDDABDC") == ("DDAB", "DC")


def test_a_capped_tenant_is_skipped_and_comes_back():
    policy = build(AdmissionConfig("tenant_cap", queue=9, cap=1))
    first, second, other = (Ticket(tenant, -1.0, None) for tenant in "DDA")
    for ticket in (first, second, other):
        assert policy.offer(ticket, 0) is None
    assert [policy.take(), policy.take(), policy.take()] == [first, other, None]
    policy.finished(first)
    assert policy.take() is second


def test_an_unknown_policy_names_the_known_ones():
    with pytest.raises(
        ValueError, match=r"unknown policy 'lifo' \(known: shared_fifo, tenant_cap, fair_queues, shuffle_sharded\)"
    ):
        build(AdmissionConfig("lifo"))


def test_configuration_survives_json():
    config = SharedServiceConfig(
        ((0, 2), (5, 3)),
        ServiceTimeConfig("lognormal", 5, 0.5, load_slope=1.5),
        AdmissionConfig("tenant_cap", 3, 0, 2),
        9,
    )
    assert from_json(to_json(config)) == config


def test_service_times():
    rng = Random(1)
    fixed = service_time.build(ServiceTimeConfig(mean_ns=7), rng)
    assert {fixed(-1.0, running, 8) for running in range(1, 9)} == {7}
    cost = service_time.build(ServiceTimeConfig("recorded_cost", base_ns=10, per_unit_ns=3, cap_ns=100), rng)
    assert [cost(c, 1, 1) for c in (-1.0, 0.0, 1.0, 2.5, 1e12)] == [10, 10, 13, 17, 100]
    grows = service_time.build(ServiceTimeConfig(mean_ns=100, load_slope=0.5), rng)
    assert [grows(-1.0, running, 4) for running in (1, 2, 4)] == [112, 125, 150]
    assert grows(-1.0, 1, 0) == 150
    with pytest.raises(ValueError, match="unknown service time 'x'"):
        service_time.build(ServiceTimeConfig("x"), rng)


def test_lognormal_has_the_stated_mean_and_spread():
    draw = service_time.build(ServiceTimeConfig("lognormal", mean_ns=50 * MS, sigma=0.5), Random(4))
    times = [draw(-1.0, 1, 1) for _ in range(20_000)]
    assert fmean(times) == pytest.approx(50 * MS, rel=0.02)
    logs = [math.log(time) for time in times]
    assert fmean(logs) == pytest.approx(math.log(50 * MS) - 0.125, abs=0.02)
    assert pvariance(logs) == pytest.approx(0.25, rel=0.05)


def test_a_seed_repeats_its_service_times_and_another_does_not():
    def draw(seed):
        config = SharedServiceConfig(((0, 9),), ServiceTimeConfig("lognormal", 10**6, 1.0), FIFO, seed)
        made = SharedService(config)
        for _ in range(9):
            offer(made, "A")
        return [ticket.service_ns for ticket in made.start_ready(0)]

    assert draw(1) == draw(1) != draw(2)
