"""The simulator against the exact figures of the worked example, against itself, and against a naive oracle."""

from __future__ import annotations

import subprocess
import sys
from random import Random

import pytest

from harness import checks
from harness.cli import simulate
from harness.ledger.outcomes import ABANDONED, HELD_BACK, OPEN, SERVED, THROTTLED
from harness.ledger.rows import call_row
from harness.profile.loader import load
from harness.profile.model import Profile
from harness.shipped import VERIFICATION
from harness.simulate.driver import Simulation
from harness.simulate.ensemble import figures, figures_of, member, with_phases
from harness.simulate.record import calls_to, decisions_to
from tests.conftest import CAP, FAIR, ROOT

S = 1_000_000_000


def ledger(profile, **kwargs):
    calls, decisions = [], []
    Simulation(profile, calls_to(calls.append), decisions_to(decisions.append), **kwargs).run()
    return b"".join(calls), b"".join(decisions)


@pytest.mark.parametrize(
    ("values", "offers", "replans", "held_back"),
    [
        ({"tenants.D.replans": None}, 2240, 0, 0),
        ({"tenants.D.budget": {"rate": "10/s", "burst": 10}}, 1049, 0, 1191),
        ({"service.workers": 16}, 2240, 0, 0),
    ],
)
def test_exact_counts_of_the_worked_example(worked_example, values, offers, replans, held_back):
    made = figures(worked_example(values))
    assert (made.agent_offers, made.replans, made.held_back) == (offers, replans, held_back)


@pytest.mark.parametrize(
    "values",
    [
        {"service.admission": FAIR},
        {"tenants.D.budget": {"rate": "10/s", "burst": 10}},
        {"service.workers": 16},
    ],
)
def test_protected_rows_serve_every_ordinary_call(worked_example, values):
    made = figures(worked_example(values))
    assert (made.ordinary_served, made.worst_ordinary) == (1.0, 1.0)


def test_unprotected_rows_hurt_the_ordinary_tenants_at_every_phase(worked_example):
    for policy in ({}, {"service.admission": CAP}):
        shares = [member(worked_example(policy), 1, k).ordinary_served for k in range(5)]
        assert max(shares) < 0.97


def test_worker_seconds_show_what_doubling_costs(worked_example):
    assert figures(worked_example()).worker_s == 960
    assert figures(worked_example({"service.workers": 16})).worker_s == 1920
    steps = [8, {"from": "60s", "to": "90s", "workers": 16}]
    assert figures(worked_example({"service.workers": steps})).worker_s == 8 * 90 + 16 * 30


def test_same_profile_and_seed_same_bytes_also_in_another_process(worked_example):
    profile = worked_example({"duration": "50s", "phases": {}, "tenants.D.rate": "40/s", "tenants.A.pace": "poisson"})
    once = ledger(profile)
    assert once == ledger(profile)
    code = (
        "import hashlib, sys, json; from harness.profile.model import Profile;"
        "from tests.unit.test_simulation import ledger; from tests.conftest import WORKED_EXAMPLE, with_values;"
        "p = Profile.model_validate(with_values(WORKED_EXAMPLE, json.loads(sys.stdin.read())));"
        "print(hashlib.sha256(b''.join(ledger(p))).hexdigest())"
    )
    import hashlib
    import json

    values = {"duration": "50s", "phases": {}, "tenants.D.rate": "40/s", "tenants.A.pace": "poisson"}
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(values), capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.strip() == hashlib.sha256(b"".join(once)).hexdigest()
    other = profile.model_copy(update={"seed": 2})
    assert ledger(other) != once


def test_the_ensemble_repeats_with_its_seed_and_varies_without(worked_example):
    profile = worked_example()
    assert member(profile, 7, 3) == member(profile, 7, 3)
    assert len({member(profile, 7, k).replans for k in range(4)}) > 1
    phases = [t.phase for t in with_phases(profile, Random(1)).tenants.values()]
    assert len(set(phases)) == 4
    assert max(phases) < S // 8


def small(**over):
    document = {
        "name": "small",
        "duration": "4s",
        "patience": "300ms",
        "patience_until": "start",
        "service": {"workers": 1, "service_time": "200ms", "admission": {"policy": "shared_fifo", "queue": 2}},
        "tenants": {"A": {"rate": "1/s"}, "B": {"rate": "4/s", "phase": "0s"}},
    }
    document.update(over)
    return Profile.model_validate(document)


def run(profile):
    calls = []
    end = Simulation(profile, calls.append).run()
    return calls, end


def test_a_call_is_abandoned_when_it_has_waited_exactly_its_patience():
    profile = small(
        tenants={"A": {"rate": ["0/s", {"from": "0s", "to": "2500us", "rate": "1000/s"}]}}, duration="900ms"
    )
    calls, _ = run(profile)
    waited = [(c.outcome, c.done_ns - c.due_ns) for c in calls]
    # 0 starts at 0; 1 (due 1 ms) starts at 200 ms; 2 (due 2 ms) would start at 400 ms, and gives up at 302 ms.
    assert (ABANDONED, 300_000_000) in waited
    assert [c.outcome for c in sorted(calls, key=lambda c: c.seq)] == [SERVED, SERVED, ABANDONED]


def test_an_abandonment_comes_before_a_start_of_the_same_instant():
    profile = small(
        tenants={"A": {"rate": ["0/s", {"from": "0s", "to": "900us", "rate": "2000/s"}]}},
        duration="900ms",
        patience="199500us",
    )
    calls, _ = run(profile)
    second = next(c for c in calls if c.seq == 1)
    assert second.outcome == ABANDONED


def test_patience_until_done_hangs_up_on_a_running_call_whose_worker_stays_busy():
    profile = small(tenants={"A": {"rate": "10/s"}}, patience="150ms", patience_until="done", duration="1s")
    calls, _ = run(profile)
    first = min(calls, key=lambda c: c.due_ns)
    assert (first.outcome, first.done_ns) == (ABANDONED, 150_000_000)
    assert all(c.outcome in (ABANDONED, THROTTLED) for c in calls)


def test_workers_that_come_and_go_are_used_and_given_back():
    document = small(
        tenants={"A": {"rate": "20/s"}},
        patience=None,
        service={
            "workers": [1, {"from": "1s", "to": "2s", "workers": 8}],
            "service_time": "200ms",
            "admission": {"policy": "shared_fifo", "queue": 100},
        },
    )
    calls, _ = run(document)
    served_in = [sum(c.outcome == SERVED and k * S < c.done_ns <= (k + 1) * S for c in calls) for k in range(4)]
    assert served_in[0] == 5
    assert served_in[1] > 25
    assert served_in[3] == 5


def test_what_is_unfinished_at_the_drain_limit_is_open_and_nothing_is_lost():
    profile = small(tenants={"A": {"rate": "50/s"}}, patience=None, drain="300ms", duration="1s", service={
        "workers": 1, "service_time": "200ms", "admission": {"policy": "shared_fifo", "queue": 1000}})  # fmt: skip
    calls, end = run(profile)
    assert len(calls) == 50
    assert len({c.id for c in calls}) == 50
    assert end == 1_300_000_000
    assert sum(c.outcome == OPEN for c in calls) == 50 - 6


def test_held_back_calls_have_a_row_and_never_reach_the_service():
    profile = small(tenants={"A": {"rate": "10/s", "budget": {"rate": "1/s", "burst": 1}}})
    calls, _ = run(profile)
    held = [c for c in calls if c.outcome == HELD_BACK]
    assert len(held) == 36
    assert b'"attempt":0' in call_row(held[0])
    assert b"sent_ns" not in call_row(held[0])


def naive_fifo(arrivals, workers, service_ns, queue, patience_ns):
    """An independent oracle in fixed steps of 1 ms: (tenant, seq) -> outcome. Slow and plain."""
    step, waiting, running, out = 1_000_000, [], [], {}
    now, todo = 0, sorted(arrivals)
    while todo or waiting or running:
        running = [end for end in running if end > now]
        for item in [w for w in waiting if now >= w[0] + patience_ns]:
            waiting.remove(item)
            out[item[1:]] = ABANDONED
        while todo and todo[0][0] <= now:
            item = todo.pop(0)
            if len(waiting) >= queue + workers - len(running):
                out[item[1:]] = THROTTLED
            else:
                waiting.append(item)
        while waiting and len(running) < workers:
            out[waiting.pop(0)[1:]] = SERVED
            running.append(now + service_ns)
        now += step
    return out


@pytest.mark.parametrize("seed", range(20))
def test_shared_fifo_agrees_with_a_naive_oracle(seed):
    rng = Random(seed)
    workers, queue = rng.randint(1, 4), rng.randint(1, 12)
    rates = [rng.choice([4, 5, 8, 10, 20, 25]) for _ in range(3)]
    document = small(
        tenants={f"T{i}": {"rate": f"{rate}/s", "phase": f"{rng.randint(0, 30)}ms"} for i, rate in enumerate(rates)},
        service={
            "workers": workers,
            "service_time": f"{rng.randint(20, 300)}ms",
            "admission": {"policy": "shared_fifo", "queue": queue},
        },
    )
    calls, _ = run(document)
    arrivals = [(c.due_ns, c.tenant_index, c.seq) for c in calls]
    service_ns, patience = document.service.service_time.mean, document.patience
    assert {(c.tenant_index, c.seq): c.outcome for c in calls} == naive_fifo(
        arrivals, workers, service_ns, queue, patience
    )


@pytest.mark.parametrize("name", ["fairness", "retry_budget"])
def test_the_table_of_variants_counts_the_trial_that_was_judged(name, tmp_path):
    loaded = load(VERIFICATION / f"{name}.yaml", checks=checks.PARAMETERS)
    judged = simulate._simulated(loaded, tmp_path, None)
    assert figures_of(loaded.profile, simulate._counted(judged.trial)) == figures(loaded.profile)
