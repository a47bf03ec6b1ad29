"""`--time-scale` changes durations and rates, and neither counts nor shares."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from harness.profile.base import DurationNs, Part, RatePerS
from harness.profile.loader import load
from harness.profile.scale import scale_ns, scaled
from harness.workload.plan import planned

PROFILES = Path(__file__).parents[2] / "profiles"


class Inner(Part):
    wait: DurationNs


class Params(Part):
    bound: DurationNs
    perhaps: DurationNs | None = None
    rate: RatePerS
    share: float = 0.5
    count: int = 7
    inner: Inner | None = None
    many: list[DurationNs]
    parts: dict[str, Inner]
    pair: tuple[DurationNs, ...] = ()


PARAMS = Params.model_validate(
    {
        "bound": "1s",
        "perhaps": "2s",
        "rate": "1/s",
        "inner": {"wait": "3s"},
        "many": ["4s"],
        "parts": {"x": {"wait": "5s"}},
        "pair": ["6s", "8s"],
    }
)


def test_every_marked_field_of_any_part_is_scaled_wherever_it_stands():
    half = scaled(PARAMS, 0.5)
    assert (half.bound, half.perhaps, half.inner.wait) == (500_000_000, 1_000_000_000, 1_500_000_000)
    assert (half.many, half.parts["x"].wait, half.pair) == (
        [2_000_000_000],
        2_500_000_000,
        (3_000_000_000, 4_000_000_000),
    )
    assert half.rate == 2
    assert (half.share, half.count) == (0.5, 7)
    assert PARAMS.bound == 1_000_000_000


def test_what_is_not_given_stays_so():
    bare = scaled(Params.model_validate({"bound": "0s", "rate": "0/s", "many": [], "parts": {}}), 0.5)
    assert (bare.bound, bare.perhaps, bare.inner, bare.rate) == (0, None, None, 0)


def test_the_factor_is_the_decimal_that_was_written():
    assert scaled(PARAMS, 0.3).bound == 300_000_000
    assert scaled(PARAMS, 0.3).rate == Fraction(10, 3)


def test_a_duration_never_vanishes():
    assert scale_ns(1, Fraction(1, 1000)) == 1
    assert scale_ns(0, Fraction(1, 1000)) == 0


def test_a_profile_scales_whole():
    profile = load(PROFILES / "worked_example.yaml", variant="budget", time_scale=0.25).profile
    agent = profile.tenants["D"]
    assert profile.duration == 30_000_000_000
    assert profile.phases.burst.to_ns == 17_500_000_000
    assert (profile.patience, profile.drain) == (500_000_000, 2_500_000_000)
    assert profile.service.service_time.mean == 50_000_000
    assert profile.service.workers.base == 8
    assert (agent.rate.base, agent.rate.steps[0].rate, agent.rate.steps[0].from_ns) == (32, 160, 7_500_000_000)
    assert (agent.replans.after, agent.replans.calls, agent.replans.rounds) == (125_000_000, 2, 3)
    assert (agent.budget[0].rate, agent.budget[0].burst) == (40, 10)


def test_workers_over_time_scale_with_it():
    profile = load(PROFILES / "autoscaling.yaml", time_scale=0.5).profile
    segments = list(profile.service.workers.segments(profile.duration))
    assert segments == [
        (0, 25_000_000_000, 8),
        (25_000_000_000, 45_000_000_000, 16),
        (45_000_000_000, 60_000_000_000, 8),
    ]


@pytest.mark.parametrize("name", ["worked_example", "poisson_lognormal", "steady"])
@pytest.mark.parametrize("scale", [0.5, 0.25, 0.3])
def test_planned_calls_do_not_depend_on_the_scale(name, scale):
    path = PROFILES / f"{name}.yaml"
    assert planned(load(path, time_scale=scale).profile) == planned(load(path).profile)
