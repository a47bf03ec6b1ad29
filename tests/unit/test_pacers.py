from __future__ import annotations

from fractions import Fraction
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from harness.workload import pacers

S = 1_000_000_000


def test_even_calls_are_spaced_exactly():
    assert list(pacers.even([(0, S, Fraction(4))])) == [0, 250_000_000, 500_000_000, 750_000_000]


def test_thirds_do_not_drift():
    due = list(pacers.even([(0, 3000 * S, Fraction(1, 3))]))
    assert len(due) == 1000
    assert due[999] == 999 * 3 * S


def test_piecewise_counts_are_those_of_the_worked_example():
    segments = [(0, 30 * S, Fraction(8)), (30 * S, 70 * S, Fraction(40)), (70 * S, 120 * S, Fraction(8))]
    due = list(pacers.even(segments))
    assert len(due) == 2240
    assert sum(30 * S <= t < 70 * S for t in due) == 1600
    assert due[240] == 30 * S


def test_a_rest_of_an_interval_is_carried_over_a_silence():
    segments = [(0, S, Fraction(3, 2)), (S, 5 * S, Fraction(0)), (5 * S, 6 * S, Fraction(1))]
    # N reaches 1 at 2/3 s and 1.5 at 1 s; the half call that is missing to 2 takes half a second at 1/s.
    assert list(pacers.even(segments)) == [0, 666_666_666, 5_500_000_000]


def test_the_first_call_is_due_at_the_phase():
    assert list(pacers.even([(0, S, Fraction(4))], phase_ns=100_000_000))[:2] == [100_000_000, 350_000_000]


@st.composite
def segments_of(draw):
    at, made = 0, []
    for _ in range(draw(st.integers(1, 5))):
        length = draw(st.integers(1, 3 * S))
        rate = Fraction(draw(st.integers(0, 200)), draw(st.integers(1, 7)))
        made.append((at, at + length, rate))
        at += length
    return made


@given(segments_of(), st.integers(0, 2 * S))
def test_even_counts_follow_the_integral_of_the_rate(segments, phase):
    due = list(pacers.even(segments, phase))
    assert due == sorted(due)
    assert all(phase <= t < segments[-1][1] for t in due)
    total = sum(rate * (to - max(start, phase)) / S for start, to, rate in segments if to > phase)
    assert abs(len(due) - total) <= 1


@given(segments_of(), st.integers(0, 100))
def test_poisson_repeats_with_its_seed_and_stays_in_the_segments(segments, seed):
    due = list(pacers.poisson(segments, Random(seed)))
    assert due == list(pacers.poisson(segments, Random(seed)))
    assert due == sorted(due)
    for t in due:
        assert any(start <= t < to and rate > 0 for start, to, rate in segments)


def test_poisson_has_the_mean_and_variance_of_one_and_differs_by_seed():
    counts = [len(list(pacers.poisson([(0, 10 * S, Fraction(20))], Random(seed)))) for seed in range(300)]
    mean = sum(counts) / len(counts)
    variance = sum((c - mean) ** 2 for c in counts) / (len(counts) - 1)
    assert abs(mean - 200) < 4 * (200 / 300) ** 0.5
    assert 0.75 < variance / 200 < 1.3
    assert len(set(counts)) > 20
