"""What a target file may say: the service that a user has, described so that it need not change to be tested.

    where it is, and what may be sent there     url, allow, limits, abort
    who calls                                   credentials: a token a tenant, from the environment
    what a call is                              call: method, path, headers, body, with seeded data
    what its answer means                       answers: typed outcome, queue wait, Retry-After
    how agents work with it, if they do         runs, faults, or a Python driver
    what it lets us see                         evidence: its decision log, dependencies that are ours

Frozen models, as those of profiles (harness/profile/model.py): every error at once, with its place. Reading sends
nothing. Secrets are never in the file: it names environment variables.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self, get_args
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from harness.ledger.outcomes import FROM_SERVICE, QUEUED
from harness.profile.base import Count, DurationNs, Name, Part, RatePerS, ToolName, written
from harness.profile.rules import Contradiction, Contradictions

Text = Annotated[str, Field(min_length=1, max_length=8192)]
HeaderName = Annotated[
    str,
    written(
        r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$",
        "a header's name has 1 to 100 letters, digits and such signs as '-', without spaces and ':'",
    ),
]
HeaderText = Annotated[
    str,
    written(
        r"^[^\x00-\x08\x0a-\x1f\x7f]*$",
        "a header's value is one line, without control characters",
        max_length=8192,
    ),
]
Variable = Annotated[
    str,
    written(
        r"^[A-Za-z_][A-Za-z0-9_]{0,199}$",
        "expected the name of an environment variable, such as TOKEN_A: letters, digits and '_', no digit first; the "
        "token itself is never in the file",
        hidden=True,
    ),
]
Pointer = Annotated[
    str,
    written(r"^(/[^\x00-\x1f]*)?$", "expected a JSON pointer that begins with '/': /error/code", max_length=1000),
]
"""A JSON pointer (RFC 6901): `/error/code`; the empty one is the whole document."""
Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
Outcome = Literal[
    "served", "queued", "throttled", "expired", "budget_exhausted", "coalesced", "dependency_unavailable",
    "cancelled", "needs_person", "failed",
]  # fmt: skip
assert set(get_args(Outcome)) == {QUEUED, *FROM_SERVICE}
Unit = Literal["ns", "us", "ms", "s"]
Lasting = Annotated[DurationNs, Field(gt=0)]
Points = Annotated[float, Field(gt=0, le=100)]

TENANT_MARK = "{TENANT}"


class Tls(Part):
    """Files are found from the target file's folder. verify: false only where the host is loopback."""

    ca: Text | None = None
    cert: Text | None = None
    key: Text | None = None
    server_name: Text | None = None
    verify: bool = True

    @model_validator(mode="after")
    def _pair(self) -> Self:
        if self.key is not None and self.cert is None:
            raise ValueError("a key needs its certificate: give `cert`, too")
        return self


class Limits(Part):
    """What the owner of the target allows. max_rate: the worst-case amplified rate of a profile must be under it."""

    max_rate: RatePerS
    max_in_flight: Count = 1000


class Abort(Part):
    """When a running trial stops by itself, judged over the last `window` from `least` ended calls on.

    server_errors_pp: calls that failed with a 5xx, or without an answer. latency_p95: of answered calls.
    ordinary_hurt_pp: how far the ordinary tenants' share of served calls may be below that of the trial's first
    `window`. Shares are in percentage points.
    """

    server_errors_pp: Points | None = 25.0
    latency_p95: Lasting | None = None
    ordinary_hurt_pp: Points | None = None
    window: Lasting = 5_000_000_000
    least: Count = 20


class Credentials(Part):
    """A token for each tenant, sent as `form` in `header`. env: the variable of every tenant, `{TENANT}` standing for
    its name in capitals (`STAGING_TOKEN_{TENANT}`). tenants: tenant -> its own variable."""

    header: HeaderName = "Authorization"
    form: HeaderText = "Bearer {token}"
    env: Text | None = None
    tenants: dict[Name, Variable] = {}

    @model_validator(mode="after")
    def _complete(self) -> Self:
        problems: list[Contradiction] = []
        if "{token}" not in self.form:
            problems.append((("form",), "must hold {token}, where the tenant's token goes"))
        if self.env is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", self.env.replace(TENANT_MARK, "A")):
            problems.append((("env",), "is no name of an environment variable, such as STAGING_TOKEN_{TENANT}"))
        if problems:
            raise Contradictions(problems)
        return self


class Numbers(Part):
    """Seeded whole numbers, both ends included."""

    from_: int = Field(alias="from", ge=-(10**15), le=10**15, strict=True)
    to: Annotated[int, Field(ge=-(10**15), le=10**15, strict=True)]

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.from_ > self.to:
            raise ValueError("`from` is above `to`")
        return self


Data = Annotated[list[str | int | float | bool], Field(min_length=1, max_length=100_000)] | Numbers


class Request(Part):
    """One request. path, headers and the texts of body may hold `{name}`: data of the target file, or one of call,
    attempt, tenant, seq, round, due_ms, uuid, run, batch, tool (`{{` is a brace). A body text that is one placeholder
    alone becomes its value, a number or a list as it is."""

    method: Method = "POST"
    path: Annotated[
        str, written(r"^/", "expected a path that begins with '/'; what it is under goes into `url`", max_length=8192)
    ] = "/"
    headers: dict[HeaderName, HeaderText] = {}
    body: Any = None

    @model_validator(mode="after")
    def _no_credential(self) -> Self:
        reserved = {"host", "content-length", "transfer-encoding", "connection"}
        problems: list[Contradiction] = []
        for name in self.headers:
            if name.lower() in reserved:
                problems.append((("headers", name), "is set by the client itself; leave it out"))
        if self.body is not None and self.method in ("GET", "HEAD", "OPTIONS"):
            problems.append((("body",), f"a {self.method} request carries no body"))
        if problems:
            raise Contradictions(problems)
        return self


PathStart = Annotated[
    str, written(r"^/[!-~]*$", "expected the beginning of a path, such as /v1, without spaces", max_length=1000)
]


class Recorded(Part):
    """How calls that have their own method and path, those of a recorded log, are sent: `strip` is taken off the front
    of the path where it is there, then `prefix` is put before it. query: `drop` leaves it out. headers and body may
    hold what those of `call` may; body: of a POST, PUT or PATCH whose own was not recorded."""

    strip: PathStart | None = None
    prefix: PathStart | None = None
    query: Literal["keep", "drop"] = "keep"
    headers: dict[HeaderName, HeaderText] = {}
    body: Any = {}


class OutcomeRule(Part):
    """The first rule whose every condition holds says the outcome. status: `429`, `5xx`, or a list of them. header:
    name -> text that its value must hold. pointer: where in a JSON body; `equals` one of these values, or merely there.
    reason: a word of one's own; left out, what stands at the pointer."""

    status: int | str | list[int | str] | None = None
    header: dict[HeaderName, str] = {}
    pointer: Pointer | None = None
    equals: str | int | bool | list[str | int | bool] | None = None
    outcome: Outcome
    reason: (
        Annotated[
            str,
            written(r"^[A-Za-z0-9_.-]{1,100}$", "expected one word of letters, digits, '.', '_' and '-', at most 100"),
        ]
        | None
    ) = None

    @model_validator(mode="after")
    def _sound(self) -> Self:
        problems: list[Contradiction] = []
        given = self.status if isinstance(self.status, list) else [] if self.status is None else [self.status]
        for status in given:
            if not re.fullmatch(r"[1-5][0-9x]x|[1-5][0-9]{2}", str(status)):
                problems.append((("status",), "expected a status such as 429 or 5xx"))
        if self.equals is not None and self.pointer is None:
            problems.append((("equals",), "needs a `pointer` that says where to look"))
        if not given and not self.header and self.pointer is None:
            problems.append(((), "a rule needs a condition: status, header or pointer"))
        if problems:
            raise Contradictions(problems)
        return self


class Place(Part):
    """Where an answer says a duration: one of the metric of a Server-Timing header, a header, a JSON pointer."""

    server_timing: Text | None = None
    header: HeaderName | None = None
    pointer: Pointer | None = None
    unit: Unit = "ms"

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(x is not None for x in (self.server_timing, self.header, self.pointer)) != 1:
            raise ValueError("give one of server_timing, header or pointer, and not more than one")
        return self


class RetryAfterPlace(Part):
    """Where an answer says when to come back. unit `http`: whole seconds or an HTTP date, as RFC 9110 has it."""

    header: HeaderName | None = None
    pointer: Pointer | None = None
    unit: Literal["http", "s", "ms"] = "http"

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.header is None) == (self.pointer is None):
            raise ValueError("give a header or a pointer, and not both")
        return self


class Answers(Part):
    """What an answer means. typed: a JSON body `{"outcome": ..., "reason": ...}` in our words is understood, too.

    Without a rule that fits: 2xx is served, 429 throttled, anything else failed.
    """

    outcome: Annotated[list[OutcomeRule], Field(max_length=200)] = []
    typed: bool = True
    queue_wait: Place | None = Place(server_timing="queue")
    service_time: Place | None = Place(server_timing="service")
    retry_after: Annotated[list[RetryAfterPlace], Field(max_length=10)] = [RetryAfterPlace(header="Retry-After")]


class StepAnswers(Part):
    """Where the answer to a batch tells of its steps: a list at `pointer`; the others are within each. step: where its
    id is, as sent, if the list may hold the steps of other batches too. outcomes: the service's words -> ours."""

    pointer: Pointer = "/steps"
    step: Pointer | None = None
    outcome: Pointer = "/outcome"
    outcomes: dict[str, Outcome] = {}
    queue_wait: Pointer | None = "/queue_wait_ms"
    unit: Unit = "ms"


class Poll(Part):
    """For a service that answers a batch with `queued`: `read` is asked every `every` until it is no longer queued."""

    every: Lasting = 200_000_000
    most: Count = 600


class Runs(Part):
    """How agents work with the service. `{run}` is what stood at `run` in the answer to `open`. In `submit`, `{steps}`
    is the list of the batch's steps, each made from `step` (`{step}`, `{dependency}`, `{operation}`, `{tool}`,
    `{idempotency_key}`); `finish` and `cancel` are left out where the service has none."""

    open: Request
    run: Pointer = "/run"
    submit: Request
    step: Any = None
    steps: StepAnswers = StepAnswers()
    read: Request | None = None
    poll: Poll | None = None
    cancel: Request | None = None
    finish: Request | None = None

    @model_validator(mode="after")
    def _readable(self) -> Self:
        if self.poll is not None and self.read is None:
            raise Contradictions([(("poll",), "needs `read`, the request that tells how a batch stands")])
        return self


class Faults(Part):
    """How something is made to go wrong. set, clear: HTTP requests to the target (`{dependency}`, `{kind}`, `{factor}`,
    `{status}`, `{retry_after}`); or commands, argument by argument, run without a shell."""

    set: Request | None = None
    clear: Request | None = None
    set_command: Annotated[list[Text], Field(min_length=1, max_length=100)] | None = None
    clear_command: Annotated[list[Text], Field(min_length=1, max_length=100)] | None = None

    @model_validator(mode="after")
    def _both_ways(self) -> Self:
        if (self.set is None) == (self.set_command is None):
            raise ValueError("give `set` and `clear` as requests, or `set_command` and `clear_command`")
        if (self.clear is None, self.clear_command is None) != (self.set is None, self.set_command is None):
            raise ValueError("what is set must be cleared in the same way, or a fault outlives the trial")
        return self


class DecisionFields(Part):
    """Where each row of the service's own log says what: JSON pointers. One of attempt and call joins it to ours: the
    service must log what it got in the header Overload-Attempt or Overload-Call."""

    time: Pointer = "/t"
    attempt: Pointer | None = None
    call: Pointer | None = None
    tenant: Pointer | None = None
    outcome: Pointer = "/outcome"
    reason: Pointer | None = None
    queue_wait: Pointer | None = None
    service_time: Pointer | None = None
    waiting: Pointer | None = None
    running: Pointer | None = None
    workers: Pointer | None = None

    @model_validator(mode="after")
    def _joinable(self) -> Self:
        if self.attempt is None and self.call is None:
            raise ValueError("needs `attempt` or `call`: where the row holds Overload-Attempt or Overload-Call")
        return self


class DecisionLog(Part):
    """A log of decisions as JSON Lines: a file that grows, or a URL that takes `?cursor=N` and answers with whole lines
    and the header `Overload-Cursor: <next N>`. time: `unix_s`, `unix_ms`, `unix_ns`, `rfc3339`, or `monotonic_ns` of
    this machine. outcomes: the service's words -> ours; a word that is neither is counted and told. unit: of waits."""

    file: Text | None = None
    url: Text | None = None
    fields: DecisionFields
    time: Literal["unix_s", "unix_ms", "unix_ns", "rfc3339", "monotonic_ns"] = "rfc3339"
    outcomes: dict[str, Outcome | Literal["started"]] = {}
    unit: Unit = "ms"

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.file is None) == (self.url is None):
            raise ValueError("give a file or a url, and not both")
        return self


class EvidenceSources(Part):
    """decisions: the service's own log. dependencies: the URL of `overload stub --dependencies-only`, which the service
    calls in place of its real ones: what arrives there is judged. same_clock: the target runs on this machine."""

    decisions: DecisionLog | None = None
    dependencies: Text | None = None
    same_clock: bool = False


class TargetFile(Part):
    """One target, completely described. Field order here is the order in error messages and in the schema."""

    name: ToolName
    about: str = ""
    url: Text
    allow: Annotated[list[Text], Field(max_length=100)] = []
    limits: Limits | None = None
    abort: Abort = Abort()
    tls: Tls = Tls()
    credentials: Credentials = Credentials()
    connect_timeout: Lasting = 5_000_000_000
    call: Request = Request(path="/service", body={})
    recorded: Recorded = Recorded()
    data: Annotated[dict[Name, Data], Field(max_length=200)] = {}
    service_time: Lasting | None = None
    answers: Answers = Answers()
    runs: Runs | None = None
    faults: Faults | None = None
    evidence: EvidenceSources = EvidenceSources()
    driver: (
        Annotated[
            str,
            written(
                r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$",
                "expected module:Class, such as mine:Staging for the class Staging of mine.py beside this file",
            ),
        ]
        | None
    ) = None

    @property
    def host(self) -> str:
        return (urlsplit(self.url).hostname or "").lower()
