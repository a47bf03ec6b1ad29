"""Simulated calls per second: ours against the same model in SimPy, in one go; growth with calls and with tenants.

    python -m benchmarks.simulate

Prints tables; asserts nothing. One core, no ledger file.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator

import simpy

from harness.measure.tally import Tally
from harness.profile.model import Profile
from harness.simulate.driver import Simulation

NS = 1_000_000_000


def worked_example(duration_s: int = 120, replans: bool = True) -> Profile:
    burst = {"from": f"{duration_s // 4}s", "to": f"{duration_s * 7 // 12}s", "rate": "40/s"}
    agent = {"rate": ["8/s", burst]}
    if replans:
        agent["replans"] = {"calls": 2, "after": "500ms", "rounds": 3}
    return Profile.model_validate(
        {
            "name": "bench",
            "duration": f"{duration_s}s",
            "patience": "2s",
            "patience_until": "start",
            "service": {"workers": 8, "service_time": "200ms", "admission": {"policy": "shared_fifo", "queue": 200}},
            "tenants": {**{name: {"rate": "8/s"} for name in "ABC"}, "D": agent},
        }
    )


def many_tenants(tenants: int, calls: int = 100_000) -> Profile:
    """The same offered load and capacity (0.8), dealt to more tenants."""
    rate, duration_s = 400, calls // 400
    return Profile.model_validate(
        {
            "name": "bench",
            "duration": f"{duration_s}s",
            "service": {
                "workers": 100,
                "service_time": "200ms",
                "admission": {"policy": "fair_queues", "queue_per_tenant": 50},
            },
            "tenants": {
                f"t{i}": {"rate": f"{rate / tenants:.6f}/s", "phase": f"{i * 2_500_000 % (duration_s * NS)}ns"}
                for i in range(tenants)
            },
        }
    )


def ours(profile: Profile) -> int:
    tally = Tally(list(profile.tenants))
    Simulation(profile, tally.add).run()
    return sum(row.due for row in tally.tenants)


def with_simpy(profile: Profile) -> int:
    """The model of `worked_example` (shared FIFO, patience until start, re-plans) as one writes it in SimPy."""
    env = simpy.Environment()
    assert profile.service is not None
    assert profile.patience is not None
    workers, queue = profile.service.workers.base, profile.service.admission.queue or 0
    service_s, patience_s, end_s = (
        (profile.service.service_time.mean or 0) / NS,
        profile.patience / NS,
        profile.duration / NS,
    )
    pool = simpy.Resource(env, workers)
    calls = 0

    def call(name: str, round_: int) -> Iterator[simpy.Event]:
        nonlocal calls
        calls += 1
        if len(pool.queue) >= queue + workers - pool.count:
            again(name, round_)
            return
        with pool.request() as turn:
            result = yield turn | env.timeout(patience_s)
            if turn not in result:
                again(name, round_)
                return
            yield env.timeout(service_s)

    def again(name: str, round_: int) -> None:
        rule = profile.tenants[name].replans
        if rule and round_ < rule.rounds and env.now + rule.after / NS < end_s:
            for _ in range(rule.calls):
                env.process(later(name, round_ + 1, rule.after / NS))

    def later(name: str, round_: int, after_s: float) -> Iterator[simpy.Event]:
        yield env.timeout(after_s)
        yield env.process(call(name, round_))

    def tenant(name: str) -> Iterator[simpy.Event]:
        rates = profile.tenants[name].rate
        assert rates is not None
        for from_ns, to_ns, rate in rates.segments(profile.duration):
            at = from_ns / NS
            while at < to_ns / NS - 1e-9:
                yield env.timeout(max(0.0, at - env.now))
                env.process(call(name, 0))
                at += 1 / float(rate)

    for name in profile.tenants:
        env.process(tenant(name))
    env.run()
    return calls


def timed(run: Callable[[], int], repeats: int = 3) -> tuple[int, float]:
    """(calls, best seconds of CPU)."""
    best, calls = float("inf"), 0
    for _ in range(repeats):
        gc.collect()
        begin = time.process_time()
        calls = run()
        best = min(best, time.process_time() - begin)
    return calls, best


def main() -> None:
    print("shared service, worked example, one core, no ledger file")
    print(f"{'':34}{'calls':>10}{'calls/s':>12}{'ratio':>8}")
    for label, profile in (("with re-plans", worked_example(1200)), ("no re-plans", worked_example(1200, False))):
        calls, seconds = timed(lambda profile=profile: ours(profile))
        peer_calls, peer_seconds = timed(lambda profile=profile: with_simpy(profile))
        mine, peer = calls / seconds, peer_calls / peer_seconds
        print(f"overload, {label:24}{calls:>10,}{mine:>12,.0f}{mine / peer:>8.1f}")
        print(f"SimPy,    {label:24}{peer_calls:>10,}{peer:>12,.0f}{1:>8.1f}")
    print("\ngrowth with calls (us a call)")
    for duration_s in (120, 480, 1920, 7680):
        calls, seconds = timed(lambda duration_s=duration_s: ours(worked_example(duration_s)), repeats=2)
        print(f"  {calls:>10,} calls  {seconds / calls * 1e6:6.2f}")
    print("\ngrowth with tenants, same offered load (us a call)")
    for tenants in (4, 40, 400, 4000, 10000):
        profile = many_tenants(tenants)
        calls, seconds = timed(lambda profile=profile: ours(profile), repeats=2)
        print(f"  {tenants:>10,} tenants  {calls:>9,} calls  {seconds / calls * 1e6:6.2f}")


if __name__ == "__main__":
    main()
