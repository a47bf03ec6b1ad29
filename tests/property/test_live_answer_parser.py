"""An answer means the same however its bytes are cut up, and no bytes make the parser raise."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.live.answer_parser import BAD_ANSWER, HEAD_LIMIT, TOO_LARGE, AnswerParser

CHUNKED = b"HTTP/1.1 429 Too Many\r\nTransfer-Encoding: chunked\r\nRetry-After: 3\r\n\r\n"
ANSWERS = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nServer-Timing: queue;dur=1\r\n\r\nok",
    CHUNKED + b"4\r\nsome\r\n5\r\nthing\r\n0\r\nTrailer: x\r\n\r\n",
    b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 500 No\r\ncontent-length: 3\r\n\r\nbad",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n",
    b"not HTTP at all\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
)


def fed(pieces, no_body=False):
    """What is known at the end of a stream."""
    parser = AnswerParser()
    parser.reset(no_body)
    for piece in pieces:
        reason = parser.feed(piece)
        if reason is not None:
            return reason
        if parser.complete:
            break
    done = parser.complete or parser.end()
    body = None if parser.body is None else b"".join(parser.body)
    return done, parser.status, parser.server_timing, parser.retry_after, body, parser.body_bytes, parser.reusable


def cut(data, places):
    bounds = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[a:b] for a, b in pairwise(bounds) if a < b]


@given(st.sampled_from(ANSWERS), st.lists(st.integers(0, 10_000), max_size=8))
def test_cuts_do_not_matter(answer, places):
    assert fed(cut(answer, places)) == fed([answer])


@given(st.lists(st.binary(max_size=200), max_size=5), st.booleans())
def test_no_bytes_make_it_raise(pieces, no_body):
    fed(pieces, no_body)


@given(st.sampled_from(ANSWERS), st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4))
def test_no_damaged_answer_makes_it_raise(answer, damage):
    damaged = bytearray(answer)
    for place, byte in damage:
        damaged[place % len(damaged)] = byte
    fed([bytes(damaged)])


@given(st.sampled_from(ANSWERS[:4]), st.binary(min_size=1, max_size=50))
def test_bytes_beyond_an_answer_forbid_another_request(answer, more):
    if more.strip(b"\r\n"):
        assert not fed([answer + more])[-1]


@pytest.mark.parametrize("cuts", [1, 7, 65_536])
def test_limits_hold_however_small_the_pieces(cuts):
    def pieces(data):
        return [data[i : i + cuts] for i in range(0, len(data), cuts)]

    head = b"HTTP/1.1 200 OK\r\nX: "
    assert fed(pieces(head + b"a" * HEAD_LIMIT)) == TOO_LARGE
    assert fed(pieces(head + b"a" * (HEAD_LIMIT - 100) + b"\r\nContent-Length: 0\r\n\r\n"))[0] is True
    assert fed(pieces(b"HTTP/1.1 100 C\r\nA: b\r\n\r\n" * 4000)) == TOO_LARGE
    assert fed(pieces(b"garbage")) == BAD_ANSWER


def test_a_large_body_is_counted_and_not_kept():
    done, status, *_, body, size, reusable = fed([b"HTTP/1.1 500 E\r\nContent-Length: 70000\r\n\r\n", bytes(70_000)])
    assert (done, status, body, size, reusable) == (True, 500, None, 70_000, True)


def test_the_answer_to_head_ends_with_its_headers():
    done, status, *_, reusable = fed([b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"], no_body=True)
    assert (done, status, reusable) == (True, 200, False)


def test_one_answer_after_another():
    parser = AnswerParser()
    for status in (b"200", b"429", b"204"):
        parser.reset(False)
        length = b"" if status == b"204" else b"Content-Length: 2\r\n"
        assert parser.feed(b"HTTP/1.1 " + status + b" X\r\n" + length + b"\r\n" + (b"{}" if length else b"")) is None
        assert (parser.complete, parser.status, parser.reusable) == (True, int(status), True)
        assert parser.body == ([] if status == b"204" else [b"{}"])
