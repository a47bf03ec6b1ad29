"""Rows shipped over a network that loses, doubles and delays: each is written once and in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.live.distributed.clocks import SAME_CLOCK, Exchange, estimate, over_a_trial
from harness.live.distributed.shipping import AGAIN_NS, WINDOW, Batch, Inbox, NotInOrder, Outbox, originals
from harness.measure.clock_offset import Offset


def line(n: int) -> bytes:
    return b'{"call":"0.%d","attempt":1,"round":0}\n' % n


def receive(inbox: Inbox, batch: Batch, file: list[bytes]) -> int:
    """As the master does it; what it acknowledges."""
    if inbox.expects(batch):
        file.append(batch.data)
        inbox.written(batch, originals(batch.data))
    return inbox.acknowledge


# What happens to a message on its way: lost, or arrives so often.
fates = st.lists(st.integers(0, 2), min_size=1, max_size=200)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), fates, fates, st.randoms(use_true_random=False))
def test_whatever_the_network_does_every_row_is_written_once(sizes, to_master, to_worker, random):
    outbox, inbox, file = Outbox(), Inbox(), []
    sent = 0
    for size in sizes:
        for _ in range(size):
            outbox.add(line(sent))
            sent += 1
        outbox.close_batch()
    now_ns, step, mail = 0, 0, []
    while not outbox.empty:
        now_ns += AGAIN_NS // 3
        step += 1
        # After a while the network recovers: whatever was lost until then, nothing may be missing.
        kind = 1 if step > 200 else None
        mail += [batch for batch in outbox.due(now_ns) for _ in range(kind or to_master[step % len(to_master)])]
        random.shuffle(mail)
        for batch in mail:
            acknowledged = receive(inbox, batch, file)
            for _ in range(kind or to_worker[step % len(to_worker)]):
                outbox.acknowledged(acknowledged, now_ns)
        mail = [batch for batch in mail if random.random() < 0.2] if kind is None else []
        assert step < 2_000
    assert b"".join(file) == b"".join(line(n) for n in range(sent))
    assert (inbox.rows, inbox.original, outbox.rows, outbox.held_bytes) == (sent, sent, sent, 0)


def test_no_more_than_a_window_is_under_way():
    outbox = Outbox()
    for n in range(3 * WINDOW):
        outbox.add(line(n))
        outbox.close_batch()
    first = outbox.due(0)
    assert [batch.seq for batch in first] == list(range(WINDOW))
    assert outbox.due(1) == []
    outbox.acknowledged(1, 2)
    assert [batch.seq for batch in outbox.due(3)] == [WINDOW, WINDOW + 1]
    assert [batch.seq for batch in outbox.due(3 + AGAIN_NS)] == list(range(2, WINDOW + 2))


def test_an_old_or_foreign_acknowledgement_changes_nothing():
    outbox = Outbox()
    outbox.add(line(0))
    outbox.close_batch()
    for seq in (-1, 5):
        outbox.acknowledged(seq, 0)
        assert not outbox.empty


@pytest.mark.parametrize(
    "batch",
    [
        Batch(0, 2, line(0)),
        Batch(0, 1, line(0)[:-1]),
        Batch(0, 1, line(0) * 2),
        Batch(0, 0, b""),
        Batch(-1, 1, line(0)),
        Batch(0, -1, line(0)),
    ],
)
def test_what_does_not_hold_what_it_says_is_refused(batch):
    with pytest.raises(NotInOrder):
        Inbox().expects(batch)


@pytest.mark.parametrize("data", [b"{\n", b"[]\n", b'{"round":0}\n', b"1\n", b"\xff\n"])
def test_lines_that_are_no_rows_never_reach_the_file(data):
    with pytest.raises(NotInOrder):
        originals(data)


def test_a_call_that_is_tried_again_is_one_original_call():
    rows = b'{"round":0,"attempt":1}\n{"round":0,"attempt":2}\n{"round":1,"attempt":1}\n{"round":0,"attempt":0}\n'
    assert originals(rows) == 2


ways = st.lists(st.tuples(st.integers(0, 10**8), st.integers(0, 10**8)), min_size=1, max_size=30)


@given(st.integers(-(10**15), 10**15), ways)
def test_the_true_offset_is_within_the_error_whatever_the_ways_take(offset, took):
    now, exchanges = 0, []
    for there, back in took:
        exchanges.append(Exchange(now, now + there + offset, now + there + back))
        now += there + back + 1_000_000
    found = estimate(exchanges)
    assert abs(found.offset_ns - offset) <= found.error_ns + 1
    assert found.error_ns <= min(there + back for there, back in took) // 2 + 2


@given(st.integers(-500, 500), st.integers(0, 10**9))
def test_two_clocks_that_drift_apart_are_no_further_off_than_it_is_said(ppm, way):
    before = estimate([Exchange(0, way, 2 * way)])
    end = 120 * 10**9
    truth = ppm * 120 * 1_000
    after = estimate([Exchange(end, end + way + truth, end + 2 * way)])
    over = over_a_trial(before, after)
    assert over.offset_ns == before.offset_ns
    assert abs(over.offset_ns - truth) <= over.error_ns + 1


def test_a_worker_of_this_machine_has_this_clock():
    assert over_a_trial(SAME_CLOCK, Offset(5, 5, True, 1)) == SAME_CLOCK
    assert estimate([]) is None
