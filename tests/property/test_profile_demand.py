"""Closed forms against the calls themselves, and what must hold at any scale."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.profile.demand import calls_within, peak_rate_per_s, worst_case_rate_per_s
from harness.profile.loader import from_document
from harness.profile.paths import parse_path, show_path
from harness.profile.scale import scaled
from harness.profile.units import parse_duration, show_duration
from harness.workload.plan import planned

MS = 1_000_000
quick = settings(max_examples=60, deadline=None, derandomize=True)


@st.composite
def profiles(draw):
    """Tenants with steps, phases and odd rates, over 20 s, with three phases that leave gaps."""
    edges = sorted(draw(st.lists(st.integers(0, 20_000), min_size=6, max_size=6, unique=True)))
    phases = {
        name: [f"{edges[2 * i]}ms", f"{edges[2 * i + 1]}ms"] for i, name in enumerate(("calm", "burst", "recovery"))
    }
    tenants = {}
    for name in draw(st.lists(st.sampled_from("ABCDE"), min_size=1, max_size=3, unique=True)):
        cuts = sorted(draw(st.lists(st.integers(0, 20_000), max_size=4, unique=True)))
        steps = [
            {"from": f"{a}ms", "to": f"{b}ms", "rate": f"{draw(st.integers(0, 30))}/s"}
            for a, b in zip(cuts[::2], cuts[1::2], strict=False)
        ]
        base = draw(st.sampled_from(["0/s", "1/s", "7/m", "0.3/s", "13/s"]))
        tenants[name] = {"rate": [base, *steps], "phase": f"{draw(st.integers(0, 3000))}ms"}
        if draw(st.booleans()):
            tenants[name]["replans"] = {
                "calls": draw(st.integers(0, 3)), "after": f"{draw(st.integers(0, 2000))}ms",
                "rounds": draw(st.integers(0, 2)),
            }  # fmt: skip
    return from_document(
        {"name": "a", "duration": "20s", "phases": phases, "tenants": tenants, "patience": "400ms"}
    ).profile


@quick
@given(profile=profiles())
def test_counts_in_closed_form_are_those_of_the_plan(profile):
    plan = planned(profile)
    for name, tenant in profile.tenants.items():
        assert calls_within(profile, tenant) == sum(plan[name].values())
        for phase, window in profile.phases.items():
            assert calls_within(profile, tenant, window) == plan[name].get(phase, 0)


def everything_refused(profile, after_ms: int) -> Counter[int]:
    """Instants [ms] of all calls, if each ends refused or abandoned `after_ms` after it was due."""
    instants: Counter[int] = Counter()
    for tenant in profile.tenants.values():
        one = profile.model_copy(update={"tenants": {"T": tenant}})
        rule = tenant.replans
        level = [due // MS for due in dues(one)]
        instants.update(level)
        for _ in range(rule.rounds if rule else 0):
            level = [at + after_ms + rule.after // MS for at in level for _ in range(rule.calls)]
            instants.update(level)
    return instants


def dues(profile):
    from harness.workload.plan import arrivals, no_recordings

    return arrivals(profile, "T", profile.tenants["T"], no_recordings)


@quick
@given(profile=profiles(), after_ms=st.sampled_from([0, 1, 250, 400]))
def test_no_second_of_refusals_exceeds_the_worst_case(profile, after_ms):
    """In any whole second; one call more a tenant (and its re-plans) for where the second begins."""
    worst = worst_case_rate_per_s(profile)
    instants = everything_refused(profile, after_ms)
    slack = sum(1 + 3 + 9 for _ in profile.tenants)
    for second in range(20):
        sent = sum(count for at, count in instants.items() if second * 1000 <= at < second * 1000 + 1000)
        assert sent <= worst + slack


@quick
@given(profile=profiles(), factor=st.sampled_from([0.5, 0.25, 0.3, 2.0]))
def test_rates_scale_and_counts_do_not(profile, factor):
    small = scaled(profile, factor)
    exact = Fraction(str(factor))
    assert worst_case_rate_per_s(small) == worst_case_rate_per_s(profile) / exact
    assert peak_rate_per_s(small) == peak_rate_per_s(profile) / exact
    for name, tenant in profile.tenants.items():
        assert calls_within(small, small.tenants[name]) == calls_within(profile, tenant)


@quick
@given(path=st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), min_size=1, max_size=4))
def test_a_shown_path_reads_back(path):
    if all(step.isprintable() for step in path):
        assert parse_path(show_path(path)) == tuple(path)
    assert show_path(path).isprintable()


@quick
@given(ns=st.integers(0, 10**15))
def test_a_shown_duration_reads_back(ns):
    if ns >= 10**12 and show_duration(ns).endswith("ns"):
        return  # more digits than a person may write
    assert parse_duration(show_duration(ns)) == ns
