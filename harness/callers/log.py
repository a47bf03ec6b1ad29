"""What arrived at the stand-in, read from its evidence: stand_in.json, arrivals.jsonl, effects.jsonl.

The files come from a process that a stranger's client talked to, and may have been edited: each row is checked as it is
read, and one that is wrong is refused with its line. Given text, never a path: nothing here opens a file.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.errors import BadInput

MOST_ROWS = 250_000
MOST_LINE_CHARS = 16_384

Instant = Annotated[int, Field(ge=-(10**15), le=10**17, strict=True)]
Text = Annotated[str, Field(max_length=400)]
Number = Annotated[int, Field(ge=0, le=10**9, strict=True)]

UNSURE_STATUSES = (500, 502, 504)
"""After these nobody can say whether the work was done."""
FINAL_STATUSES = (400, 401, 402, 403, 404, 405, 410, 413, 414, 415, 422, 501)
"""The same request will get the same answer."""
FINAL_CODES = ("insufficient_quota",)


class _Row(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Arrival(_Row):
    """One request. at_ns, answered_ns, done_ns: it came, its answer began to leave, all of it has left (or never).

    identity: salted hash of the credential. body: salted hash. said: of its headers. told: of the answer's headers.
    """

    arrival: Text
    at_ns: Instant = Field(alias="t_ns")
    answered_ns: Instant | None = None
    done_ns: Instant | None = None
    connection: Number = 0
    identity: Text = ""
    method: Text = ""
    path: Text = ""
    form: Text = ""
    operation: Text = ""
    nature: Literal["read", "repeatable", "write"] = "write"
    body: Text = ""
    token: bool = False
    said: dict[Text, Text] = Field(default_factory=dict, max_length=40)
    told: dict[Text, Text] = Field(default_factory=dict, max_length=40)
    answer: Literal["served", "refused", "failed", "reset", "hang"] = "served"
    status: Annotated[int, Field(ge=0, le=999, strict=True)] = 200
    code: Text = ""
    step: Number = 0
    window: Annotated[int, Field(ge=-1, le=1000, strict=True)] = -1
    effect: Number | None = None
    replayed: bool = False
    hung_up: bool = False
    committed: bool | None = None

    @property
    def id(self) -> str:
        return self.arrival

    @property
    def content(self) -> tuple[str, str, str, str, str]:
        """Who wants what: equal for attempts of one call, also where nothing else tells."""
        return self.identity, self.method, self.path, self.operation, self.body

    @property
    def key(self) -> str | None:
        return self.said.get("key")

    @property
    def failed(self) -> bool:
        """The caller has no success of it: it was refused, failed or cut off, or the caller had gone before."""
        return self.answer != "served" or self.hung_up

    @property
    def unsure(self) -> bool:
        """The caller cannot know whether the work was done."""
        return self.hung_up or self.answer in ("reset", "hang") or (
            self.answer == "failed" and self.status in UNSURE_STATUSES
        )  # fmt: skip

    @property
    def final(self) -> bool:
        """No repeat of the same request can do better, and the answer says so."""
        return self.answer in ("failed", "refused") and (
            self.status in FINAL_STATUSES or self.told.get("x-should-retry") == "false" or self.code in FINAL_CODES
        )

    @property
    def over_ns(self) -> int:
        """When the caller could know how it ended; of one that is still open, when it came."""
        known = self.answered_ns if self.answered_ns is not None and not self.hung_up else self.done_ns
        return known if known is not None else self.at_ns


class Command(_Row):
    words: list[Text] = Field(default_factory=list, max_length=20)
    exit_code: int | None = None
    ended_ns: Instant | None = None


class WindowTold(_Row):
    from_ns: Instant
    to_ns: Annotated[int, Field(ge=0, strict=True)]
    every: Number = 1
    probes: Number = 0


class Manifest(_Row):
    schema_: Literal[1] = Field(alias="schema")
    scenario: Text
    about: Text = ""
    judges: tuple[Text, ...] = Field(default=(), max_length=40)
    form: Text | None = None
    started: Text = ""
    ended_ns: Instant | None = None
    cut_short: bool = False
    command: Command | None = None
    windows: tuple[WindowTold, ...] = Field(default=(), max_length=100)


class Log(_Row):
    """arrivals: by instant, then by number."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    manifest: Manifest
    arrivals: tuple[Arrival, ...]

    @property
    def until_ns(self) -> int:
        """How long it was watched: what did not come by then is not known to have stayed away."""
        last = max((a.done_ns or a.at_ns for a in self.arrivals), default=0)
        return max(last, self.manifest.ended_ns or 0)

    @property
    def caller_ended_ns(self) -> int | None:
        """When the caller had ended by itself, so that nothing more would have come; None if it is not known."""
        command = self.manifest.command
        return command.ended_ns if command is not None and command.exit_code is not None else None


R = TypeVar("R", bound=BaseModel)


def read_log(name: str, manifest: str | bytes, arrivals: Iterable[bytes]) -> Log:
    """name: of the folder, for messages. A last line that a kill has cut is left out. Raises BadInput with file and
    line."""
    told = _model(Manifest, manifest, f"{name}/stand_in.json")
    rows: list[Arrival] = []
    for number, line in enumerate(arrivals, 1):
        if number > MOST_ROWS:
            raise BadInput(f"{name}/arrivals.jsonl: more than {MOST_ROWS} rows; judge a shorter run")
        if line.strip() and not _cut(line):
            rows.append(_model(Arrival, line, f"{name}/arrivals.jsonl:{number}"))
    _unique(rows, name)
    rows.sort(key=lambda row: (row.at_ns, len(row.arrival), row.arrival))
    return Log(manifest=told, arrivals=tuple(rows))


def _cut(line: bytes) -> bool:
    """Whether it is the last of its file, and was not written to its end."""
    if line.endswith(b"\n"):
        return False
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return True
    return False


def _unique(rows: list[Arrival], name: str) -> None:
    seen: set[str] = set()
    for row in rows:
        if row.arrival in seen:
            raise BadInput(
                f"{name}/arrivals.jsonl: two rows are arrival {row.arrival!r}: two runs were mixed in one file"
            )
        seen.add(row.arrival)


def _model(kind: type[R], text: str | bytes, where: str) -> R:
    if len(text) > MOST_LINE_CHARS:
        raise BadInput(f"{where}: longer than {MOST_LINE_CHARS} characters")
    try:
        document: Any = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadInput(f"{where}: is not JSON ({error.msg}); it must be as `overload serve` wrote it") from None
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the row"
        raise BadInput(f"{where}: {place}: {first['msg']}; it must be as `overload serve` wrote it") from None
