"""A described target during one trial: rails before, evidence around, clocks brought together.

    refuse      the rails and the tokens, before anything is sent
    set_epoch   marks the service's log, begins the dependencies' evidence, sets the profile's faults there
    collect     what the log and the dependencies say, into the trial's folder, by the callers' clock
    close       takes the faults away again

The service itself is never asked for anything but its evidence: nothing of it changes but by the calls of the trial.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import orjson

from harness.errors import BadInput
from harness.ledger.reader import ARRIVALS, DECISIONS, Trial, attempt_key, read_trial
from harness.measure.clock_offset import Offset, offset_of
from harness.profile.demand import NO_PEAKS
from harness.profile.model import Profile
from harness.target.driver import Context, TargetDriver, driver_class, made, reason_of
from harness.target.errors import TargetGone, TargetUnusable
from harness.target.evidence import DRIVER_ROWS, Collected, DriverLog, FileLog, HttpLog, LogSource, read_log
from harness.target.file import Described, tls_of
from harness.target.model import DecisionLog, Request
from harness.target.rails import refusals
from harness.target.templates import RequestTemplate, value_of
from harness.target.tokens import Redactor, credentials_of, secrets_of
from harness.target.url import Endpoint, RemoteStub

NO_TOKENS: Mapping[str, str] = MappingProxyType({})
_ASK_S = 10.0
_COMMAND_S = 30.0
_MOST_TEXT = 200


def refuse(
    described: Described, profile: Profile, time_scale: float, recorded_peaks: Mapping[str, Fraction] = NO_PEAKS
) -> None:
    """Raises BadInput with every reason why this trial must not be sent. Nothing was sent."""
    target = described.target
    found = refusals(profile, target, time_scale, recorded_peaks)
    if any(tenant.runs for tenant in profile.tenants.values()) and target.runs is None and target.driver is None:
        found.append(
            f"profile '{profile.name}' has agent runs, and target '{target.name}' does not say how one is opened: add "
            "`runs` or a `driver` to the target file"
        )
    cancels = any(group.cancel_after is not None for tenant in profile.tenants.values() for group in tenant.runs)
    if cancels and target.runs is not None and target.runs.cancel is None:
        found.append(
            f"profile '{profile.name}' cancels runs, and target '{target.name}' does not say how: add `runs.cancel`"
        )
    driver = None
    if target.driver is not None:
        try:
            driver = driver_class(target.driver, described.folder)
        except BadInput as error:
            found.append(str(error))
    injects = getattr(driver, "inject", None) is not None
    if profile.faults and not (target.faults or target.evidence.dependencies or injects):
        found.append(
            f"profile '{profile.name}' has faults, and target '{target.name}' says no way to cause them: add `faults`, "
            "`evidence: {dependencies: ...}` or a `driver` to the target file"
        )
    try:
        credentials_of(target, list(profile.tenants))
    except BadInput as error:
        found.append(str(error))
    if found:
        raise BadInput("\n".join(found))


def evidence_of(described: Described) -> dict[str, bool]:
    """Tiers that it gives, as the manifest keeps them. Raises BadInput if its driver cannot be had."""
    target = described.target
    tells = False
    if target.driver is not None:
        tells = getattr(driver_class(target.driver, described.folder), "evidence", None) is not None
    return {
        "decisions": target.evidence.decisions is not None or tells,
        "dependencies": target.evidence.dependencies is not None,
        "typed": bool(target.answers.outcome) or target.answers.typed,
        "runs": target.runs is not None or target.driver is not None,
    }


class Session:
    """`with` it around a trial. faults: as the stub's API takes them. tokens: of its tenants, to be masked in what is
    collected."""

    def __init__(
        self, described: Described, faults: list[dict[str, Any]], tokens: Mapping[str, str] = NO_TOKENS
    ) -> None:
        self._redactor = Redactor(secrets_of(tokens))
        self._described = described
        self._target = described.target
        self._faults = faults
        sources = self._target.evidence
        tls = tls_of(described)
        self._endpoint = Endpoint(self._target.url, tls, self._target.allow)
        self._log: LogSource | None = None
        self._log_form = sources.decisions
        if sources.decisions is not None:
            self._log = self._log_of(sources.decisions)
        self._driver: TargetDriver | None = None
        if self._target.driver is not None:
            context = Context(self._target.url, described.document, described.folder)
            self._driver = made(driver_class(self._target.driver, described.folder), context)
            if self._log is None and self._driver.evidence is not None:
                self._log, self._log_form = DriverLog(self._driver.evidence), DRIVER_ROWS
        self.dependencies: RemoteStub | None = None
        if sources.dependencies is not None:
            ours = urlsplit(sources.dependencies).scheme == "https"
            self.dependencies = RemoteStub(sources.dependencies, tls if ours else None, self._target.allow)
        self._epoch_ns = 0
        self._epoch_wall_ns = 0
        self._faults_set = False
        self.told: dict[str, Any] = {}

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        if self._faults_set:
            self._faults_set = False
            with suppress(TargetGone, OSError):
                self._clear_faults()

    @property
    def evidence(self) -> dict[str, bool]:
        """Tiers that it gives, as the manifest keeps them."""
        return evidence_of(self._described)

    @property
    def same_clock(self) -> bool:
        return self._target.evidence.same_clock or (
            self._log_form is not None and self._log_form.time == "monotonic_ns"
        )

    def set_epoch(self, monotonic_ns: int) -> None:
        """The trial begins at this instant of CLOCK_MONOTONIC of this machine. Raises TargetUnusable."""
        self._epoch_ns = monotonic_ns
        self._epoch_wall_ns = time.time_ns() + monotonic_ns - time.monotonic_ns()
        try:
            if self.dependencies is not None:
                self.dependencies.set_epoch(monotonic_ns)
            self._set_faults()
        except TargetGone as error:
            raise TargetUnusable(str(error)) from None
        if self._log is not None:
            self._log.mark()

    def health(self) -> dict[str, Any]:
        """Of the dependencies, if they are ours; else nothing is known."""
        return self.dependencies.health() if self.dependencies is not None else {"loop_lag": None}

    def collect(self, folder: Path) -> None:
        """Raises TargetGone."""
        if self.dependencies is not None:
            # What stands in for the dependencies decides nothing of the target's.
            self.dependencies.collect(folder, but="decisions")
            (folder / ARRIVALS).touch()
        if self._log is None or self._log_form is None:
            return
        monotonic = self._log_form.time == "monotonic_ns"
        collected = read_log(self._log, self._log_form, self._epoch_ns if monotonic else self._epoch_wall_ns)
        self.told["decision_log"] = {**collected.told, "words": self._masked(collected.told["words"])}
        if not self.same_clock:
            self.told["clock"] = _brought_together(collected, read_trial(folder))
        with (folder / DECISIONS).open("ab") as file:
            for row in collected.rows:
                file.write(orjson.dumps(self._masked(row)) + b"\n")

    def masked(self, text: str) -> str:
        """Whatever is told of the trial, without a token of it."""
        return self._redactor.masked(text, len(text))

    def _masked(self, said: dict[str, Any]) -> dict[str, Any]:
        """A log may hold what it was sent: no token is kept."""
        masked = self._redactor.masked
        return {
            masked(key, _MOST_TEXT): masked(value, _MOST_TEXT) if isinstance(value, str) else value
            for key, value in said.items()
        }

    def _log_of(self, log: DecisionLog) -> LogSource:
        if log.file is not None:
            return FileLog(self._described.folder / log.file)
        assert log.url is not None
        parts = urlsplit(log.url)
        tls = tls_of(self._described) if parts.scheme == "https" else None
        endpoint = Endpoint(f"{parts.scheme}://{parts.netloc}", tls, self._target.allow)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return HttpLog(lambda method, ask: _must(endpoint, method, ask), path)

    def _set_faults(self) -> None:
        if not self._faults:
            return
        if self.dependencies is not None:
            self.dependencies.set_faults(self._faults)
        elif self._driver is not None and self._driver.inject is not None:
            self._inject(self._driver.inject, self._faults)
        else:
            assert self._target.faults is not None
            for fault in self._faults:
                self._cause(self._target.faults.set, self._target.faults.set_command, fault)
        self._faults_set = True

    def _inject(self, inject: Callable[[list[dict[str, Any]]], None], faults: list[dict[str, Any]]) -> None:
        try:
            inject(faults)
        except Exception as error:
            raise TargetGone(f"the driver could not set the faults ({reason_of(error)})") from None

    def _clear_faults(self) -> None:
        if self.dependencies is not None:
            self.dependencies.set_faults([])
            return
        if self._driver is not None and self._driver.inject is not None:
            self._inject(self._driver.inject, [])
            return
        assert self._target.faults is not None
        for fault in self._faults:
            self._cause(self._target.faults.clear, self._target.faults.clear_command, fault)

    def _cause(self, request: Request | None, command: list[str] | None, fault: dict[str, Any]) -> None:
        if request is not None:
            filled = RequestTemplate(request).fill(fault)
            _must(self._endpoint, filled.method, filled.path, filled.body, dict(filled.headers))
        if command is not None:
            _run([str(value_of(argument, fault)) for argument in command], self._described.folder)


def _must(
    endpoint: Endpoint, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> Any:
    """One exchange that must succeed. Raises TargetGone."""
    try:
        status, answered, said = endpoint.exchange(method, path, body, _ASK_S, headers or {})
    except Exception as error:
        raise TargetGone(f"{endpoint.url}{path} did not answer {method}: {error!r}") from None
    if not 200 <= status < 300:
        raise TargetGone(f"{endpoint.url}{path} answered {method} with {status}: {said[:200]!r}")
    return answered, said


def _run(arguments: list[str], folder: Path) -> None:
    """Without a shell: nothing that a fault holds is ever read as a command."""
    try:
        subprocess.run(
            arguments, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=_COMMAND_S, check=True,
            env=dict(os.environ),
        )  # fmt: skip
    except subprocess.CalledProcessError as error:
        said = (error.stderr or b"")[-200:].decode("utf-8", "replace")
        raise TargetGone(f"{arguments[0]} ended with {error.returncode}: {said!r}; mend `faults`") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TargetGone(f"{arguments[0]} could not be run ({error}); mend `faults`") from None


def _brought_together(collected: Collected, trial: Trial) -> dict[str, Any]:
    """Shifts the rows to the callers' clock. What is known of the offset, for the manifest."""
    calls = trial.calls
    sent = (calls.sent_ns >= 0) & (calls.status > 0)  # what we did not wait for may be stamped after we left
    keys = attempt_key(calls.tenant, calls.seq, calls.attempt)[sent]
    place = {int(key): i for i, key in enumerate(keys)}
    events = []
    for row in collected.rows:
        tenant, seq, attempt = (int(part) for part in row["attempt_id"].split("."))
        found = place.get(tenant << 44 | seq << 8 | attempt)
        if found is not None:
            events.append((found, row["t_ns"]))
    at = np.array([i for i, _ in events], dtype=np.int64)
    stamped = np.array([t for _, t in events], dtype=np.int64)
    offset: Offset | None = offset_of(calls.sent_ns[sent][at], stamped, calls.done_ns[sent][at]) if events else None
    if offset is None:
        return {"samples": 0}
    for row in collected.rows:
        row["t_ns"] -= offset.offset_ns
    return {
        "offset_ns": offset.offset_ns,
        "error_ns": offset.error_ns,
        "consistent": offset.consistent,
        "samples": offset.samples,
    }
