"""How many steps a second the controller's flows do on the virtual loop, on one core. Target: 40,000.

    python -m benchmarks.controller [--steps N] [--profile]

Four rows, each around the one before, so that it shows what each part costs a step:

    loop         a coroutine a step that sleeps once: what the virtual loop itself can do
    controller   Controller.submit, one step a batch, over a dependency that only sleeps; decisions counted, not kept
    dependencies the same over worker pools, with arrivals and effects
    trial        the whole: run callers, JSON bodies, the API, and the rows of the ledger (made, not written)
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import Any

from harness.profile.model import Profile
from harness.simulate.record import files_of, simulation_of
from harness.simulate.service import capacity_config
from harness.simulate.virtual_loop import VirtualLoop, run_virtual
from stub_service.capacity.controller import Controller
from stub_service.capacity.ports import Batch, DependencyAnswer, DependencyCall, RunWish, Step
from stub_service.dependency.model import Dependencies, in_process

TARGET_PER_S = 40_000
AGENTS = 20
STEPS_A_RUN = 20
TRIES = 3

DEPENDENCY = {
    "workers": 100,
    "service_time": "10ms",
    "reads": {"limit": 80, "timeout": "1s"},
    "writes": {"limit": 20, "timeout": "1s"},
    "circuit": {"window": "1s", "slow": "500ms", "open_for": "1s", "lease": "1s"},
}


def profile_of(steps: int) -> Profile:
    """Agents that begin together, each with runs of twenty batches of one step, over three dependencies."""
    names = ("customer", "billing", "notification")
    batches = [[{"dependency": names[place % 3]}] for place in range(STEPS_A_RUN)]
    runs = max(1, steps // STEPS_A_RUN)
    return Profile.model_validate(
        {
            "name": "bench",
            "duration": "10000s",
            "capacity": {
                "ceiling": 200,
                "dependencies": dict.fromkeys(names, DEPENDENCY),
                "reserves": {"interactive": {"slots": 10, "floor": 2}},
                "envelope": {"attempts": STEPS_A_RUN, "budgets": dict.fromkeys(names, STEPS_A_RUN)},
                "retry": {"base": "100ms", "most": "1s"},
                "recovery": {"from_rate": "50/s", "to_rate": "500/s", "ramp": "1s"},
            },
            "tenants": {"A": {"runs": [{"name": "g", "rate": "80/s", "to": f"{runs / 80}s", "batches": batches}]}},
        }
    )


async def loop_alone(steps: int) -> int:
    async def step() -> None:
        await asyncio.sleep(0.01)

    async def agent() -> None:
        for _ in range(steps // AGENTS):
            await asyncio.get_running_loop().create_task(step())

    await asyncio.gather(*(agent() for _ in range(AGENTS)))
    return steps


async def controller_over(steps: int, make_call: Callable[[Any], Any]) -> int:
    config = capacity_config(profile_of(steps))
    counted = [0]

    def record(_: object) -> None:
        counted[0] += 1

    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    controller = Controller(config, loop.now_ns, make_call((config, loop.now_ns, record)), record)
    step = [Batch(f"b{place}", (Step("s", config.dependencies[place % 3].name),)) for place in range(STEPS_A_RUN)]
    wish = RunWish("interactive")

    async def agent() -> int:
        done = 0
        while done < steps // AGENTS:
            run = controller.open_run("A", wish).run
            assert run is not None
            for batch in step:
                result = await controller.submit(run, batch)
                assert result.outcome == "served", result
            controller.finish(run)
            done += STEPS_A_RUN
        return done

    return sum(await asyncio.gather(*(agent() for _ in range(AGENTS))))


def sleeping(_: Any) -> Any:
    answer = DependencyAnswer(200)

    async def call(asked: DependencyCall) -> DependencyAnswer:
        await asyncio.sleep(0.01)
        return answer

    return call


def pools(given: Any) -> Any:
    config, now_ns, record = given
    return in_process(Dependencies(config, now_ns, record, record))


def whole_trial(steps: int) -> int:
    profile = profile_of(steps)
    rows = [0]

    def add(_: bytes) -> None:
        rows[0] += 1

    simulation_of(profile, dict.fromkeys(files_of(profile), add)).run()
    return steps


def virtual(main: Callable[[], Coroutine[Any, Any, int]]) -> Callable[[], int]:
    return lambda: run_virtual(main())


def flows(steps: int) -> dict[str, Callable[[], int]]:
    return {
        "loop": virtual(lambda: loop_alone(steps)),
        "controller": virtual(lambda: controller_over(steps, sleeping)),
        "dependencies": virtual(lambda: controller_over(steps, pools)),
        "trial": lambda: whole_trial(steps),
    }


def measure(flow: Callable[[], int]) -> float:
    """Steps a second: the best of some tries, since other load can only slow it down."""
    best = 0.0
    for _ in range(TRIES):
        began = perf_counter()
        done = flow()
        best = max(best, done / (perf_counter() - began))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--profile", choices=["controller", "dependencies", "trial"], help="where its time goes")
    options = parser.parse_args()
    made = flows(options.steps)
    if options.profile:
        profiler = cProfile.Profile()
        profiler.runcall(made[options.profile])
        pstats.Stats(profiler).sort_stats("tottime").print_stats(30)
        return
    print(f"{'flow':14}{'steps/s':>12}{'us a step':>12}{'of target':>12}")
    for name, flow in made.items():
        per_s = measure(flow)
        print(f"{name:14}{per_s:12,.0f}{1e6 / per_s:12.1f}{per_s / TARGET_PER_S:12.2f}")


if __name__ == "__main__":
    main()
