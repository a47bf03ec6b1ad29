"""The verification: overload situations, each a profile of its own in `profiles/verification`, driven and judged.

Which situations there are, in which order they run, and how their verdicts become rows is here; a single trial is
harness/trial.py, what is shown is harness/report/verification.py. A situation that measures latency runs alone. Of the
others two run side by side, because they count arrivals and hold instants against bounds far over what that costs.

A live trial that is INVALID only because the harness itself was late proves nothing either way: it is driven once more,
alone, and says so. Nothing else is ever tried again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from harness import checks, trial
from harness.checks.judge import withheld as tell_withheld
from harness.checks.on_time import CEILING
from harness.checks.tiers import given_by, judgeable
from harness.checks.verdict import Verdict, Word, worst
from harness.errors import BadInput
from harness.machine import usable_cores
from harness.profile.loader import Loaded, load
from harness.report.verification import Row, Verification, of_trials
from harness.shipped import VERIFICATION, shown
from harness.simulate.record import has_runs
from harness.target.file import Described
from harness.target.session import evidence_of, refuse
from harness.target.url import RemoteStub, probe
from stub_service.defects.registry import CAPACITY, DEFECTS

ON_TIME = "trial.on_time"
SIDE_BY_SIDE = 2


@dataclass(frozen=True, slots=True)
class Case:
    """One situation. check: the one that it is there for. alone: it measures latency, so nothing may run beside it."""

    name: str
    check: str
    title: str
    path: Path
    alone: bool = False


def _case(name: str, check: str, title: str, alone: bool = False) -> Case:
    return Case(name, check, title, VERIFICATION / f"{name}.yaml", alone)


CASES = (
    _case("v01", "v01.fan_out_ceiling", "a planner asks for more than its envelope holds"),
    _case("v02", "v02.foreground_first", "people come back to a service full of background work", alone=True),
    _case("v03", "v03.tenant_share", "a tenant floods its queue beside one that keeps its share", alone=True),
    _case("v04", "v04.bulkheads", "one dependency becomes slow, the others stay well", alone=True),
    _case("v05", "v05.one_retry_owner", "failures of every kind, retried by one owner"),
    _case("v06", "v06.expiry", "work waits until its deadline has passed"),
    _case("v07", "v07.retry_after", "Retry-After in every form, inside and beyond the deadline"),
    _case("v08", "v08.circuit", "a dependency fails, a circuit opens, probes, and closes"),
    _case("v09", "v09.ambiguous_write", "payments are committed and never answered"),
    _case("v10", "v10.outage_recovery", "a long outage, a backlog, and a second wave"),
    _case("fairness", "fairness.ordinary_unmoved", "an agent runs away beside three ordinary tenants", alone=True),
    _case("max_min", "fairness.max_min", "tenants of different weight want more than there is"),
    _case("identity", "fairness.identity_from_credential", "a runaway claims to be fifty tenants"),
    _case("shuffle", "fairness.shuffle_isolation", "three floods beside 300 light tenants", alone=True),
    _case("recovers", "fairness.recovers", "re-plans must not outlive the burst that began them"),
    _case("shadow", "fairness.shadow_agrees", "a policy in shadow foretells what it would refuse"),
    _case(
        "budget_per_tenant", "agent.budget_per_tenant", "two hundred runs of one tenant, each with a budget, at once"
    ),
    _case("rounds", "agent.rounds_capped", "agents answer refusals with calls to other tools"),
    _case("retry_budget", "agent.retry_budget", "a client retries against a service that refuses half"),
    _case("adaptive_throttle", "agent.adaptive_throttle", "a client sends less while its service is in trouble"),
    _case("refusal_result", "agent.refusal_is_a_result", "an agent is told to try again in a second"),
    _case("coalesced", "capacity.coalesced", "equal reads of one tenant share one call"),
    _case("cancelled", "capacity.cancelled", "runs are cancelled with steps in flight"),
    _case("adaptive", "capacity.adaptive_bounded", "a limit that adapts stays within its bounds"),
    _case("decisions", "trial.decisions_complete", "every kind of decision is written down once"),
    _case(
        "cost_bucket_per_tenant", "cost.bucket_per_tenant", "one tenant spends what its bucket holds, and no other's"
    ),
    _case("cost_reconciled", "cost.reconciled", "runs cost other than forecast, crash, and are cancelled"),
    _case("cost_unwound", "cost.unwound", "a thousand requests are refused halfway in"),
    _case("cost_size_class", "cost.size_class", "people chat while deep research takes every session it can"),
    _case("cost_corridor", "cost.corridor", "waves of runs before a model with a quota of tokens"),
    _case("tree_bounded", "tree.bounded", "agents delegate deeper, wider and for more than they may"),
    _case("tree_priced", "tree.delegate_priced", "agents delegate and call beyond their credits"),
    _case("tree_guard", "tree.inward_guard", "agents loop against their own tenant"),
    _case("flood_cheap", "flood.cheap", "a night of small requests of one tenant"),
    _case("flood_expensive", "flood.expensive", "chat turns fan out into hundreds of sessions", alone=True),
)
CORE = ("fairness", "coalesced", "cancelled", "adaptive", "decisions")
PRESETS = {
    "core": (*(case.name for case in CASES if case.check[0] == "v"), *CORE),
    "first": ("v02", "v05"),
    "all": tuple(case.name for case in CASES),
}
"""core: the ten verification tests and those beside them. first: the two to run before autonomous traffic is raised."""


@dataclass(frozen=True, slots=True)
class Options:
    """target: `stub`, `simulator`, the loopback URL of a stub that runs already, or a service that a target file
    describes. defect: laid over what it fits."""

    reports: Path
    target: trial.Target = trial.STUB
    defect: str | None = None
    time_scale: float = 1.0

    @property
    def live(self) -> bool:
        return self.target != trial.SIMULATOR


@dataclass(frozen=True, slots=True)
class Outcome:
    """One situation that was driven. tries: 2 if the harness was late the first time. defect: the one laid over it."""

    case: Case
    judged: trial.Judged
    tries: int
    seconds: float
    defect: str | None = None

    @property
    def verdict(self) -> Verdict:
        """That of the situation's own check; INVALID if the trial cannot be trusted."""
        return trusted(self.case.check, self.judged.verdicts)


RUNNING, DONE = "running", "done"
Tell = Callable[[Case, str, Outcome | None], None]


def nobody(case: Case, state: str, outcome: Outcome | None) -> None:
    """Hears of nothing."""


def chosen(only: str | None, preset: str = "core") -> tuple[Case, ...]:
    """Situations by name or by the name of their check, in the order of CASES. Raises BadInput with what was meant."""
    if only is None:
        return tuple(case for case in CASES if case.name in PRESETS[preset])
    asked = [name.strip() for name in only.split(",") if name.strip()]
    if not asked:
        raise BadInput("--only names nothing; give names such as v05,v07")
    wanted = {case.name for name in asked for case in _named(name)}
    return tuple(case for case in CASES if case.name in wanted)


def _named(name: str) -> list[Case]:
    found = [case for case in CASES if name in (case.name, case.check, case.check.partition(".")[0])]
    if not found:
        names = [case.name for case in CASES]
        near = get_close_matches(name, [*names, *(case.check for case in CASES)], 1, 0.6)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise BadInput(f"--only {name}: there is no such situation{hint} (known: {', '.join(names)})")
    return found


def with_defect(cases: Sequence[Case], defect: str | None) -> tuple[Case, ...]:
    """The situations to run for a defect: one that is there for it drives the defect's own profile, where it has one.
    Raises BadInput on a name that is not known."""
    if defect is None:
        return tuple(cases)
    caught_by = trial.known_defect(defect).caught_by
    path = VERIFICATION / "defects" / f"{defect}.yaml"
    if not path.exists():
        return tuple(cases)
    return tuple(replace(case, path=path) if case.check in caught_by else case for case in cases)


def laid_over(profile_has_runs: bool, defect: str | None) -> str | None:
    """The defect, if it belongs to the part of the stub that a profile uses."""
    return defect if defect is not None and (DEFECTS[defect].part == CAPACITY) == profile_has_runs else None


def run(
    cases: Sequence[Case], options: Options, tell: Tell = nobody, stop: threading.Event | None = None
) -> list[Outcome]:
    """Drives and judges the situations; outcomes in their order. Raises BadInput before anything was sent.

    Ctrl-C, or `stop` set: trials under way drain, are written and judged INVALID, and no further one begins.
    """
    stop = stop or threading.Event()
    cases = [case for case in with_defect(cases, options.defect) if withheld(case, options) is None]
    loads = {case.name: load_case(case, options) for case in cases}
    url = _url(options)
    if url is not None:
        for case in cases:
            _fits(case, loads[case.name], url)
    runner = _Runner(options, loads, tell, stop)
    done = {outcome.case.name: outcome for group in _groups(cases, options) for outcome in runner.side_by_side(group)}
    late = [outcome for outcome in done.values() if options.live and _only_late(outcome)]
    for outcome in late:
        if not stop.is_set():
            done[outcome.case.name] = runner.one(outcome.case, tries=2)
    return [done[case.name] for case in cases if case.name in done]


def _groups(cases: Sequence[Case], options: Options) -> Iterator[list[Case]]:
    """Those that may run side by side together, then each of the others by itself."""
    many = options.target == trial.STUB and usable_cores() >= SIDE_BY_SIDE
    together = [case for case in cases if many and not case.alone]
    if together:
        yield together
    yield from ([case] for case in cases if case not in together)


def _url(options: Options) -> str | None:
    """That of a stub that runs already."""
    target = options.target
    return target if isinstance(target, str) and target not in (trial.STUB, trial.SIMULATOR) else None


def withheld(case: Case, options: Options) -> Verdict | None:
    """Why a situation is not driven against a described target: it lets too little be seen, or a guard rail forbids to
    send what the situation sends. INCONCLUSIVE, with what to add; None: it may be driven."""
    described = options.target
    if not isinstance(described, Described):
        return None
    missing = judgeable(case.check, given_by(evidence_of(described)))
    if missing.missing:
        return tell_withheld(missing)
    try:
        refuse(described, load_case(case, options).profile, options.time_scale)
    except BadInput as error:
        said = "; ".join(str(error).splitlines())
        sentence = f"Nothing was sent, for a guard rail forbids it: {said}."
        add = "what that says, or judge it by a profile that fits the target: overload run PROFILE --target FILE"
        return Verdict(case.check, Word.INCONCLUSIVE, None, None, "", 0, sentence, add=add)
    return None


def load_case(case: Case, options: Options) -> Loaded:
    if not case.path.exists():
        raise BadInput(f"{case.path}: no such file; overload verify needs the profiles of its source tree")
    return load(case.path, time_scale=options.time_scale, checks=checks.PARAMETERS)


def _fits(case: Case, loaded: Loaded, url: str) -> None:
    """Raises BadInput unless the stub at the URL serves what the situation needs."""
    if probe(url) != "overload-stub":
        raise BadInput(f"{url} is no overload stub; describe it in a file: overload target init")
    health = RemoteStub(url).health()
    profile = loaded.profile
    if has_runs(profile):
        needed = set(profile.capacity.dependencies) if profile.capacity else set()
        fits = bool(health.get("controller")) and set(health.get("dependencies") or {}) == needed
    else:
        fits = "workers" in health
    if not fits:
        raise BadInput(
            f"the stub at {url} does not serve what {case.name} needs; start one with: "
            f"overload stub {shown(case.path)}   (and verify with --only {case.name})"
        )


def _only_late(outcome: Outcome) -> bool:
    """The ceiling of a target is no lateness, and would be as high once more."""
    invalid = [verdict for verdict in outcome.judged.verdicts if verdict.word is Word.INVALID]
    late = [finding.quantity for verdict in invalid for finding in verdict.findings if finding.word is Word.INVALID]
    return [verdict.check for verdict in invalid] == [ON_TIME] and CEILING not in late


class _Runner:
    """Drives situations in threads of its own. Ctrl-C is passed on to every driver that runs."""

    def __init__(self, options: Options, loads: dict[str, Loaded], tell: Tell, stop: threading.Event) -> None:
        self._options = options
        self._loads = loads
        self._tell = tell
        self._stop = stop

    def side_by_side(self, cases: Sequence[Case]) -> list[Outcome]:
        with ThreadPoolExecutor(min(SIDE_BY_SIDE, len(cases))) as pool:
            futures = [pool.submit(self._unless_stopped, case) for case in cases]
            self._wait(futures)
        return [outcome for future in futures if (outcome := future.result()) is not None]

    def _wait(self, futures: Sequence[Future[Outcome | None]]) -> None:
        """Until all have ended; after an error, or Ctrl-C, those that have begun are stopped in order."""
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        except KeyboardInterrupt:
            self._stop.set()
        if any(future.done() and future.exception() for future in futures):
            self._stop.set()
        wait(futures)

    def _unless_stopped(self, case: Case) -> Outcome | None:
        return None if self._stop.is_set() else self.one(case)

    def one(self, case: Case, tries: int = 1) -> Outcome:
        """Drives one situation, and tells of it."""
        self._tell(case, RUNNING, None)
        loaded, options = self._loads[case.name], self._options
        begun = time.monotonic()
        defect = laid_over(has_runs(loaded.profile), options.defect)
        url = _url(options)
        if url is not None and loaded.profile.capacity is not None:
            RemoteStub(url).set_faults(trial.faults_of(loaded.profile))
        folder = trial.new_folder(options.reports, loaded.profile.name)
        judged = trial.run(loaded, folder, options.target, defect, self._interrupting())
        outcome = Outcome(case, judged, tries, time.monotonic() - begun, defect)
        self._tell(case, DONE, outcome)
        if isinstance(options.target, Described) and judged.interrupted:
            self._stop.set()  # the target suffered: it is left alone
        return outcome

    def _interrupting(self) -> Callable[[dict[str, Any]], None]:
        """Called with each progress event: the first after `stop` is an interrupt for the trial."""
        interrupted = False

        def on_progress(event: dict[str, Any]) -> None:
            nonlocal interrupted
            if self._stop.is_set() and not interrupted:
                interrupted = True
                raise KeyboardInterrupt

        return on_progress


def trusted(check: str, verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict of a check of a trial; INVALID, with the reason, where the trial itself is not to be trusted."""
    verdicts = list(verdicts)
    own = next((verdict for verdict in verdicts if verdict.check == check), None)
    if own is None:
        return Verdict(check, Word.INVALID, None, None, "", 0, "The trial's profile does not ask for this check.")
    broken = next((verdict for verdict in verdicts if verdict.word is Word.INVALID and verdict is not own), None)
    if broken is None:
        return own
    said = f"Not to be trusted ({broken.check}): {broken.sentence}"
    return replace(own, word=Word.INVALID, sentence=said, add="", witnesses=broken.witnesses)


def verification(cases: Sequence[Case], outcomes: Sequence[Outcome], options: Options) -> Verification:
    """What is shown, and what counts: a row a situation, and a row for each check of the trials themselves."""
    done = {outcome.case.name: outcome for outcome in outcomes}
    rows = [_row(case, done.get(case.name), options) for case in cases]
    everything = [(outcome.case.name, verdict) for outcome in outcomes for verdict in outcome.judged.verdicts]
    beside = of_trials([(name, verdict) for name, verdict in everything if _shared(verdict, done[name].case)])
    word = worst([*(verdict.word for _, verdict in everything), *(row.verdict.word for row in rows)])
    known = DEFECTS[options.defect] if options.defect else None
    return Verification(
        target=_named_target(options.target),
        rows=tuple(rows),
        beside=beside,
        word=word,
        defect=options.defect,
        defect_about=known.about if known else "",
        caught_by=tuple(known.caught_by) if known else (),
        time_scale=options.time_scale,
    )


def _named_target(target: trial.Target) -> str:
    if isinstance(target, Described):
        return f"{target.target.name} ({target.target.url})"
    return {trial.STUB: "the bundled stub", trial.SIMULATOR: "the simulator"}.get(target, target)


def _shared(verdict: Verdict, case: Case) -> bool:
    """Of the trial itself, and so of every situation."""
    return verdict.check != case.check or verdict.check.startswith("trial.")


def _row(case: Case, outcome: Outcome | None, options: Options) -> Row:
    if outcome is None:
        stopped = Verdict(case.check, Word.INVALID, None, None, "", 0, "Not driven: stopped before.")
        verdict = withheld(case, options) or stopped
        return Row(case.name, case.title, verdict, None, None, 0, 0.0)
    judged = outcome.judged
    return Row(
        case.name, case.title, outcome.verdict, judged.trial.folder, judged.files.get("html"), outcome.tries,
        outcome.seconds, outcome.defect is not None,
    )  # fmt: skip
