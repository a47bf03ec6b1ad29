"""A Python driver: how agents work with a service where a target file's templates cannot say it.

    driver: mine:Staging        the class Staging of mine.py, in the folder of the target file

A class with these methods, plain and blocking; nothing to inherit from. It is made once for each process that uses it,
with a `Context`. `overload target conformance FILE` says whether it keeps to what is written here.

    open_run(caller, wish)      opens a run                                      -> Told, with `run`
    submit(caller, run, batch)  submits a batch; `queued` if it is not known yet how it ends -> Told
    read_back(caller, run, batch)  how a batch that was `queued` stands           -> Told
    cancel(caller, run)         cancels the run                                  -> Told
    inject(faults)              replaces the faults; an empty list takes all away. `inject = None`: it has no faults
    evidence(since_unix_ns)     rows of the service's own decision log since then. `evidence = None`: it has none

A row is a dict with `time_unix_ns`, `attempt` (what came in Overload-Attempt), `outcome` (one of the typed outcomes, or
`queued`, `started`), and if known `tenant`, `reason`, `queue_wait_ms`, `service_time_ms`, `waiting`, `running`,
`workers`.

One call of a method is one attempt: it sends one request, never again, and follows no redirect. In a trial the methods
are called from greenlets, side by side: plain sockets, `http.client`, `requests` and the like wait without holding the
others up; what computes for long, or waits in C code, makes the trial late, and that is told. What a method raises ends
the call `failed`, with the class's name as the reason.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from harness.errors import BadInput
from harness.ledger.outcomes import FROM_SERVICE, QUEUED

METHODS = ("open_run", "submit", "read_back", "cancel")
OPTIONAL = ("inject", "evidence")
OUTCOMES = (QUEUED, *FROM_SERVICE)
MOST_NAME = 60


@dataclass(frozen=True, slots=True)
class Context:
    """url, document: of the target file."""

    url: str
    document: Mapping[str, Any]
    folder: Path


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls: send `token` as the service wants it, and `attempt` as the header Overload-Attempt, so that the
    service's log can be joined to ours."""

    tenant: str
    token: str | None = field(repr=False)
    call: str
    attempt: str
    round: int = 0


@dataclass(frozen=True, slots=True)
class Told:
    """How a call ended. outcome: one of the typed outcomes, or `queued`. run: of open_run. queue_wait_ms: -1 unknown.
    status: of HTTP, 0 where there was none. retry_after: as the service wrote it."""

    outcome: str
    reason: str | None = None
    run: str | None = None
    status: int = 0
    queue_wait_ms: float = -1.0
    retry_after: str | None = None


class TargetDriver(Protocol):
    """wish, batch: as the bundled capacity layer takes them (docs/controller.md): traffic_class, task_class,
    deadline_ms, ...; batch, round, steps."""

    def open_run(self, caller: Caller, wish: Mapping[str, Any]) -> Told: ...

    def submit(self, caller: Caller, run: str, batch: Mapping[str, Any]) -> Told: ...

    def read_back(self, caller: Caller, run: str, batch: Mapping[str, Any]) -> Told: ...

    def cancel(self, caller: Caller, run: str) -> Told: ...

    @property
    def inject(self) -> Callable[[Sequence[Mapping[str, Any]]], None] | None: ...

    @property
    def evidence(self) -> Callable[[int], Iterable[Mapping[str, Any]]] | None: ...


DriverFactory = Callable[[Context], TargetDriver]


def driver_class(name: str, folder: Path) -> DriverFactory:
    """`module:Class`, looked for in the target file's folder first. Raises BadInput."""
    module, _, wanted = name.partition(":")
    place = str(folder)
    if place not in sys.path:
        sys.path.insert(0, place)
    try:
        found = getattr(importlib.import_module(module), wanted)
    except ModuleNotFoundError as error:
        raise BadInput(f"driver {name}: there is no module {error.name!r} (looked in {folder} first)") from None
    except AttributeError:
        raise BadInput(f"driver {name}: module {module} has no {wanted}") from None
    except Exception as error:
        raise BadInput(f"driver {name}: {module} cannot be imported ({type(error).__name__}: {error})") from None
    lacking = [method for method in METHODS if not callable(getattr(found, method, None))]
    lacking += [f"{method} (or `{method} = None`)" for method in OPTIONAL if not hasattr(found, method)]
    if not callable(found) or lacking:
        raise BadInput(f"driver {name}: is no driver, for it lacks {', '.join(lacking) or 'a way to be made'}")
    factory: DriverFactory = found
    return factory


def made(factory: DriverFactory, context: Context) -> TargetDriver:
    """Raises BadInput."""
    try:
        return factory(context)
    except Exception as error:
        raise BadInput(f"the target's driver cannot be made ({type(error).__name__})") from None


def problem_of(told: object) -> str | None:
    """What is wrong with an answer of a driver; None if nothing is."""
    if not isinstance(told, Told):
        return f"answered {type(told).__name__}, not Told"
    if told.outcome not in OUTCOMES:
        return f"answered the outcome {told.outcome!r:.60}, which is none of {', '.join(OUTCOMES)}"
    if not isinstance(told.status, int) or not isinstance(told.queue_wait_ms, int | float):
        return "answered a status or a queue_wait_ms that is no number"
    for key in ("reason", "run", "retry_after"):
        if getattr(told, key) is not None and not isinstance(getattr(told, key), str):
            return f"answered a {key} that is no text"
    return None


def reason_of(error: BaseException) -> str:
    """Of a method that raised: its message could hold anything."""
    return f"driver_raised_{type(error).__name__[:MOST_NAME]}"
