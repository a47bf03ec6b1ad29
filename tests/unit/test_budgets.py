from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from harness.workload.budgets import TokenBucket

S = 1_000_000_000


def test_the_worked_example_is_exact():
    bucket = TokenBucket(Fraction(10), 10)
    assert sum(bucket.take(k * S // 40) for k in range(1600)) == 409


def test_it_starts_full_and_never_holds_more_than_its_burst():
    bucket = TokenBucket(Fraction(1), 3)
    assert [bucket.take(0) for _ in range(4)] == [True, True, True, False]
    assert [bucket.take(100 * S) for _ in range(4)] == [True, True, True, False]


def test_a_token_is_there_exactly_when_it_is_due():
    bucket = TokenBucket(Fraction(3), 1)
    assert bucket.take(0)
    assert not bucket.take(333_333_333)
    assert bucket.take(333_333_334)


def test_an_instant_before_the_last_adds_nothing():
    bucket = TokenBucket(Fraction(1), 1)
    assert bucket.take(10 * S)
    assert not bucket.take(0)
    assert bucket.level(10 * S) == 0


@given(
    st.fractions(min_value=Fraction(1, 50), max_value=50, max_denominator=50),
    st.integers(1, 20),
    st.lists(st.integers(0, S), max_size=200),
)
def test_grants_never_exceed_rate_and_burst(rate, burst, gaps):
    bucket, now, granted = TokenBucket(rate, burst), 0, []
    for gap in gaps:
        now += gap
        if bucket.take(now):
            granted.append(now)
    for i, first in enumerate(granted):
        for j in range(i, len(granted)):
            assert j - i + 1 <= burst + rate * (granted[j] - first) / S
