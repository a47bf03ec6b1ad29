"""The headers that a target file names are kept, of the real answer and of nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.live.answer_parser import HEAD_LIMIT, TOO_LARGE, KeepingParser

WANTED = frozenset((b"x-queue", b"server-timing", b"retry-after"))


def fed(data: bytes, cut: int = 0, parser: KeepingParser | None = None) -> KeepingParser:
    parser = parser or KeepingParser(WANTED)
    parser.reset(False)
    for piece in (data[:cut], data[cut:]):
        if piece:
            parser.feed(piece)
    return parser


ANSWER = (
    b"HTTP/1.1 103 Early\r\nX-Queue: early\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nX-QUEUE: 1\r\nX-Other: no\r\nServer-Timing: a;dur=1\r\nX-Queue: 2\r\n"
    b"Server-Timing: b;dur=2\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nRetry-After: 9\r\n\r\n"
)


@given(cut=st.integers(0, len(ANSWER)))
def test_the_last_counts_timings_are_joined_and_neither_interim_answers_nor_trailers_do(cut):
    parser = fed(ANSWER, cut)
    assert parser.complete
    assert parser.headers == {b"x-queue": b"2", b"server-timing": b"a;dur=1, b;dur=2"}


def test_one_answer_after_another():
    parser = fed(ANSWER)
    before = parser.headers
    fed(b"HTTP/1.1 204 No\r\nRetry-After: 3\r\n\r\n", parser=parser)
    assert parser.headers == {b"retry-after": b"3"}
    assert b"x-queue" in before


def test_it_is_bounded():
    parser = KeepingParser(WANTED)
    parser.reset(False)
    line = b"X-Queue: " + b"x" * 1000 + b"\r\n"
    said = [parser.feed(b"HTTP/1.1 200 OK\r\n" + line * (HEAD_LIMIT // 1000 + 2))]
    assert said == [TOO_LARGE]
