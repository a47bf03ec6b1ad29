"""One trial from plan to verdict, spelled out in one place:

    plan -> drive (live or in virtual time) -> collect -> judge -> write

A trial's folder is complete at every moment: the manifest is written before the first call, rows as calls end, the
manifest's `ended` last. A trial that was interrupted, or whose child died, says so there and is judged INVALID.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from fractions import Fraction
from pathlib import Path
from typing import Any

from harness import checks
from harness.checks.verdict import Verdict, Word, exit_code, worst
from harness.errors import BadInput, TrialBroken
from harness.ledger import manifest as manifests
from harness.ledger.reader import CALLS, MANIFEST, Trial, read_trial
from harness.ledger.writer import JsonLines, write_manifest
from harness.machine import usable_cores
from harness.profile.demand import stub_refusal
from harness.profile.loader import Loaded
from harness.profile.model import Profile
from harness.recorded.schedule import source
from harness.report import write_reports
from harness.simulate.capacity import RETURN_WITHIN_NS
from harness.simulate.record import files_of, has_runs, simulation_of
from harness.simulate.service import capacity_config, shared_service
from harness.target.driver_process import ALONE, LiveProcess, Workers
from harness.target.errors import TargetGone
from harness.target.file import Described, tls_of
from harness.target.session import Session, refuse
from harness.target.stub import StubProcess
from harness.target.tokens import credentials_of
from harness.target.url import RemoteStub, connect
from harness.workload.defects import is_of_callers
from harness.workload.plan import RecordedSource, no_recordings, planned
from stub_service.defects.registry import CALLER, CAPACITY, DEFECTS, SHARED, Defect

SIMULATOR, STUB, FILE = "simulator", "stub", "file"
Target = str | Described
"""`simulator`, `stub`, the URL of a service on loopback, or a service that a target file describes."""
LEAD_NS = 500_000_000
"""From the agreement on the epoch to the epoch: children must have heard of it by then."""

_LOOK_S = 0.02
"""Between two looks at what is still under way when the callers are done."""

Progress = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Judged:
    """A finished trial with its verdicts, and the files written about it."""

    trial: Trial
    verdicts: list[Verdict]
    files: dict[str, Path] = field(default_factory=dict)

    def with_verdict(self, verdict: Verdict) -> Judged:
        """The same trial with one verdict more, and its reports written again."""
        verdicts = [*self.verdicts, verdict]
        return Judged(self.trial, verdicts, write_reports(self.trial, verdicts))

    @property
    def word(self) -> Word:
        return worst(verdict.word for verdict in self.verdicts)

    @property
    def exit_code(self) -> int:
        return exit_code(verdict.word for verdict in self.verdicts)

    @property
    def interrupted(self) -> bool:
        """Somebody pressed Ctrl-C while it ran, or the target suffered: no further trial is wanted."""
        reason = str((self.trial.manifest.get("ended") or {}).get("reason"))
        return reason == "interrupted" or reason.startswith("aborted")


def new_folder(reports: Path, name: str) -> Path:
    """Makes `reports/<UTC time>-<name>`, unique. Raises BadInput if it cannot be made."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    for suffix in ("", *(f"-{n}" for n in range(2, 1000))):
        folder = reports / f"{stamp}-{name}{suffix}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            if folder.is_dir():
                continue
            raise BadInput(f"{reports}: not a folder; give --reports a folder that can be written") from None
        except OSError as error:
            raise BadInput(f"{folder}: cannot be made ({error.strerror}); give --reports another folder") from None
        return folder
    raise BadInput(f"{reports}: a thousand trials of this second exist already")


def run(
    loaded: Loaded,
    folder: Path,
    target: Target,
    defect: str | None = None,
    on_progress: Progress = lambda event: None,
    workers: Workers = ALONE,
) -> Judged:
    """Drives one trial and judges it. workers: the processes that drive it, here and elsewhere.

    Raises BadInput before anything was sent (the folder is then taken away again). A trial that breaks later is judged:
    INVALID, with the reason.
    """
    try:
        _check_defect(defect, loaded.profile)
        if target == SIMULATOR:
            simulate(loaded, folder, defect)
        else:
            drive(loaded, folder, target, defect, on_progress, workers)
    except BadInput:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return judge(folder)


def _check_defect(name: str | None, profile: Profile) -> None:
    """Raises BadInput on a defect that is not known, or is laid over what the profile does not use."""
    if name is None:
        return
    part = known_defect(name).part
    if part not in ((CAPACITY,) if has_runs(profile) else (SHARED, CALLER)):
        wants = "a profile whose tenants have runs" if part == CAPACITY else "tenants that call the shared service"
        raise BadInput(f"defect '{name}' needs {wants}: nothing in profile '{profile.name}' would meet it")


def known_defect(name: str) -> Defect:
    """Raises BadInput on a name that is not known, with the one that was perhaps meant."""
    if name not in DEFECTS:
        near = get_close_matches(name, DEFECTS, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise BadInput(f"unknown defect '{name}'{hint} (overload stub --list-defects shows them)")
    return DEFECTS[name]


def faults_of(profile: Profile) -> list[dict[str, Any]]:
    """What a profile has go wrong in the dependencies, as the stub's API takes it."""
    return [asdict(fault) for fault in capacity_config(profile).faults]


def judge(folder: Path, only: Sequence[str] | None = None, write: bool = True) -> Judged:
    """Judges the trial of a folder, and writes its reports there. Raises LedgerError."""
    trial = read_trial(folder)
    verdicts = checks.judge_all(trial, only)
    return Judged(trial, verdicts, write_reports(trial, verdicts) if write else {})


def simulate(loaded: Loaded, folder: Path, defect: str | None = None) -> None:
    """Runs the profile in virtual time and writes the ledger. Raises BadInput if it does not describe what it needs."""
    profile, recorded = loaded.profile, recordings(loaded, folder)
    target = {"kind": SIMULATOR, **_defects(defect)}
    manifest = _begin(loaded, folder, "simulated", target, "virtual", recorded, {"decisions": True})
    files = {name: JsonLines(folder / name) for name in files_of(profile)}
    reason, at_ns = "error", 0
    leftovers = None
    try:
        simulation = simulation_of(profile, {name: file.add for name, file in files.items()}, recorded, defect)
        at_ns = simulation.run()
        leftovers = simulation.leftovers
        reason = "completed"
    except KeyboardInterrupt:
        reason = "interrupted"
    finally:
        for file in files.values():
            file.close()
        write_manifest(folder, manifests.end(manifest, reason, at_ns, files[CALLS].written, None, leftovers))


def drive(
    loaded: Loaded,
    folder: Path,
    target: Target,
    defect: str | None,
    on_progress: Progress,
    workers: Workers = ALONE,
) -> None:
    """Runs the profile over real HTTP. Raises BadInput before anything was sent; later breaks are in the manifest."""
    if isinstance(target, Described):
        _drive_described(loaded, folder, target, defect, on_progress, workers)
        return
    laid = _defects(defect)
    if target != STUB:
        _must_keep(laid)
        with connect(target) as remote:
            if remote is not None:
                _must_serve(loaded.profile, remote)
            _drive(loaded, folder, {"kind": "url", "url": target, **laid}, remote, on_progress, workers)
            return
    refusal = stub_refusal(loaded.profile, usable_cores())
    if refusal is not None:
        raise BadInput(refusal)
    profile = loaded.profile
    shared = shared_service(profile) if profile.service is not None or not has_runs(profile) else None
    capacity = capacity_config(profile) if profile.capacity is not None or has_runs(profile) else None
    try:
        with StubProcess(shared, folder, capacity=capacity, defect=laid.get("defect")) as stub:
            _drive(loaded, folder, {"kind": STUB, "url": stub.url, **laid}, stub, on_progress, workers)
    except TargetGone as error:
        if (folder / MANIFEST).exists():
            raise
        _never_began(loaded, folder, {"kind": STUB, "url": "", **laid}, str(error))


def _never_began(loaded: Loaded, folder: Path, target: dict[str, Any], why: str) -> None:
    """The record of a trial whose stub was killed while it started: nobody's input is to blame, so it is INVALID."""
    manifest = _begin(loaded, folder, "live", target, "shared", recordings(loaded, folder), {"decisions": False})
    write_manifest(folder, manifests.end(manifest, f"broken: {why}", 0, 0, None))


def _defects(name: str | None) -> dict[str, str]:
    """A defect as the manifest has it: of the service, or of the callers."""
    return {} if name is None else {"caller_defect" if is_of_callers(name) else "defect": name}


def _must_keep(laid: dict[str, str]) -> None:
    """Raises BadInput on a defect that only the bundled stub can have. Callers are ours, whatever they call."""
    if "defect" in laid:
        raise BadInput("--defect is laid over the bundled stub; a target of its own keeps its own behaviour")


def _drive_described(
    loaded: Loaded, folder: Path, described: Described, defect: str | None, on_progress: Progress, workers: Workers
) -> None:
    laid = _defects(defect)
    _must_keep(laid)
    profile = loaded.profile
    refuse(described, profile, loaded.time_scale, recorded_peaks(loaded, folder))
    tls = tls_of(described)
    tokens = credentials_of(described.target, list(profile.tenants))
    with Session(described, faults_of(profile) if profile.faults else [], tokens) as session:
        target = {
            "kind": FILE,
            "name": described.target.name,
            "url": described.target.url,
            "file": described.document,
            "folder": str(described.folder),
            "allowed_hosts": list(described.target.allow),
            "tls": tls.to_json() if tls is not None else None,
            "connect_timeout_ns": described.target.connect_timeout,
            "service_time_ns": described.target.service_time,
            "finishes": described.target.runs is not None and described.target.runs.finish is not None,
            **laid,
        }
        _drive(loaded, folder, target, session, on_progress, workers)


def _must_serve(profile: Profile, stub: RemoteStub) -> None:
    """Raises BadInput if a stub that runs already lacks what the tenants call: every call would fail."""
    health = stub.health()
    missing = "capacity layer" if has_runs(profile) else "shared service"
    if not (health.get("controller") if has_runs(profile) else "workers" in health):
        raise BadInput(
            f"the stub at {stub.url} has no {missing}, which the tenants of profile '{profile.name}' call; start one "
            "that has: overload stub PROFILE"
        )


def _drive(
    loaded: Loaded,
    folder: Path,
    target: dict[str, Any],
    service: StubProcess | RemoteStub | Session | None,
    on_progress: Progress,
    workers: Workers = ALONE,
) -> None:
    recorded = recordings(loaded, folder)
    shared = service.same_clock if isinstance(service, Session) else service is not None
    evidence = service.evidence if isinstance(service, Session) else {"decisions": service is not None}
    # What workers of other machines say of time is good to their clock error only.
    domain = "shared" if shared and not workers.elsewhere else "separate"
    manifest = _begin(loaded, folder, "live", target, domain, recorded, evidence)
    done: dict[str, Any] = {"reason": "error", "at_ns": 0, "calls": 0}
    lag = leftovers = None
    try:
        with LiveProcess(folder, workers=workers) as live:
            live.ready(on_waiting=on_progress)
            epoch_ns = time.monotonic_ns() + LEAD_NS
            if service is not None:
                service.set_epoch(epoch_ns)
            live.begin(epoch_ns)
            done = _follow(live, on_progress)
        if service is not None:
            health = _settled(service, epoch_ns + loaded.profile.duration + loaded.profile.drain)
            lag, leftovers = health["loop_lag"], health.get("leftovers")
            service.collect(folder)
            if isinstance(service, Session):
                manifest = {**manifest, **service.told}
        if done.get("error"):
            done = {**done, "reason": f"{done['reason']}: {done['error']}"}
    except TrialBroken as error:
        # The record stays, says why, and is judged INVALID.
        done = {**done, "reason": f"broken: {error}"}
    except KeyboardInterrupt:
        done = {**done, "reason": "interrupted"}
        raise
    finally:
        reason = service.masked(done["reason"]) if isinstance(service, Session) else done["reason"]
        end = manifests.end(manifest, reason, done["at_ns"], done["calls"], lag, leftovers, done.get("workers"))
        write_manifest(folder, end)


def _settled(service: StubProcess | RemoteStub | Session, limit_ns: int) -> dict[str, Any]:
    """The stub's health once its dependencies work on nothing that callers left behind, or at the drain limit; what
    its controller then holds it has half a second to give back."""
    while True:
        health = service.health()
        now_ns = time.monotonic_ns()
        busy = any(figure for one in health.get("dependencies", {}).values() for figure in one.values())
        if not busy:
            limit_ns = min(limit_ns, now_ns + RETURN_WITHIN_NS)
        held = any((health.get("leftovers") or {}).values())
        if not (busy or held) or now_ns >= limit_ns:
            return health
        time.sleep(_LOOK_S)


def _follow(live: LiveProcess, on_progress: Progress) -> dict[str, Any]:
    """Hands progress on until the driver says that it is done. Ctrl-C once drains; twice gives up."""
    interrupted = False
    while True:
        try:
            for event in live.events():
                if event["event"] == "done":
                    return event
                on_progress(event)
            raise TrialBroken("the live driver ended without saying that it was done")
        except KeyboardInterrupt:
            if interrupted:
                raise
            interrupted = True
            live.interrupt()


def recordings(loaded: Loaded, folder: Path) -> RecordedSource:
    """Where the arrivals of recorded tenants are read from: the trial's own folder."""
    if any(tenant.recorded for tenant in loaded.profile.tenants.values()):
        return source(folder, loaded.time_scale)
    return no_recordings


def recorded_peaks(loaded: Loaded, folder: Path) -> dict[str, Fraction]:
    """The most calls in any one second of each recording that the trial's folder holds."""
    source_of = recordings(loaded, folder)
    peaks = {}
    for name, tenant in loaded.profile.tenants.items():
        if tenant.recorded is not None:
            seconds = Counter(arrival.due_ns // 1_000_000_000 for arrival in source_of(tenant.recorded.file))
            peaks[name] = Fraction(max(seconds.values(), default=0))
    return peaks


def _begin(
    loaded: Loaded,
    folder: Path,
    driver: str,
    target: dict[str, Any],
    clock_domain: str,
    recorded: RecordedSource,
    evidence: dict[str, bool],
) -> dict[str, Any]:
    manifest = manifests.begin(
        folder.name,
        datetime.now(UTC).isoformat(timespec="seconds"),
        driver,
        loaded.document,
        loaded.time_scale,
        loaded.profile.seed,
        loaded.variant,
        target,
        clock_domain,
        planned(loaded.profile, recorded),
        evidence,
    )
    (folder / CALLS).touch()  # a driver that dies before its first row has left a trial without one
    write_manifest(folder, manifest)
    return manifest
