"""A described target in the live driver: whose tokens, what its answers mean, and the rails while a trial runs.

Read from the manifest's `target.file`, the document of the target file, so that a trial is the same wherever it is
driven. Tokens come from this process's own environment and are in no message; what the target says is masked before it
is kept (harness/target/tokens.py).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.ledger.call import Call
from harness.ledger.outcomes import ABANDONED, COALESCED, EXPIRED, FAILED, QUEUED, SERVED
from harness.live.answers import QUEUE_DEADLINE
from harness.live.manifest import CannotBegin, Manifest
from harness.profile.model import Profile
from harness.target.driver import Context, DriverFactory, driver_class
from harness.target.file import target_from_document
from harness.target.model import TargetFile
from harness.target.rails import AbortRule
from harness.target.runs import OPEN_RUN, SUBMIT, batch_of, run_id_of
from harness.target.templates import Draws
from harness.target.tokens import Redactor, credentials_of, secrets_of
from harness.target.understanding import Understanding, json_of

NO_CEILING = 1 << 62
_TYPED = b'"outcome"'


@dataclass(frozen=True, slots=True)
class DescribedTarget:
    """One of a trial. max_in_flight: of this process. context, driver: what the target's Python driver is made with,
    and by, if it has one."""

    file: TargetFile
    tokens: Mapping[str, str] = field(repr=False)
    draws: Draws
    answers: TargetAnswers
    max_in_flight: int
    context: Context
    driver: DriverFactory | None = None

    @property
    def finishes(self) -> bool:
        """Whether the service can be told that a run is over."""
        return self.file.runs is not None and self.file.runs.finish is not None

    def abort_rule(self, profile: Profile) -> AbortRule:
        places = {name: place for place, name in enumerate(profile.tenants)}
        return AbortRule(self.file.abort, frozenset(places[name] for name in profile.ordinary if name in places))

    def share(self, place: int, of: int) -> DescribedTarget:
        """That of one of several workers, which together keep to the ceiling. Raises CannotBegin."""
        if self.max_in_flight < of:
            raise CannotBegin(
                f"limits.max_in_flight is {self.max_in_flight}, and {of} workers are to share it; take fewer workers"
            )
        own = self.max_in_flight // of + (place < self.max_in_flight % of)
        return replace(self, max_in_flight=own if self.max_in_flight < NO_CEILING else NO_CEILING)


def described_in(
    manifest: Manifest, environment: Mapping[str, str] = os.environ, tenants: list[str] | None = None
) -> DescribedTarget | None:
    """None: no target file describes it. tenants: those that this process drives. Raises BadInput."""
    if manifest.target_kind != "file":
        return None
    document = manifest.document["target"]
    described = target_from_document(document.get("file"), Path(str(document.get("folder", "."))), "the target file")
    file = described.target
    tokens = credentials_of(file, list(manifest.profile.tenants) if tenants is None else tenants, environment)
    redactor = Redactor(secrets_of(tokens))
    return DescribedTarget(
        file,
        tokens,
        Draws(file.data, manifest.profile.seed),
        TargetAnswers(file, redactor),
        file.limits.max_in_flight if file.limits is not None else NO_CEILING,
        Context(file.url, described.document, described.folder),
        driver_class(file.driver, described.folder) if file.driver is not None else None,
    )


class TargetAnswers:
    """What its answers mean. headers: names that the reader of answers must keep."""

    __slots__ = ("_runs", "_typed", "_understanding", "headers", "redactor", "wants_body")

    def __init__(self, file: TargetFile, redactor: Redactor) -> None:
        self._understanding = Understanding(file.answers, redactor)
        self._typed = file.answers.typed
        self._runs = file.runs
        self.redactor = redactor
        self.headers = self._understanding.headers
        self.wants_body = self._understanding.wants_body

    def judge(self, call: Call, status: int, headers: Mapping[bytes, bytes], body: bytes | None, asked: bool) -> str:
        """The outcome of a call of the shared service; sets what there is to know on the call. asked: a queue deadline
        was sent with it."""
        success = 200 <= status < 300
        read = not success or self.wants_body or (self._typed and body is not None and _TYPED in body)
        outcome = self._understood(call, status, headers, json_of(body) if read else None)
        if outcome == QUEUED:
            call.reason = "unasked_wait"
            return FAILED
        if outcome == EXPIRED and asked and call.reason == QUEUE_DEADLINE:
            call.reason = "patience"
            return ABANDONED
        return SERVED if outcome == COALESCED and success else outcome

    def judge_run(
        self, call: Call, status: int, headers: Mapping[bytes, bytes], body: bytes | None, asked: Mapping[str, Any]
    ) -> str:
        """The same for a call of an agent run. `queued`: the batch is to be asked for again."""
        runs = self._runs
        assert runs is not None
        document = json_of(body)
        outcome = self._understood(call, status, headers, document)
        if call.polls and not call.typed and (status == 429 or status >= 500):
            outcome = QUEUED  # of this question, not of the batch
        if call.action == OPEN_RUN and outcome == SERVED:
            run = run_id_of(runs, document)
            call.answer = {"run": run} if run is not None and run == self.redactor.masked(run, len(run)) else {}
        elif call.action == SUBMIT and outcome in (SERVED, COALESCED, QUEUED):
            told = batch_of(runs.steps, document, asked)
            outcome = told.outcome or outcome
            call.reason = told.reason or call.reason
            call.queue_wait_ns = max(call.queue_wait_ns, told.queue_wait_ns)
        if outcome == QUEUED and (runs.poll is None or call.action != SUBMIT):
            call.reason = "unasked_wait"
            return FAILED
        call.typed = call.typed or outcome == QUEUED
        return outcome

    def _understood(self, call: Call, status: int, headers: Mapping[bytes, bytes], document: Any) -> str:
        said = self._understanding.of_document(status, headers, document)
        call.status, call.typed, call.retry_after = status, said.typed, said.retry_after
        call.queue_wait_ns, call.service_ns = said.queue_wait_ns, said.service_ns
        success = 200 <= status < 300
        call.reason = None if said.outcome == SERVED and success else said.reason
        if said.outcome == FAILED and call.reason is None:
            call.reason = f"status_{status}"
        return said.outcome
