"""Tenants, phases and re-plan shares in Locust's own web page, live.

Two tabs beside Locust's, by its own way of being extended: `extended_tabs` and `extended_tables` among the arguments of
its page, `extended_stats` in what the page asks for every two seconds (docs.locust.io, "Extending the web UI"; Locust's
examples/extend_web_ui.py). In a trial that several processes drive, the page is the master's, of all workers together.

`opened` is the page of `overload run`, where a trial begins and ends by itself: the page may stop it, and change
nothing else. On loopback only. What it shows is to be looked at; the ledger is the record.
"""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

import gevent
from flask import Response, jsonify, request
from gevent.event import Event

from harness.live.manifest import CannotBegin
from harness.profile.model import Profile
from harness.profile.units import NS_PER_S

TENANTS, PHASES = "overload-tenants", "overload-phases"
LOOK_S = 0.5
LOCALHOST = "127.0.0.1"
STATS = "/stats/requests"
OTHERS = "(others)"

# No column is called `name`: Locust's page would sort by it.
_COUNTS = {
    "due": "Offered", "served": "Served", "refused": "Refused", "abandoned": "Abandoned", "failed": "Failed",
    "held_back": "Held back", "replans": "Re-plans",
}  # fmt: skip
_SHARE = {"key": "replan_share", "title": "Re-plan share, %", "round": 1}
_TENANT_COLUMNS = [
    {"key": "tenant", "title": "Tenant"},
    {"key": "role", "title": ""},
    *({"key": key, "title": title} for key, title in _COUNTS.items()),
    {"key": "in_flight", "title": "In flight"},
    _SHARE,
]
_PHASE_COLUMNS = [
    {"key": "phase", "title": "Phase"},
    {"key": "state", "title": ""},
    {"key": "from_s", "title": "From, s", "round": 2},
    {"key": "to_s", "title": "To, s", "round": 2},
    *({"key": key, "title": title} for key, title in _COUNTS.items()),
    _SHARE,
]

Progress = Callable[[], Mapping[str, Any] | None]
"""The trial's progress event now; None: there is no trial."""


class Shown:
    """What the tabs show. `look` at least twice a second: what has happened since the last look counts in the phase
    that it was then, so that a phase's figures are good to half a second."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._ordinary = frozenset(profile.ordinary)
        self.begin()

    def begin(self) -> None:
        self._event: Mapping[str, Any] = {}
        self._in_phase: dict[str | None, dict[str, int]] = {}

    def look(self, event: Mapping[str, Any] | None) -> None:
        if event is None or not event.get("tenants"):
            return
        if event["now_ns"] < self._now_ns:  # another trial
            self.begin()
        before = self._sums()
        phase = self._profile.phases.at(self._now_ns)
        self._event = event
        sums = self._in_phase.setdefault(phase, dict.fromkeys(_COUNTS, 0))
        for key, now in self._sums().items():
            sums[key] += now - before[key]

    @property
    def _now_ns(self) -> int:
        return int(self._event.get("now_ns", 0))

    def _all(self) -> dict[str, Mapping[str, Any]]:
        found = dict(self._event.get("tenants", {}))
        return found | ({OTHERS: self._event["rest"]} if "rest" in self._event else {})

    def _sums(self) -> dict[str, int]:
        return {key: sum(int(of[key]) for of in self._all().values()) for key in _COUNTS}

    def tenants(self) -> list[dict[str, Any]]:
        """The busiest first."""
        rows = [
            {
                "tenant": name,
                "role": "ordinary" if name in self._ordinary else "",
                **{key: of[key] for key in (*_COUNTS, "in_flight")},
                "replan_share": _share(of),
            }
            for name, of in self._all().items()
        ]
        return sorted(rows, key=lambda row: (row["tenant"] == OTHERS, -row["due"]))

    def phases(self) -> list[dict[str, Any]]:
        """Those of the profile, and the time before, between and after them if anything happened then."""
        now_ns, rows = self._now_ns, []
        for name, window in self._profile.phases.items():
            over, begun = now_ns >= window.to_ns, now_ns >= window.from_ns
            state = "over" if over else "now" if begun else "to come"
            ends = {"from_s": window.from_ns / NS_PER_S, "to_s": window.to_ns / NS_PER_S}
            rows.append(self._phase(name, name, state, ends))
        state = "now" if self._profile.phases.at(now_ns) is None else ""
        none = self._phase(None, "(no phase)", state, {"from_s": 0.0, "to_s": self._profile.duration / NS_PER_S})
        return [*rows, none] if any(none[key] for key in _COUNTS) or not rows else rows

    def _phase(self, phase: str | None, name: str, state: str, ends: dict[str, float]) -> dict[str, Any]:
        sums = self._in_phase.get(phase) or dict.fromkeys(_COUNTS, 0)
        return {"phase": name, "state": state, **ends, **sums, "replan_share": _share(sums)}


def _share(of: Mapping[str, Any]) -> float:
    """Percent."""
    return 100 * of["replans"] / of["due"] if of["due"] else 0.0


def extend(web_ui: Any, profile: Profile, progress: Progress) -> Shown:
    """Adds the tabs to a page of Locust's, before or after it is served."""
    shown = Shown(profile)
    web_ui.template_args |= {
        "extended_tabs": [{"title": "Tenants", "key": TENANTS}, {"title": "Phases", "key": PHASES}],
        "extended_tables": [
            {"key": TENANTS, "structure": _TENANT_COLUMNS},
            {"key": PHASES, "structure": _PHASE_COLUMNS},
        ],
    }

    @web_ui.app.after_request  # type: ignore[untyped-decorator]
    def add(response: Response) -> Response:
        if not request.path.endswith(STATS) or not response.is_json:
            return response
        tabs = [{"key": TENANTS, "data": shown.tenants()}, {"key": PHASES, "data": shown.phases()}]
        response.set_data(jsonify({**response.get_json(), "extended_stats": tabs}).get_data())
        return response

    def look() -> None:
        while True:
            shown.look(progress())
            gevent.sleep(LOOK_S)

    gevent.spawn(look)
    return shown


class Trial(Protocol):
    """What the page of a trial needs of it: that of one process, or of a master."""

    profile: Profile
    finished: Event

    def progress(self) -> dict[str, Any]: ...

    def interrupt(self) -> None: ...


def opened(environment: Any, port: int, trial: Trial) -> str:
    """Locust's page for a trial that is begun elsewhere; returns its URL. Raises CannotBegin if the port is taken."""
    taken = _taken(port)
    if taken:
        raise CannotBegin(f"--web-port {port}: cannot be opened ({taken}); give another, or 0")
    sys.argv[1:] = []  # Locust would read them as its own
    web_ui = environment.create_web_ui(host=LOCALHOST, port=port, delayed_start=True)
    extend(web_ui, trial.profile, trial.progress)

    @web_ui.app.before_request  # type: ignore[untyped-decorator]
    def only_stop() -> tuple[str, int] | Response | None:
        host = urlsplit(f"//{request.host}").hostname
        if host not in (LOCALHOST, "localhost"):  # a name that somebody has lead here
            return "this page is for this machine", 403
        if request.method in ("GET", "HEAD"):
            return None
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != request.host:
            return "another page may not ask for this", 403
        if request.path != "/stop":
            return "a trial follows its profile: it can be stopped here, and not be changed", 403
        if not trial.finished.is_set():
            trial.interrupt()  # and not Locust's own stop, which would end users in the middle of their calls
        return jsonify({"success": True, "message": "The trial drains and ends"})

    web_ui.start()
    while web_ui.server is None or not web_ui.server.started:
        gevent.sleep(0.001)
    return f"http://{LOCALHOST}:{web_ui.server.server_port}/"


def _taken(port: int) -> str:
    """Why nothing can listen there; empty if something can."""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((LOCALHOST, port))
        except OSError as error:
            return "that port is taken" if error.errno == errno.EADDRINUSE else str(error.strerror)
    return ""
