"""The oracle of fairness.limit_held against the rule that it stands for, and against buckets that keep to it."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from harness.checks.limit_held import Limit, beyond

S = 1_000_000_000
spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), max_size=12)
limits = st.tuples(st.integers(1, 8), st.integers(1, 4))


def counted(calls, rate, burst):
    """calls: (begin, length) in quarters of a second."""
    begins = np.array([begin * S // 4 for begin, _ in calls], dtype=np.int64)
    ends = np.array([(begin + length) * S // 4 for begin, length in calls], dtype=np.int64)
    return beyond(begins, ends, Limit(rate=f"{rate}/s", burst=burst))


def most_beyond(calls, rate, burst):
    """By the definition: over every window, what lies wholly within it, and is too much."""
    over = [Fraction(0)]
    for begin in {x for x, _ in calls}:
        for end in {x + length for x, length in calls if x + length >= begin}:
            inside = sum(begin <= x and x + length <= end for x, length in calls)
            over.append(inside - burst - Fraction(rate * (end - begin), 4))
    return math.ceil(max(over))


@given(spans, limits)
def test_never_more_than_the_definition_says(calls, limit):
    assert 0 <= counted(calls, *limit) <= most_beyond(calls, *limit)


@given(spans.map(lambda calls: [(begin, 0) for begin, _ in calls]), limits)
def test_of_instants_exactly_what_the_definition_says(calls, limit):
    assert counted(calls, *limit) == most_beyond(calls, *limit)


@given(spans, limits)
def test_a_larger_limit_leaves_no_more_beyond_it_and_order_does_not_matter(calls, limit):
    rate, burst = limit
    found = counted(calls, rate, burst)
    assert found <= max(0, len(calls) - burst)
    assert counted(calls, rate, burst + 1) <= found
    assert counted(calls, rate + 1, burst) <= found
    assert counted(calls[::-1], rate, burst) == found


@given(st.lists(st.integers(0, 2 * S), max_size=60).map(sorted), limits, st.integers(0, S))
def test_what_one_bucket_let_through_is_never_beyond_it(asked, limit, slack):
    rate, burst = limit
    level, at, served = Fraction(burst), 0, []
    for now in asked:
        level, at = min(Fraction(burst), level + Fraction((now - at) * rate, S)), now
        if level >= 1:
            level -= 1
            served.append(now)
    begins = np.array([max(0, now - slack) for now in served], dtype=np.int64)
    ends = np.array([now + slack // 2 for now in served], dtype=np.int64)
    assert beyond(begins, ends, Limit(rate=f"{rate}/s", burst=burst)) == 0
