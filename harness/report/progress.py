"""What a running trial looks like: phase, time left, rate asked and achieved, who is served, refused, waiting.

On a terminal a view that renews itself; elsewhere one plain line about every ten seconds of the trial. Fed by the
driver's progress events (ARCHITECTURE.md); time is that of the events, no clock is read. Writes to the console that it
is given (standard error, so that a report can be piped). A malformed event is skipped: a view may never end a trial.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Self

from rich.console import Console
from rich.text import Text

from harness.profile.model import Profile
from harness.profile.units import NS_PER_S
from harness.report.grid import sayable
from harness.report.renewed import Renewed
from harness.report.text import MISSING, clean, count, fit, percent, seconds

LINE_EVERY_NS = 10 * NS_PER_S
RATE_OVER_NS = 2 * NS_PER_S
_MOST_TENANTS = 12
_COUNTS = ("due", "served", "refused", "abandoned", "held_back", "in_flight", "replans")

_FIGURE_WIDTH = 9
_WELL = 0.95
_COUNTED = {"served": "served", "refused": "refused", "waiting": "in_flight", "aband.": "abandoned"}
_FIGURES = ("served", "refused", "waiting", "now", "sent", "asked", "aband.", "re-plans")
"""Most needed first: a narrow terminal shows only the first of them. now: served, of the calls that ended in the last
two seconds."""
_PHASE_STYLES = {"burst": "yellow", "recovery": "cyan"}

Counts = dict[str, int]


@dataclass(slots=True)
class View:
    """The state behind the view: the last seconds of events. `add` returns False for an event that is none."""

    profile: Profile
    past: deque[tuple[int, dict[str, Counts]]] = field(default_factory=deque)
    late_p99_ns: int | None = None

    def add(self, event: Mapping[str, Any]) -> bool:
        read = _read(event)
        if read is None:
            return False
        self.past.append(read)
        while len(self.past) > 2 and read[0] - self.past[1][0] >= RATE_OVER_NS:
            self.past.popleft()
        late = event.get("late_p99_ns")
        self.late_p99_ns = late if isinstance(late, int) else None
        return True

    @property
    def now_ns(self) -> int:
        return self.past[-1][0] if self.past else 0

    def counts(self, tenant: str) -> Counts:
        return self.past[-1][1].get(tenant, _none()) if self.past else _none()

    def rate(self, tenant: str, of: Callable[[Counts], int]) -> float:
        """Per second, over the last two seconds of events."""
        if len(self.past) < 2:
            return 0.0
        (begin, before), (end, after) = self.past[0], self.past[-1]
        grown = of(after.get(tenant, _none())) - of(before.get(tenant, _none()))
        return grown * NS_PER_S / (end - begin) if end > begin else 0.0

    def served_now(self, tenant: str) -> float | None:
        """Served, of the calls that ended in the last two seconds of events; None if none did."""
        if len(self.past) < 2:
            return None
        before, after = self.past[0][1].get(tenant, _none()), self.past[-1][1].get(tenant, _none())
        ended = sum(after[key] - before[key] for key in ("served", "refused", "abandoned"))
        return (after["served"] - before["served"]) / ended if ended > 0 else None

    def asked(self, tenant: str) -> float | None:
        """The plan's rate of original calls now; None for recorded arrivals, whose rate only their file knows."""
        rates = self.profile.tenants[tenant].rate
        if rates is None:
            return None
        segments = rates.segments(self.profile.duration)
        return next((float(rate) for from_ns, to_ns, rate in segments if from_ns <= self.now_ns < to_ns), 0.0)

    def phase(self) -> str:
        if self.now_ns >= self.profile.duration:
            return "draining"
        return self.profile.phases.at(self.now_ns) or "running"

    def left(self) -> str:
        return seconds(max(0, self.profile.duration - self.now_ns)) + " left"


def _none() -> Counts:
    return dict.fromkeys(_COUNTS, 0)


def _read(event: Mapping[str, Any]) -> tuple[int, dict[str, Counts]] | None:
    now, tenants = event.get("now_ns"), event.get("tenants")
    if not isinstance(now, int) or not isinstance(tenants, dict):
        return None
    read = {}
    for name, counts in tenants.items():
        if not isinstance(counts, dict):
            return None
        values = {key: counts.get(key, 0) for key in _COUNTS}
        if not all(isinstance(value, int) for value in values.values()):
            return None
        read[name] = values
    return now, read


def originals(counts: Counts) -> int:
    return counts["due"] - counts["replans"]


def sent(counts: Counts) -> int:
    return counts["due"] - counts["held_back"]


def plain_line(view: View) -> str:
    """One line for a log: stable words, `key value` pairs, every tenant by name (at most a dozen)."""
    names = list(view.profile.tenants)
    shown = [_plain_tenant(view, name) for name in names[:_MOST_TENANTS]]
    more = f"; {count(len(names) - _MOST_TENANTS)} more tenants" if len(names) > _MOST_TENANTS else ""
    asked, got = total_rates(view)
    return (
        f"{view.now_ns / NS_PER_S:.0f} s {view.phase()}, {view.left()}, asked {_rate(asked)}, achieved {_rate(got)}, "
        f"sent {_rate(sum(view.rate(name, sent) for name in names))}; {'; '.join(shown)}{more}"
    )


def _plain_tenant(view: View, name: str) -> str:
    c = view.counts(name)
    words = {"served": c["served"], "refused": c["refused"], "abandoned": c["abandoned"], "waiting": c["in_flight"]}
    if c["held_back"]:
        words["held back"] = c["held_back"]
    return f"{clean(name, 40)} " + " ".join(f"{word} {value}" for word, value in words.items())


def total_rates(view: View) -> tuple[float | None, float]:
    """Original calls per second: asked by the plan (None if a tenant is recorded), and achieved."""
    names = list(view.profile.tenants)
    asked = [view.asked(name) for name in names]
    known = [rate for rate in asked if rate is not None]
    return (sum(known) if len(known) == len(asked) else None), sum(view.rate(name, originals) for name in names)


def _rate(rate: float | None) -> str:
    return MISSING if rate is None else f"{rate:.1f}/s" if rate < 100 else f"{rate:,.0f}/s"


def picture(view: View, title: str, console: Console) -> Text:
    """The whole view as text, at most as wide as the console."""
    width = max(40, console.width)
    asked, got = total_rates(view)
    late = "" if view.late_p99_ns is None else f"  late p99 {view.late_p99_ns / 1e6:.1f} ms"
    text = Text()
    text.append(sayable(fit(clean(title), width), console) + "\n", style="bold")
    _bar(text, view, max(16, min(60, width - 34)), console)
    text.append(f"  {view.phase()}", style="bold").append(f"  {view.left()}\n")
    text.append(f"asked {_rate(asked)}  achieved {_rate(got)}{late}\n", style="dim")
    fitting = _FIGURES[: max(3, (width - 8) // _FIGURE_WIDTH)]
    name_width = min(24, width - len(fitting) * _FIGURE_WIDTH)
    heads = "".join(head.rjust(_FIGURE_WIDTH) for head in fitting)
    text.append("tenant".ljust(name_width) + heads + "\n", style="bold")
    names = list(view.profile.tenants)
    for name in names[:_MOST_TENANTS]:
        now = view.served_now(name)
        # Losing is told by the figure, too: colour is never the only sign.
        losing = "" if now is None or now > _WELL else "red" if name in view.profile.ordinary else "yellow"
        text.append(sayable(_tenant_line(view, name, name_width, fitting), console) + "\n", style=losing)
    if len(names) > _MOST_TENANTS:
        text.append(f"{count(len(names) - _MOST_TENANTS)} more tenants\n", style="dim")
    lines = [line for line in text.split("\n") if line]
    for line in lines:
        line.truncate(width)
    return Text("\n").join(lines)


def _bar(text: Text, view: View, width: int, console: Console) -> None:
    """The trial's time: full up to now, and each phase in its colour."""
    duration = view.profile.duration
    filled = round(min(1.0, view.now_ns / duration) * width)
    cells = [
        (place < filled, _PHASE_STYLES.get(view.profile.phases.at(duration * place // width) or "", "green"))
        for place in range(width)
    ]
    for (full, style), same in groupby(cells):
        said = ("━" if full else "─") * len(list(same))
        text.append(sayable(said, console), style=style if full else f"dim {style}")


def _tenant_line(view: View, name: str, width: int, fitting: Sequence[str]) -> str:
    c = view.counts(name)
    figures = {
        "asked": _rate(view.asked(name)),
        "sent": _rate(view.rate(name, sent)),
        "now": percent(view.served_now(name), 0),
        "re-plans": _rate(view.rate(name, lambda counts: counts["replans"])),
        **{head: count(c[key]) for head, key in _COUNTED.items()},
    }
    return fit(clean(name), width).ljust(width) + "".join(figures[head].rjust(_FIGURE_WIDTH) for head in fitting)


class TrialProgress(Renewed):
    """A context manager; what it yields is called with each progress event of the driver.

        with TrialProgress(profile, "worked-example", Console(file=sys.stderr)) as on_progress: ...

    A trial of two seconds or less is not shown.
    """

    def __init__(self, profile: Profile, title: str, console: Console) -> None:
        super().__init__(console)
        self._view = View(profile)
        self._title = title
        self._shown = profile.duration > 2 * NS_PER_S
        self._next_line_ns = LINE_EVERY_NS

    def __enter__(self) -> Self:
        if self._shown and self._console.is_terminal:
            self._begin(auto_refresh=False)
        return self

    def __call__(self, event: Mapping[str, Any]) -> None:
        if not self._view.add(event) or not self._shown:
            return
        if self._live is not None:
            self._live.update(picture(self._view, self._title, self._console), refresh=True)
        elif self._view.now_ns >= self._next_line_ns:
            self._next_line_ns = (self._view.now_ns // LINE_EVERY_NS + 1) * LINE_EVERY_NS
            _plain(self._console, plain_line(self._view))


class CountProgress(Renewed):
    """Progress of many equal things, such as the trials of an ensemble.

        with CountProgress("ensemble", 200, Console(file=sys.stderr)) as advance: ... advance() ...

    Nothing is shown in the first two seconds; then a line that renews itself, or elsewhere a plain line about every ten
    seconds. now_ns: a monotonic clock.
    """

    def __init__(self, what: str, total: int, console: Console, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        super().__init__(console)
        self._what, self._total, self._now_ns = what, total, now_ns
        self._done = 0
        self._begun_ns = self._last_ns = 0

    def __enter__(self) -> Self:
        self._begun_ns = self._last_ns = self._now_ns()
        return self

    def __call__(self, more: int = 1) -> None:
        """So many more are done."""
        self._done += more
        now_ns = self._now_ns()
        taken_ns = now_ns - self._begun_ns
        if taken_ns < 2 * NS_PER_S:
            return
        left_ns = taken_ns * max(0, self._total - self._done) // max(1, self._done)
        said = f"{clean(self._what, 80)}: {count(self._done)} of {count(self._total)}, about {seconds(left_ns)} left"
        if self._console.is_terminal:
            live = self._live or self._begin(auto_refresh=False)
            live.update(Text(sayable(said, self._console)), refresh=True)
        elif now_ns - self._last_ns >= LINE_EVERY_NS:
            self._last_ns = now_ns
            _plain(self._console, said)


def _plain(console: Console, said: str) -> None:
    console.print(Text(sayable(said, console)), soft_wrap=True, highlight=False)
