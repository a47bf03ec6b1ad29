"""The oracle of fair shares, held against cases that can be worked out by hand, and the exact tails of chance."""

from __future__ import annotations

from fractions import Fraction
from math import comb, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.measure.chance import binomial_bound, binomial_tail, hypergeometric_tail
from harness.measure.fair_share import max_min
from harness.measure.fair_shares import Shares, Stays, idle_while_waiting, shares, shortfall, worst_window
from harness.measure.intervals import t_of

WINDOW = 1000


def stays(*rows):
    """(tenant, came, left, started)"""
    tenant, came, left, started = zip(*rows, strict=True)
    return Stays(np.array(tenant), np.array(came), np.array(left), np.array(started, dtype=bool))


def a_backlog(windows=1):
    """Somebody of tenant 9 waits all the time, and never starts."""
    return [(9, 0, windows * WINDOW + 1, False)]


def found(*rows, windows=1, tenants=10, weights=None):
    made = stays(*a_backlog(windows), *rows)
    return shares(made, tenants, weights or [1.0] * tenants, WINDOW, windows * WINDOW + 1)


def test_demand_is_what_waited_or_was_sent_in_time_and_at_least_what_was_served():
    one = found(
        (0, 100, 100, False),  # refused: it was wanted
        (0, 100, 300, True),
        (1, 799, 1500, True),  # in time, and started in the next window
        (1, 800, 1500, True),  # too late to be blamed on this window
        (2, 900, 950, True),  # too late, and served all the same
    )
    assert one.demand[0, :3].tolist() == [2, 1, 1]
    assert one.served[0, :3].tolist() == [1, 0, 1]
    assert one.share[0].sum() == pytest.approx(2)


def test_a_call_that_waits_through_windows_is_demand_of_each():
    two = found((0, 100, 2500, True), windows=3)
    assert two.demand[:, 0].tolist() == [1, 1, 1]
    assert two.served[:, 0].tolist() == [0, 0, 1]


def test_a_window_counts_only_if_somebody_waits_through_nearly_all_of_it():
    rows = stays((0, 0, 940, True), (0, 1000, 1960, True))
    assert shares(rows, 1, [1.0], WINDOW, 3000).from_ns.tolist() == [1000]


def test_shares_go_by_weight_and_what_one_does_not_want_goes_to_the_others():
    rows = [(0, 0, 10, True)] * 2 + [(1, 0, 10, True)] * 5 + [(2, 0, 10, True)] * 5
    rows += [(1, 0, 10, False)] * 90 + [(2, 0, 10, False)] * 90
    one = found(*rows, weights=[1.0, 3.0, 1.0] + [1e-9] * 7)
    assert one.share[0, :3] == pytest.approx([2, 7.5, 2.5])
    assert 1 - one.served[0, 1] / one.share[0, 1] == pytest.approx(1 / 3)


def test_the_shortfall_is_over_all_windows_and_the_worst_of_one():
    rows = []
    for window in range(6):
        at = window * WINDOW
        served = 0 if window == 2 else 20
        rows += [(0, at, at + 5, True)] * served + [(0, at, at, False)] * 80
        rows += [(1, at, at + 5, True)] * (40 - served) + [(1, at, at, False)] * 80
    six = found(*rows, windows=6, tenants=10, weights=[1.0, 1.0] + [1e-9] * 8)
    part = shortfall(six, 0, 0.95)
    assert part.estimate == pytest.approx(1 / 6)
    assert part.low < 0 < part.high
    assert worst_window(six, 0, 15) == (1.0, 2)
    assert worst_window(six, 0, 25) is None
    assert shortfall(found(windows=2), 0, 0.95) is None


def of_one_tenant(share, served):
    share, served = (np.array(column, dtype=float).reshape(-1, 1) for column in (share, served))
    return Shares(WINDOW, np.arange(len(share)) * WINDOW, share, served, share)


def test_the_shortfall_has_the_interval_of_a_ratio_over_its_windows():
    """By hand: 12 of 60 were lacking; residuals 4 - 2, -1 - 4, 9 - 6; a call more or less is always possible."""
    part = shortfall(of_one_tenant([10, 20, 30], [6, 21, 21]), 0, 0.9)
    spread = sqrt((2**2 + 5**2 + 3**2) * 3 / 2 + 1) / 60
    assert part.estimate == pytest.approx(0.2)
    assert (part.high - 0.2, 0.2 - part.low) == pytest.approx((t_of(0.9, 2) * spread,) * 2)


def test_no_shortfall_without_windows_enough_or_without_a_share():
    assert shortfall(of_one_tenant([10, 20], [6, 21]), 0, 0.9) is None
    assert shortfall(of_one_tenant([0, 0, 0], [0, 0, 0]), 0, 0.9) is None
    assert shortfall(of_one_tenant([0, 0, 1], [0, 0, 0]), 0, 0.9).estimate == 1.0


def test_the_worst_window_is_that_of_the_largest_part_where_the_share_was_large_enough():
    found = of_one_tenant([10, 15, 40, 14], [6, 6, 20, 0])
    assert worst_window(found, 0, 15) == (pytest.approx(0.6), 1)
    assert worst_window(found, 0, 14) == (1.0, 3)
    assert worst_window(found, 0, 16) == (0.5, 2)


def written_out(made, tenants, weights, windows, backlog):
    """Window by window and call by call."""
    rows = []
    for begin in range(0, windows * WINDOW, WINDOW):
        end, demand, served = begin + WINDOW, [0.0] * tenants, [0.0] * tenants
        waited = {at for came, left in zip(made.came_ns, made.left_ns, strict=True)
                  for at in range(max(came, begin), min(left, end))}  # fmt: skip
        if len(waited) / WINDOW < backlog:
            continue
        for who, came, left, started in zip(made.tenant, made.came_ns, made.left_ns, made.started, strict=True):
            waits = came < begin <= left // WINDOW * WINDOW and left // WINDOW > came // WINDOW
            demand[who] += waits or begin <= came < end - WINDOW // 5
            served[who] += bool(started) and begin <= left < end
        demand = [max(pair) for pair in zip(demand, served, strict=True)]
        rows.append((begin, demand, served, max_min(demand, sum(served), weights)))
    return rows


@pytest.mark.parametrize("seed", range(6))
def test_shares_are_those_of_each_window_written_out(seed):
    rng = np.random.default_rng(seed)
    came = np.sort(rng.integers(0, 6 * WINDOW, 60))
    left = came + rng.choice([0, 30, 400, 1900], 60)
    made = Stays(rng.integers(0, 3, 60), came, left, (left > came) & (rng.random(60) < 0.8))
    weights, windows = [1.0, 2.0, 0.5], 6
    found = shares(made, 3, weights, WINDOW, windows * WINDOW + 7, 0.9)
    known = written_out(made, 3, weights, windows, 0.9)
    assert found.from_ns.tolist() == [begin for begin, *_ in known]
    assert len(found) > 0
    for place, (_, demand, served, share) in enumerate(known):
        assert found.demand[place].tolist() == demand
        assert found.served[place].tolist() == served
        assert found.share[place].tolist() == pytest.approx(share)


def test_a_backlog_of_just_so_much_counts_and_a_trial_of_less_than_a_window_has_none():
    rows = stays((0, 0, 950, True), (0, 1000, 1949, True))
    assert shares(rows, 1, [1.0], WINDOW, 2000).from_ns.tolist() == [0]
    assert len(shares(rows, 1, [1.0], WINDOW, 999)) == 0


def row(t_ns, waiting, running, workers=4, **more):
    return {"t_ns": t_ns, "waiting": waiting, "running": running, "workers": workers, **more}


def test_workers_are_idle_only_as_far_as_calls_could_have_had_them():
    rows = [row(0, 0, 0), row(10, 1, 2), row(20, 5, 2), row(30, 5, 4), row(40, 0, 4), row(99, 0, 0)]
    idle = idle_while_waiting(rows)
    assert idle.part == pytest.approx((1 * 10 + 2 * 10) / (4 * 30))
    assert (idle.waiting_ns, idle.worst_ns) == (30, 20)
    assert idle_while_waiting([row(0, 1, 0, part="shadow"), row(9, 1, 0, part="capacity")]) is None
    assert idle_while_waiting([row(0, 1, 4), row(0, 1, 4)]) is None


def test_what_the_idle_are_told_by():
    """Rows of other parts and without workers are passed over; of equal stretches the first is the worst."""
    bare = {"t_ns": 15, "waiting": 9, "running": 0}
    rows = [
        row(0, 1, 0, part="shadow"),
        row(10, 2, 3),
        bare,
        row(20, 2, 3),
        row(30, 3, 4),
        row(30, 0, 0),
        row(50, 1, 1),
    ]
    idle = idle_while_waiting([*rows, row(57, 0, 0)])
    assert (idle.rows, idle.waiting_ns, idle.worst_ns) == (3, 27, 10)
    assert idle.part == pytest.approx((10 + 10 + 7) / (4 * 27))
    assert idle_while_waiting([row(0, 1, 9), row(5, 0, 0)]).part == 0.0
    assert idle_while_waiting([]) is None


@given(st.integers(1, 60), st.integers(0, 60), st.floats(0.001, 0.999))
def test_the_binomial_tail_is_exact(n, at_least, p):
    exact = sum(comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(at_least, n + 1))
    assert binomial_tail(n, p, at_least) == pytest.approx(exact, rel=1e-9, abs=1e-12)


@given(st.integers(1, 5000), st.floats(1e-9, 0.5), st.floats(1e-9, 0.05))
def test_the_bound_is_the_first_count_beyond_chance(n, p, chance):
    bound = binomial_bound(n, p, chance)
    assert binomial_tail(n, p, bound) < chance
    assert bound == 0 or binomial_tail(n, p, bound - 1) >= chance


def test_the_hypergeometric_tail_is_that_of_the_published_table():
    """The documentation of Kubernetes' API Priority and Fairness, with one elephant: hands of 12 and 10 out of 32, and
    of 8 out of 64 queues."""
    published = {(12, 32): 4.428838398950118e-09, (10, 32): 1.550093439632541e-08, (8, 64): 2.25929199850899e-10}
    for (hand, queues), p in published.items():
        assert hypergeometric_tail(queues, hand, hand, hand) == pytest.approx(1 / comb(queues, hand), abs=0)
        assert hypergeometric_tail(queues, hand, hand, hand) == pytest.approx(p, rel=1e-9, abs=0)


def test_a_hypergeometric_tail_adds_up():
    assert hypergeometric_tail(12, 4, 4, 0) == 1.0
    assert hypergeometric_tail(12, 4, 4, 1) == pytest.approx(1 - comb(8, 4) / comb(12, 4))
    assert hypergeometric_tail(12, 1, 1, 1) == pytest.approx(1 / 12)
    assert hypergeometric_tail(12, 2, 5, 1) == pytest.approx(1 - comb(7, 2) / comb(12, 2))  # more flooded than dealt
    assert hypergeometric_tail(12, 5, 2, 1) == pytest.approx(1 - comb(10, 5) / comb(12, 5))


def test_a_tail_of_what_is_certain_or_impossible():
    assert [binomial_tail(3, 0.0, at_least) for at_least in (0, 1)] == [1.0, 0.0]
    assert [binomial_tail(3, 1.0, at_least) for at_least in (0, 3, 4)] == [1.0, 1.0, 0.0]
    assert [binomial_tail(0, 0.5, at_least) for at_least in (0, 1)] == [1.0, 0.0]


@pytest.mark.parametrize(("n", "p", "at_least"), [(1000, 0.001, 30), (200, 0.3, 130), (40, 0.5, 39)])
def test_a_tail_far_out_keeps_its_digits(n, p, at_least):
    """One minus the other side would leave nothing of it, and a bound at a chance of 1e-9 would be wrong."""
    q = Fraction(p).limit_denominator(1000)
    exact = sum(comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(at_least, min(n, at_least + 40) + 1))
    assert binomial_tail(n, p, at_least) == pytest.approx(float(exact), rel=1e-9, abs=0)
