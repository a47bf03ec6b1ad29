"""The schedule of the live driver on a waker that only notes what it was armed for."""

from __future__ import annotations

import pytest

from harness.live import pacing
from harness.live.lateness import Lateness
from harness.live.pacing import NEVER, Scheduler, Timeouts


class Hand:
    """A waker moved by hand, and the clock with it."""

    def __init__(self, monkeypatch):
        self.now = 0
        self.armed = []
        self.errors = []
        monkeypatch.setattr(pacing, "monotonic_ns", lambda: self.now)
        self.scheduler = Scheduler(None, self.errors.append, lambda loop, callback: self)

    def arm(self, at_ns):
        self.armed.append(at_ns)

    def close(self):
        pass

    def to(self, now):
        self.now = now
        self.scheduler.run()


@pytest.fixture
def hand(monkeypatch):
    return Hand(monkeypatch)


def test_wakes_in_order_and_equal_instants_as_they_came(hand):
    woken = []
    for when, name in ((30, "c"), (10, "a"), (10, "b"), (40, "d")):
        hand.scheduler.at(when, lambda when, now, name=name: woken.append((name, when, now)))
    assert hand.armed == [30, 10]
    hand.to(30)
    assert woken == [("a", 10, 30), ("b", 10, 30), ("c", 30, 30)]
    assert hand.armed[-1] == hand.scheduler.next_ns == 40
    hand.to(40)
    assert hand.armed[-1] == hand.scheduler.next_ns == NEVER


def test_what_is_put_in_while_waking_is_armed_once_after(hand):
    hand.scheduler.at(10, lambda *_: [hand.scheduler.at(t, lambda *_: None) for t in (50, 20)])
    hand.to(10)
    assert hand.armed == [10, 20]


def test_what_falls_due_while_waking_waits_for_the_next_turn(hand):
    woken = []

    def slow(when, now):
        woken.append("slow")
        hand.now = 100
        hand.scheduler.at(50, lambda *_: woken.append("later"))

    hand.scheduler.at(10, slow)
    hand.to(10)
    assert woken == ["slow"]
    assert hand.armed[-1] == 50
    hand.to(100)
    assert woken == ["slow", "later"]


def test_running_while_it_runs_does_nothing(hand):
    woken = []
    hand.scheduler.at(10, lambda *_: hand.scheduler.run())
    hand.scheduler.at(10, lambda *_: woken.append(1))
    hand.to(10)
    assert woken == [1]


def test_an_error_is_told_and_the_others_are_woken(hand):
    woken = []
    hand.scheduler.at(10, lambda *_: 1 / 0)
    hand.scheduler.at(10, lambda *_: woken.append(1))
    hand.scheduler.at(20, lambda *_: None)
    hand.to(10)
    assert woken == [1]
    assert hand.armed[-1] == 20
    assert [type(error) for error in hand.errors] == [ZeroDivisionError]


def test_every_does_not_repay_a_late_turn(hand):
    turns = []
    hand.scheduler.every(10, lambda: turns.append(hand.now))
    for now in (10, 45, 50, 55):
        hand.to(now)
    assert turns == [10, 45, 55]


def test_timeouts_expire_what_is_not_over(hand):
    over, expired = set(), []
    timeouts = Timeouts(hand.scheduler, 100, over.__contains__, expired.append)
    for now, name in ((0, "a"), (10, "b"), (20, "c")):
        hand.to(now)
        timeouts.add(name, now)
    over.add("b")
    hand.to(99)
    assert expired == []
    hand.to(100)
    assert expired == ["a"]
    hand.to(120)
    assert expired == ["a", "c"]
    assert len(timeouts) == 0


def test_timeouts_keep_only_what_is_in_flight(hand):
    timeouts = Timeouts(hand.scheduler, 10**12, lambda thing: True, lambda thing: None)
    for i in range(50_000):
        timeouts.add(i, i)
    assert len(timeouts) <= 1024


def test_a_timeout_added_while_expiring_is_not_forgotten(hand):
    expired = []

    def expire(name):
        expired.append(name)
        if name == "a":
            timeouts.add("again", hand.now)

    timeouts = Timeouts(hand.scheduler, 10, lambda thing: False, expire)
    timeouts.add("a", 0)
    hand.to(10)
    hand.to(20)
    assert expired == ["a", "again"]


@pytest.mark.parametrize("q", [0.0, 0.5, 0.9, 0.99, 1.0])
def test_a_quantile_is_at_most_a_sixteenth_above(q):
    values = sorted((i * i * 37) % 10_000_019 for i in range(2_000))
    lateness = Lateness()
    for value in values:
        lateness.add(value)
    true = values[min(len(values) - 1, int(q * len(values)))]
    assert true <= lateness.quantile(q) <= true * 17 / 16 + 1


def test_early_and_none_and_huge():
    lateness = Lateness()
    assert lateness.quantile(0.99) == 0
    lateness.add(-5)
    assert lateness.quantile(0.99) == 0
    lateness.add(2**62)
    assert lateness.quantile(0.99) == 2**62
