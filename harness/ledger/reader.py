"""A trial's folder, read into numpy columns: what every check and every report works on.

Reads in chunks: a ledger of a million calls takes some seconds and a few hundred MB. Raises LedgerError with file,
line and remedy on anything that is not a ledger. A last line cut short by a crash is left out and counted.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import orjson

from harness.errors import BadInput
from harness.ledger.outcomes import FROM_SERVICE, QUEUED, TERMINAL

Ints = npt.NDArray[np.int64]
CHUNK_BYTES = 1 << 18
"""Some hundred rows at a time: they stay in the cache between parsing and the columns, which halves the time."""
CALLS, DECISIONS, MANIFEST = "calls.jsonl", "decisions.jsonl", "manifest.json"
ARRIVALS, EFFECTS = "arrivals.jsonl", "effects.jsonl"


class LedgerError(BadInput):
    """The folder is not a readable ledger; the message says which file, where, and what to do."""


class Strings:
    """Interned text of one column: `codes[i]` is the place of row i's text in `table`; -1: none."""

    def __init__(self, table: list[str], codes: npt.NDArray[np.int32]) -> None:
        self.table = table
        self.codes = codes

    def at(self, row: int) -> str | None:
        code = int(self.codes[row])
        return self.table[code] if code >= 0 else None

    def equals(self, text: str) -> npt.NDArray[np.bool_]:
        match: npt.NDArray[np.bool_] = self.codes == (self.table.index(text) if text in self.table else -2)
        return match


@dataclass(frozen=True, slots=True, eq=False)
class Calls:
    """Columns of calls.jsonl, one place a row, in file order. Integers; -1 where a row has no value.

    again_ns: when a second or further attempt was due; `due_ns` is the call's, in each of its rows. tool: of a re-plan.
    tenant: place in `Trial.tenants`. seq: call id is `<tenant>.<seq>`. parent: seq of the parent (same tenant).
    outcome: place in `outcomes.TERMINAL`. action: of a call of an agent run (harness/ledger/call.py). untyped: 1 where
    an answer other than success had no typed outcome in its body. offset: byte at which the row begins in calls.jsonl.
    """

    tenant: Ints
    seq: Ints
    attempt: Ints
    round: Ints
    run: Ints
    parent: Ints
    due_ns: Ints
    sent_ns: Ints
    done_ns: Ints
    queue_wait_ns: Ints
    service_ns: Ints
    status: Ints
    untyped: Ints
    outcome: Ints
    offset: Ints
    again_ns: Ints
    reason: Strings
    retry_after: Strings
    action: Strings
    tool: Strings

    def __len__(self) -> int:
        return len(self.tenant)

    def is_outcome(self, *outcomes: str) -> npt.NDArray[np.bool_]:
        return np.isin(self.outcome, [TERMINAL.index(outcome) for outcome in outcomes])

    def id(self, row: int) -> str:
        return f"{self.tenant[row]}.{self.seq[row]}"

    @property
    def start_ns(self) -> Ints:
        """When the attempt of a row was due."""
        return np.where(self.again_ns >= 0, self.again_ns, self.due_ns)

    def taken(self, places: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Calls:
        """These rows alone, or these in this order."""
        taken: dict[str, Any] = {}
        for part in fields(self):
            column = getattr(self, part.name)
            strings = isinstance(column, Strings)
            taken[part.name] = Strings(column.table, column.codes[places]) if strings else column[places]
        return Calls(**taken)


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """One folder. manifest: as written. calls: a row a call, that of its last attempt, so that whoever counts rows
    counts calls. attempts: a row for every attempt, and for each call that was never sent; the very `calls` where none
    was retried. retried: of `attempts`, those that another one followed. cut_lines: unfinished last lines left out.
    memo: what was read once already."""

    folder: Path
    manifest: dict[str, Any]
    tenants: tuple[str, ...]
    calls: Calls
    cut_lines: int
    attempts: Calls
    retried: npt.NDArray[np.bool_]
    memo: dict[str, Any] = field(default_factory=dict, repr=False)

    def by_attempt(self) -> Trial:
        """The same trial with a row an attempt in `calls`: for what must hold for each answer and each start."""
        return self if self.calls is self.attempts else replace(self, calls=self.attempts)

    def decisions(self) -> Iterator[dict[str, Any]]:
        """Rows of decisions.jsonl, streamed; nothing if the file is not there."""
        return rows_of(self.folder / DECISIONS)

    def row(self, place: int) -> dict[str, Any]:
        """The whole ledger row of a call, read from the file."""
        with (self.folder / CALLS).open("rb") as file:
            file.seek(int(self.calls.offset[place]))
            row: dict[str, Any] = orjson.loads(file.readline())
            return row


@dataclass(frozen=True, slots=True, eq=False)
class Decisions:
    """Columns of decisions.jsonl, one place a row, in file order; rows `started` are left out (nothing joins on them),
    and those with a `part`: of a capacity layer (harness/ledger/evidence.py), or of a shadow, which decided nothing.

    key: `attempt_key` of the attempt; -1 where the row names no attempt of a harness. outcome: place in
    DECISION_OUTCOMES.
    """

    key: Ints
    outcome: Ints

    def is_outcome(self, *outcomes: str) -> npt.NDArray[np.bool_]:
        return np.isin(self.outcome, [DECISION_OUTCOMES.index(outcome) for outcome in outcomes])


DECISION_OUTCOMES = (QUEUED, *FROM_SERVICE)


def attempt_key(tenant: Ints, seq: Ints, attempt: Ints) -> Ints:
    """One integer an attempt id: 18 bits of tenant, 36 of sequence, 8 of attempt."""
    return np.asarray((tenant << 44) | (seq << 8) | attempt)


def read_decisions(trial: Trial) -> Decisions | None:
    """The service's side, read once a trial; None where there is none. Raises LedgerError."""
    if "decisions" not in trial.memo:
        trial.memo["decisions"] = _read_decisions(trial.folder / DECISIONS)
    found: Decisions | None = trial.memo["decisions"]
    return found


def _read_decisions(path: Path) -> Decisions | None:
    if not path.exists():
        return None
    codes = {outcome: code for code, outcome in enumerate(DECISION_OUTCOMES)}
    keys, outcomes = array("q"), array("q")
    for _, rows in _chunks(path, skip=_STARTED):
        try:
            rows = [  # noqa: PLW2901
                row for row in rows if row["outcome"] != "started" and "part" not in row
            ]
            outcomes.extend([codes[row["outcome"]] for row in rows])
            keys.extend([_key(row.get("attempt_id")) for row in rows])
        except (KeyError, TypeError, OverflowError) as error:
            raise LedgerError(
                f"{path}: a row is not one of a decision ({error!r}); was it written by another version?"
            ) from None
    return Decisions(np.frombuffer(keys, dtype=np.int64), np.frombuffer(outcomes, dtype=np.int64))


_STARTED = b'"outcome":"started"'
"""Quotes inside a JSON text are escaped, so these bytes stand for that key and value only."""


def _key(attempt_id: object) -> int:
    """-1 for whatever a harness did not send: the header is the caller's, and may hold anything."""
    parts = attempt_id.split(".") if isinstance(attempt_id, str) else ()
    try:
        tenant, seq, attempt = (int(part) for part in parts)
    except ValueError:
        return -1
    if 0 <= tenant < 1 << 18 and 0 <= seq < 1 << 36 and 0 <= attempt < 1 << 8:
        return tenant << 44 | seq << 8 | attempt
    return -1


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    """Rows of a JSON Lines file, streamed; nothing if it is not there. Raises LedgerError."""
    if path.exists():
        for _, rows in _chunks(path):
            yield from rows


def read_trial(folder: Path) -> Trial:
    """Reads manifest and calls. Raises LedgerError."""
    manifest = _manifest(folder)
    tenants = tuple(manifest["profile"]["tenants"])
    path = folder / CALLS
    if not path.exists():
        raise LedgerError(f"{path}: no such file; was the trial ever started?")
    attempts, retried, cut = _read_calls(path, tenants)
    calls = attempts.taken(~retried) if retried.any() else attempts
    return Trial(folder, manifest, tenants, calls, cut, attempts, retried)


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        manifest = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        raise LedgerError(f"{path}: no such file; give the folder of a trial, such as reports/<trial_id>") from None
    except OSError as error:
        raise LedgerError(f"{path}: cannot be read ({error.strerror})") from None
    except orjson.JSONDecodeError as error:
        raise LedgerError(f"{path}: not readable as JSON ({error})") from None
    if not isinstance(manifest, dict) or manifest.get("schema") != 1:
        raise LedgerError(f"{path}: schema {manifest.get('schema') if isinstance(manifest, dict) else '?'} is not 1")
    if not isinstance(manifest.get("profile"), dict) or not isinstance(manifest["profile"].get("tenants"), dict):
        raise LedgerError(f"{path}: has no profile with tenants")
    return manifest


def _chunks(path: Path, skip: bytes = b"") -> Iterator[tuple[list[int], list[dict[str, Any]]]]:
    """(byte offsets, rows) of whole lines, CHUNK_BYTES at a time. A last line without its end is left out.

    skip: lines that hold these bytes are not parsed; offsets are then those of nothing.
    """
    with path.open("rb") as file:
        offset, line_no = 0, 1
        while lines := _whole_lines(file):
            offsets = [offset]
            for line in lines[:-1]:
                offsets.append(offsets[-1] + len(line))
            offset = offsets[-1] + len(lines[-1])
            begin, line_no = line_no, line_no + len(lines)
            kept = [line for line in lines if skip not in line] if skip else lines
            try:
                rows = orjson.loads(b"[" + b",".join(kept) + b"]")
            except orjson.JSONDecodeError:
                raise LedgerError(_name_bad_line(path, lines, begin)) from None
            # The lengths differ where a line held two objects and a comma: not JSON Lines, though the whole parses.
            if len(rows) != len(kept) or not all(type(row) is dict for row in rows):
                raise LedgerError(f"{path}: a line near {begin} is not a JSON object; the file was edited or damaged")
            yield offsets, rows


def _whole_lines(file: BinaryIO) -> list[bytes]:
    lines = file.readlines(CHUNK_BYTES)
    if lines and not lines[-1].endswith(b"\n"):
        lines.pop()
    return lines


def _name_bad_line(path: Path, lines: list[bytes], first: int) -> str:
    for i, line in enumerate(lines):
        try:
            orjson.loads(line)
        except orjson.JSONDecodeError as error:
            return f"{path}:{first + i}: not JSON ({error}); the file was edited or damaged"
    return f"{path}:{first}: not JSON Lines; the file was edited or damaged"


_PLAIN = (
    "attempt", "round", "run", "due_ns", "sent_ns", "done_ns", "queue_wait_ns", "service_ns", "status", "again_ns",
)  # fmt: skip


def _read_calls(path: Path, tenants: tuple[str, ...]) -> tuple[Calls, npt.NDArray[np.bool_], int]:
    """(a row an attempt, which of them were retried, last lines that are cut short)."""
    columns: dict[str, array[int]] = {
        name: array("q") for name in (*_PLAIN, "tenant", "seq", "parent", "untyped", "outcome", "offset", "retried")
    }
    texts: dict[str, array[int]] = {name: array("i") for name in ("reason", "retry_after", "action", "tool")}
    tables: dict[str, dict[str | None, int]] = {name: {None: -1} for name in texts}
    codes = {outcome: code for code, outcome in enumerate(TERMINAL)}
    names = {str(place): name for place, name in enumerate(tenants)}
    for offsets, rows in _chunks(path):
        try:
            for name in _PLAIN:
                columns[name].extend([row.get(name, -1) for row in rows])
            ids = [row["call"].split(".") for row in rows]
            columns["tenant"].extend([int(id_[0]) for id_ in ids])
            columns["seq"].extend([int(id_[1]) for id_ in ids])
            parents = [
                row["parent"].split(".") if "parent" in row else (id_[0], -1)
                for row, id_ in zip(rows, ids, strict=True)
            ]
            columns["parent"].extend([int(parent[1]) for parent in parents])
            _of_one_tenant(path, rows, ids, parents, names)
            columns["untyped"].extend([int("untyped" in row) for row in rows])
            columns["retried"].extend([int("retried" in row) for row in rows])
            columns["outcome"].extend([codes[row["outcome"]] for row in rows])
            columns["offset"].extend(offsets)
            for name, into in texts.items():
                table = tables[name]
                into.extend([table.setdefault(row.get(name), len(table) - 1) for row in rows])
        except (KeyError, ValueError, TypeError, IndexError, AttributeError, OverflowError) as error:
            raise LedgerError(
                f"{path}: a row is not one of a call ({error!r}); was it written by another version?"
            ) from None
    made = {name: np.frombuffer(column, dtype=np.int64) for name, column in columns.items()}
    if len(made["tenant"]) and not 0 <= int(made["tenant"].min()) <= int(made["tenant"].max()) < len(tenants):
        raise LedgerError(f"{path}: names a tenant that the manifest does not have; do the files belong together?")
    if len(made["seq"]) and not 0 <= int(made["seq"].min()) <= int(made["seq"].max()) < 1 << 36:
        raise LedgerError(f"{path}: a sequence is below 0 or beyond 2^36; the file was edited or damaged")
    strings = {
        name: Strings([text for text in table if text is not None], np.frombuffer(texts[name], dtype=np.int32))
        for name, table in tables.items()
    }
    retried = made.pop("retried") > 0
    columns_: dict[str, Any] = {**made, **strings}
    return Calls(**columns_), retried, _cut(path)


def _of_one_tenant(
    path: Path, rows: list[dict[str, Any]], ids: list[list[str]], parents: list[Any], names: dict[str, str]
) -> None:
    """A call's id, its tenant and its parent name one tenant. Raises LedgerError."""
    for row, id_, parent in zip(rows, ids, parents, strict=True):
        name = names.get(id_[0])  # an index that is not there is told of for the file as a whole
        if (name is not None and row.get("tenant", name) != name) or parent[0] != id_[0]:
            raise LedgerError(
                f"{path}: call {row['call']} is of tenant {name!r} by its id, and its tenant or its parent is another; "
                "the file was edited or damaged"
            )


def _cut(path: Path) -> int:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if not size:
            return 0
        file.seek(size - 1)
        return int(file.read(1) != b"\n")
