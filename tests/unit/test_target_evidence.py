"""A service's own decision log: sources, the field map, and clocks of other hosts."""

from __future__ import annotations

from email.message import Message
from http.client import HTTPMessage

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.measure.clock_offset import offset_of
from harness.target.decision_rows import DecisionRows, time_ns
from harness.target.errors import TargetGone, TargetUnusable
from harness.target.evidence import FileLog, HttpLog, read_log
from harness.target.model import DecisionLog

S = 1_000_000_000
LOG = DecisionLog.model_validate(
    {
        "file": "d.jsonl",
        "fields": {
            "time": "/ts",
            "attempt": "/http/attempt",
            "tenant": "/who",
            "outcome": "/verdict",
            "reason": "/why",
            "queue_wait": "/waited",
            "running": "/busy",
        },
        "time": "rfc3339",
        "outcomes": {"OK": "served", "SHED": "throttled", "BEGIN": "started"},
        "unit": "s",
    }
)


def line(**keys) -> bytes:
    return orjson.dumps({"ts": "2026-01-01T00:00:01.5Z", "http": {"attempt": "0.7.1"}, "verdict": "OK", **keys})


EPOCH = time_ns("2026-01-01T00:00:00Z", "rfc3339")


def test_a_row_is_mapped():
    row = DecisionRows(LOG, EPOCH).of(line(who="A", why="fine", waited=0.25, busy=3))
    assert row == {
        "t_ns": 1_500_000_000,
        "call": "0.7",
        "attempt_id": "0.7.1",
        "outcome": "served",
        "tenant": "A",
        "reason": "fine",
        "queue_wait_ns": 250_000_000,
        "running": 3,
    }


def test_what_is_not_ours_and_what_cannot_be_read_is_counted_not_guessed():
    rows = DecisionRows(LOG, EPOCH)
    for odd in (
        b"{",
        b"[1]",
        line(http={}),
        line(http={"attempt": "x"}),
        line(verdict="MAYBE"),
        line(verdict=None),
        line(ts="yesterday"),
        b"x" * (2 << 20),
    ):
        assert rows.of(odd) is None
    assert (rows.read.rows, rows.read.foreign, rows.read.unreadable) == (0, 2, 6)
    assert rows.read.words == {"MAYBE": 1}


def test_a_log_that_knows_the_call_only():
    log = DecisionLog.model_validate({"file": "x", "fields": {"call": "/c"}, "time": "unix_ms"})
    row = DecisionRows(log, 0).of(b'{"c": "2.9", "t": 1500.25, "outcome": "expired"}')
    assert row is not None
    assert (row["attempt_id"], row["t_ns"], row["outcome"]) == ("2.9.1", 1_500_250_000, "expired")


@pytest.mark.parametrize(
    ("value", "form", "ns"),
    [
        (1767225600, "unix_s", 1767225600 * S),
        (1767225600.123456, "unix_s", 1767225600_123456000),
        ("1767225600.123456789", "unix_s", 1767225600_123456789),
        (1767225600123, "unix_ms", 1767225600123 * 1_000_000),
        ("2026-01-01T01:00:00+01:00", "rfc3339", 1767225600 * S),
        ("2025-12-31 23:30:00.000000001-0030", "rfc3339", 1767225600 * S + 1),
        ("2026-02-30T00:00:00Z", "rfc3339", None),
        ("2026-01-01", "rfc3339", None),
        (True, "unix_s", None),
        (-1, "unix_s", None),
        (float("nan"), "unix_s", None),
        ("1e9", "unix_s", None),
        (None, "unix_ns", None),
    ],
)
def test_times(value, form, ns):
    assert time_ns(value, form) == ns


@given(st.binary(max_size=200))
def test_any_line_is_a_row_or_none(text):
    DecisionRows(LOG, 0).of(text)


class Server:
    """A log over HTTP in memory, a few bytes more than a line at a time."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __call__(self, method, path):
        cursor = path.partition("cursor=")[2]
        at = len(self.data) if cursor == "end" else int(cursor)
        end = self.data.find(b"\n", at + 10) + 1 or len(self.data)
        body = b"" if cursor == "end" else self.data[at:end]
        headers: Message = HTTPMessage()
        headers["Overload-Cursor"] = str(at + len(body))
        return headers, body


class Sources:
    """Makes a source of each kind whose log can be written to."""

    def __init__(self, kind, tmp_path) -> None:
        self.kind, self.path, self.server = kind, tmp_path / "log.jsonl", Server(b"")
        self.path.write_bytes(b"")
        self.source = FileLog(self.path) if kind == "file" else HttpLog(self.server, "/log")

    def write(self, data: bytes) -> None:
        self.server.data += data
        with self.path.open("ab") as file:
            file.write(data)


@pytest.fixture(params=["file", "http"])
def sources(request, tmp_path):
    return Sources(request.param, tmp_path)


def test_a_source_gives_whole_lines_since_the_mark(sources):
    sources.write(line(who="before") + b"\n")
    sources.source.mark()
    sources.write(b"".join(line(who=str(i)) + b"\n" for i in range(50)) + b"\n")
    found = [orjson.loads(text)["who"] for text in sources.source.lines()]
    assert found == [str(i) for i in range(50)]


def test_an_unmarked_source_begins_at_the_beginning(sources):
    sources.write(line() + b"\n")
    assert len(list(sources.source.lines())) == 1


def test_read_log_tells_what_became_of_its_lines(sources):
    sources.source.mark()
    sources.write(line() + b"\n" + line(verdict="HM") + b"\n{\n" + line(http={}) + b"\n")
    collected = read_log(sources.source, LOG, EPOCH)
    assert [row["call"] for row in collected.rows] == ["0.7"]
    assert collected.told == {"rows": 1, "foreign": 1, "unreadable": 2, "words": {"HM": 1}}


def test_a_file_that_is_rotated_or_cut(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"old\n" * 10)
    source = FileLog(path)
    source.mark()
    path.rename(tmp_path / "log.1")
    path.write_bytes(b"new\nunfinished")
    assert list(source.lines()) == [b"new"]
    source.mark()
    path.write_bytes(b"cut\n")
    assert list(source.lines()) == [b"cut"]
    path.unlink()
    assert list(source.lines()) == []


def test_a_line_without_end_is_passed_over(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"x" * (3 << 20) + b"\nnext\n")
    assert list(FileLog(path).lines()) == [b"next"]


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(TargetUnusable, match=r"mend evidence\.decisions\.file"):
        FileLog(tmp_path).mark()


def test_a_log_whose_cursor_does_not_move(tmp_path):
    def stuck(method, path):
        headers: Message = HTTPMessage()
        headers["Overload-Cursor"] = "5"
        return headers, b"" if path.endswith("end") else b"{}\n"

    source = HttpLog(stuck, "/log?kind=a")
    source.mark()
    with pytest.raises(TargetGone, match="the cursor that it was asked with"):
        list(source.lines())


def test_a_log_without_a_cursor():
    with pytest.raises(TargetUnusable, match=r"mend evidence\.decisions\.url"):
        HttpLog(lambda method, path: (HTTPMessage(), b""), "/log").mark()


@given(
    st.integers(-(10**15), 10**15),
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 10**7), st.integers(0, 10**7)), min_size=1, max_size=50),
)
def test_the_true_offset_lies_within_the_error(offset, events):
    sent = np.array([a for a, _, _ in events], dtype=np.int64)
    heard = sent + np.array([way + back for _, way, back in events], dtype=np.int64)
    stamped = sent + np.array([way for _, way, _ in events], dtype=np.int64) + offset
    found = offset_of(sent, stamped, heard)
    assert found is not None
    assert found.consistent
    assert abs(found.offset_ns - offset) <= found.error_ns
    assert found.error_ns <= (min(way + back for _, way, back in events) + 1) // 2 + 1


def test_a_clock_that_was_set_is_not_one_offset():
    sent = np.arange(10, dtype=np.int64) * S
    stamped = sent + 1_000 + np.where(sent > 5 * S, S, 0)
    found = offset_of(sent, stamped, sent + 2_000)
    assert found is not None
    assert not found.consistent
    assert found.error_ns >= S // 2 - 2_000
    assert offset_of(sent[:0], sent[:0], sent[:0]) is None
