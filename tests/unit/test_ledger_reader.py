"""Reading a trial's folder: columns as written, and one clear error for whatever is not a ledger."""

from __future__ import annotations

import re

import pytest

from harness.ledger.outcomes import TERMINAL
from harness.ledger.reader import (
    CALLS,
    DECISIONS,
    MANIFEST,
    LedgerError,
    attempt_key,
    read_decisions,
    read_trial,
)
from tests.unit.ledgers import rows_of, simulated, steady, write_rows, written

TENANTS = {"A": steady(3, 0, 1), "B": steady(2, 0, 1)}


@pytest.fixture
def trial(tmp_path):
    return written(tmp_path / "trial", TENANTS)


def test_columns_are_what_the_rows_say(tmp_path):
    trial = simulated(tmp_path / "trial", {"duration": "40s", "phases": {}, "tenants.D.rate": "80/s"})
    calls, rows = trial.calls, rows_of(trial.folder)
    assert len(calls) == len(rows)
    for i in (*range(0, len(rows), 97), len(rows) - 1):
        row = rows[i]
        assert trial.row(i) == row
        assert calls.id(i) == row["call"]
        assert TERMINAL[calls.outcome[i]] == row["outcome"]
        assert calls.reason.at(i) == row.get("reason")
        assert calls.retry_after.at(i) == row.get("retry_after")
        for name in ("due_ns", "sent_ns", "done_ns", "queue_wait_ns", "service_ns", "status", "round", "run"):
            assert getattr(calls, name)[i] == row.get(name, -1)
    assert calls.retry_after.equals("1").sum() == sum(row.get("retry_after") == "1" for row in rows)
    assert not calls.reason.equals("no such reason").any()


def test_decisions_leave_out_started_and_keep_the_rest(tmp_path):
    trial = simulated(tmp_path / "trial", {"duration": "10s", "phases": {}, "tenants.D.rate": "8/s"})
    rows = [row for row in rows_of(trial.folder, DECISIONS) if row["outcome"] != "started"]
    made = read_decisions(trial)
    assert len(made.key) == len(rows)
    assert made.is_outcome("served").sum() == sum(row["outcome"] == "served" for row in rows)
    calls = trial.calls
    assert set(made.key.tolist()) == set(attempt_key(calls.tenant, calls.seq, calls.attempt).tolist())


def test_a_last_line_cut_short_is_left_out_and_counted(trial):
    path = trial.folder / CALLS
    path.write_bytes(path.read_bytes()[:-3])
    cut = read_trial(trial.folder)
    assert (len(cut.calls), cut.cut_lines) == (4, 1)


def test_an_empty_ledger_is_one(trial):
    (trial.folder / CALLS).write_bytes(b"")
    assert len(read_trial(trial.folder).calls) == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{not json}\n", r"calls.jsonl:3: not JSON .*the file was edited or damaged"),
        (b"[1]\n", r"calls.jsonl: a line near 1 is not a JSON object"),
        (b'{"a":1},{"b":2}\n', r"calls.jsonl: a line near 1 is not a JSON object"),
        (b"{}\n", r"a row is not one of a call \(KeyError\('call'\)\); was it written by another version\?"),
        (b'{"call":"0.9","outcome":"lost"}\n', r"a row is not one of a call \(KeyError\('lost'\)\)"),
        (b'{"call":"0","outcome":"served"}\n', r"a row is not one of a call \(IndexError"),
        (b'{"call":"0.x","outcome":"served"}\n', r"a row is not one of a call \(ValueError"),
        (b'{"call":"0.9","outcome":"served","due_ns":1.5}\n', r"a row is not one of a call \(TypeError"),
        (b'{"call":"0.9","outcome":"served","due_ns":99999999999999999999}\n', r"a row is not one of a call"),
        (b'{"call":"7.9","outcome":"served"}\n', r"names a tenant that the manifest does not have"),
        (b'{"call":"0.-9","outcome":"served"}\n', r"a sequence is below 0"),
        (b'{"call":"-1.9","outcome":"served"}\n', r"names a tenant that the manifest does not have"),
    ],
)
def test_what_is_not_a_ledger_gives_one_clear_error(trial, line, message):
    lines = (trial.folder / CALLS).read_bytes().splitlines(keepends=True)
    (trial.folder / CALLS).write_bytes(b"".join([*lines[:2], line, *lines[2:]]))
    with pytest.raises(LedgerError, match=message) as error:
        read_trial(trial.folder)
    assert str(error.value).count("\n") == 0


@pytest.mark.parametrize("row", [{}, {"outcome": "hm"}, {"outcome": ["served"]}])
def test_decisions_that_are_none(trial, row):
    write_rows(trial.folder, [row], DECISIONS)
    with pytest.raises(LedgerError, match=re.escape(f"{DECISIONS}: a row is not one of a decision")):
        read_decisions(trial)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"{", "not readable as JSON"),
        (b"[]", "schema \\? is not 1"),
        (b'{"schema":2}', "schema 2 is not 1"),
        (b'{"schema":1}', "has no profile with tenants"),
    ],
)
def test_a_manifest_that_is_none(trial, text, message):
    (trial.folder / MANIFEST).write_bytes(text)
    with pytest.raises(LedgerError, match=message):
        read_trial(trial.folder)


def test_files_that_are_not_there(tmp_path, trial):
    with pytest.raises(LedgerError, match="give the folder of a trial"):
        read_trial(tmp_path)
    (trial.folder / CALLS).unlink()
    with pytest.raises(LedgerError, match="was the trial ever started"):
        read_trial(trial.folder)
