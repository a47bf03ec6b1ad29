"""What must hold of every interval, fair share and header, whatever comes in."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from harness.measure.blocks import change_of_means, series
from harness.measure.fair_share import max_min
from harness.measure.intervals import newcombe, wilson, z_of
from harness.measure.replans import inferred
from harness.measure.retry_after import parse

Z = z_of(0.95)


@st.composite
def share(draw):
    n = draw(st.integers(0, 5000))
    return draw(st.integers(0, n)), n


@given(share())
def test_wilson_holds_its_estimate_and_stays_a_share(counts):
    interval = wilson(*counts, Z)
    assert 0 <= interval.low <= interval.estimate <= interval.high <= 1
    assert interval.low < interval.high


@given(share(), share())
def test_newcombe_is_antisymmetric_and_has_a_width(one, two):
    there, back = newcombe(*one, *two, Z), newcombe(*two, *one, Z)
    assert there.low <= there.estimate <= there.high
    assert there.low < there.high
    assert abs(there.low + back.high) < 1e-12


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(0.01, 100)), max_size=30),
    st.floats(0, 1e7),
)
def test_max_min_fair_shares(tenants, capacity):
    demands, weights = [d for d, _ in tenants], [w for _, w in tenants]
    got = max_min(demands, capacity, weights)
    total = min(capacity, sum(demands))
    assert abs(sum(got) - total) <= 1e-6 * (1 + total)
    # Whoever does not get all that it wants gets, for its weight, as much as anybody.
    levels = [g / w for g, w in zip(got, weights, strict=True)]
    for got_one, demand, level in zip(got, demands, levels, strict=True):
        assert got_one <= demand
        if got_one < demand * (1 - 1e-9) - 1e-9:
            assert level >= max(levels) * (1 - 1e-6) - 1e-6


@given(st.one_of(st.none(), st.text(max_size=60), st.from_regex(r"[0-9 ,:A-Za-z-]{0,40}", fullmatch=True)))
def test_any_header_gives_a_usable_wait_or_a_reason(header):
    made = parse(header)
    assert made.usable != bool(made.why)
    wait = made.wait_s(0)
    assert wait is None if not made.usable else wait >= 0


@given(
    st.lists(st.tuples(st.integers(0, 99), st.integers(-5, 5)), max_size=60),
    st.lists(st.tuples(st.integers(0, 99), st.integers(-5, 5)), max_size=60),
)
def test_block_interval_holds_the_change_whatever_the_series(one, two):
    windows = [
        series(np.array([at for at, _ in rows], dtype=np.int64), np.array([v for _, v in rows], dtype=np.int64), 0, 100)
        for rows in (one, two)
    ]
    change = change_of_means(*windows, 0.95, np.random.default_rng(1)).change
    assert change.low <= change.estimate <= change.high
    assert np.isfinite([change.low, change.high]).all()


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50), st.booleans()), max_size=40), st.integers(0, 30))
def test_inferred_replans_are_those_of_the_plain_rule(rows, within):
    who, at, failed = (np.array(column) for column in zip(*rows, strict=True)) if rows else (np.zeros(0, int),) * 3
    made = inferred(who.astype(np.int64), at.astype(np.int64), failed.astype(bool), within)
    plain = [
        any(w == w2 and f2 and t2 < t and t - max(t3 for w3, t3, f3 in rows if w3 == w and f3 and t3 < t) <= within
            for w2, t2, f2 in rows)
        for w, t, _ in rows
    ]  # fmt: skip
    assert made.tolist() == plain
