"""Metrics as text for Prometheus, and the series that callers, the stub and a watched log have in common.

Two formats of one content: the text format 0.0.4, and OpenMetrics 1.0 for whoever asks for it. Sources:
prometheus.io/docs/instrumenting/exposition_formats; the OpenMetrics specification (prometheus/OpenMetrics).

What is counted per tenant has one name wherever it is counted; the label `source` tells who did: the callers, the
service, or a log. Tenant names come from callers, so that labels are escaped and their number is bounded (`Busiest`).
All names, also of the other modules, are listed in docs/metrics.md, which a test holds against the code.

Pure: counts come in, text goes out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
COUNTER, GAUGE, HISTOGRAM, SUMMARY, INFO = "counter", "gauge", "histogram", "summary", "info"
SECONDS = "seconds"

CALLERS, SERVICE, LOG = "callers", "service", "log"
RECORDED, INFERRED = "recorded", "inferred"
OTHERS = "(others)"
"""Label value of the tenants that have none of their own."""
MOST_LABELLED = 200

_BUCKETS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 30000, 60000)
BUCKETS_NS = tuple(ms * 1_000_000 for ms in _BUCKETS_MS)
"""Upper ends of every histogram of waits."""
LATE_BUCKETS_NS = tuple(us * 1000 for us in (10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000))


@dataclass(frozen=True, slots=True)
class Metric:
    """name: as its samples have it, with `_total` where it is a counter. labels: every sample has just these."""

    name: str
    kind: str
    about: str
    labels: tuple[str, ...] = ()
    unit: str = ""

    @property
    def family(self) -> str:
        """As OpenMetrics names it: a counter without `_total`, an info without `_info`."""
        return self.name.removesuffix({COUNTER: "_total", INFO: "_info"}.get(self.kind, ""))


class Sample(NamedTuple):
    """suffix: `_bucket`, `_sum`, `_count` or none. labels: in the order in which they are written."""

    suffix: str
    labels: tuple[tuple[str, str], ...]
    value: float


class Family(NamedTuple):
    metric: Metric
    samples: list[Sample]


BY_TENANT = ("source", "tenant")
CALLS = Metric(
    "overload_calls_total", COUNTER, "Calls that were due, also those held back. In a log, its lines.", BY_TENANT
)
OFFERED = Metric(
    "overload_offered_total",
    COUNTER,
    "Calls that were to be sent, came to admission, or are in the log.",
    BY_TENANT,
)
SERVED = Metric("overload_served_total", COUNTER, "Calls served; in a log, answered with 2xx or 3xx.", BY_TENANT)
REFUSED = Metric("overload_refused_total", COUNTER, "Calls turned away at admission; in a log, 429 and 503.", BY_TENANT)
FAILED = Metric("overload_failed_total", COUNTER, "Calls that failed; in a log, another 5xx.", BY_TENANT)
REPLANS = Metric(
    "overload_replans_total", COUNTER, "Calls that follow a failure. In a log inferred, and an upper bound.",
    (*BY_TENANT, "rounds"),
)  # fmt: skip
REPLAN_SHARE = Metric(
    "overload_replan_share", GAUGE, "Re-plans over calls, 0 to 1: in the trial so far; of a log, in the window.",
    (*BY_TENANT, "rounds"),
)  # fmt: skip
QUEUE_WAIT = Metric(
    "overload_queue_wait_seconds", HISTOGRAM, "Queue wait of calls that started, as the service measured it.",
    BY_TENANT, SECONDS,
)  # fmt: skip
COMMON = (CALLS, OFFERED, SERVED, REFUSED, FAILED, REPLANS, REPLAN_SHARE, QUEUE_WAIT)


def wants_openmetrics(accept: str | None) -> bool:
    """Whether a request's Accept header asks for it."""
    return "application/openmetrics-text" in (accept or "")


def text(families: Iterable[Family], openmetrics: bool = False) -> bytes:
    """The whole answer. A family without samples is named all the same."""
    lines: list[str] = []
    for metric, samples in families:
        known = metric.family if openmetrics else metric.name
        kind = GAUGE if metric.kind == INFO and not openmetrics else metric.kind
        lines += [f"# HELP {known} {metric.about}", f"# TYPE {known} {kind}"]
        if openmetrics and metric.unit:
            lines.append(f"# UNIT {known} {metric.unit}")
        lines += [f"{metric.name}{suffix}{_labels(labels)} {_value(value)}" for suffix, labels, value in samples]
    if openmetrics:
        lines.append("# EOF")
    return ("\n".join(lines) + "\n").encode("utf-8", "backslashreplace")


def family(metric: Metric, samples: Iterable[tuple[Sequence[str], float]]) -> Family:
    """Each sample: the values of the metric's labels, and its own."""
    return Family(metric, [Sample("", tuple(zip(metric.labels, values, strict=True)), n) for values, n in samples])


def one(metric: Metric, value: float) -> Family:
    return family(metric, [((), value)])


def histogram(
    metric: Metric, series: Iterable[tuple[Sequence[str], Sequence[int], int]], edges_ns: Sequence[int] = BUCKETS_NS
) -> Family:
    """Each of the series: the values of its labels, counts (one more than edges), the sum of what was counted [ns]."""
    samples: list[Sample] = []
    for values, counts, sum_ns in series:
        labels, seen = tuple(zip(metric.labels, values, strict=True)), 0
        for edge, count in zip((*map(_edge, edges_ns), "+Inf"), counts, strict=True):
            seen += count
            samples.append(Sample("_bucket", (*labels, ("le", edge)), seen))
        samples += [Sample("_count", labels, seen), Sample("_sum", labels, sum_ns / 1e9)]
    return Family(metric, samples)


def _edge(ns: int) -> str:
    """OpenMetrics wants the ends of buckets as floats."""
    return _decimal(ns / 1e9) if ns % 1_000_000_000 else f"{ns // 1_000_000_000}.0"


def _value(value: float) -> str:
    return str(value) if isinstance(value, int) else _decimal(value)


def _decimal(value: float) -> str:
    return f"{value:.9f}".rstrip("0").rstrip(".") if abs(value) < 1e15 else repr(value)


def _labels(labels: Sequence[tuple[str, str]]) -> str:
    return "{" + ",".join(f"{name}={quoted(value)}" for name, value in labels) + "}" if labels else ""


def quoted(label: str) -> str:
    escaped = label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


Counters = tuple[int, ...]
"""Of one tenant, none of which ever falls; the first is what it is busy by."""
_AHEAD, _LEAST = 2, 10


class Busiest:
    """Which tenants have series of their own: at most so many, the busiest; the others share `(others)`.

    One that becomes busy gets the place of the idlest when it had more than twice as many calls since the last look.
    What it did before stays in `(others)`, so that no counter ever falls. The series of the one that lost its place
    ends.

        others = all - sum over labelled (counters - base) - what ended series had counted
    """

    def __init__(self, most: int = MOST_LABELLED) -> None:
        self._most = most
        self._base: dict[str, Counters] = {}
        self._last: dict[str, Counters] = {}
        self._ended: Counters = ()

    def look(self, now: Mapping[str, Counters], every: Counters) -> dict[str, Counters]:
        """label -> counters, for this scrape. every: of all tenants, also of those that `now` has forgotten."""
        self._ended = self._ended or (0,) * len(every)
        for name in [name for name in self._base if name not in now]:
            self._end(name)
        grown = {name: counters[0] - self._last.get(name, (0,))[0] for name, counters in now.items()}
        without = [name for name in now if name not in self._base and name != OTHERS]
        without.sort(key=lambda name: (-grown[name], -now[name][0]))
        free = self._most - len(self._base)
        for name in without[:free]:
            self._begin(name, every)
        # Idlest first against busiest first: who is not ahead of its rival is ahead of nobody's.
        for name, rival in zip(without[free:], sorted(self._base, key=lambda name: grown[name]), strict=False):
            if grown[name] < _LEAST or grown[name] <= _AHEAD * grown[rival]:
                break
            self._end(rival)
            self._begin(name, every)
        self._last = dict(now)
        shown = {name: _minus(now[name], base) for name, base in self._base.items()}
        rest = _minus(every, self._ended)
        for counters in shown.values():
            rest = _minus(rest, counters)
        return {**shown, OTHERS: rest} if any(rest) or len(now) > len(self._base) else shown

    def _begin(self, name: str, every: Counters) -> None:
        self._base[name] = self._last.get(name, (0,) * len(every))

    def _end(self, name: str) -> None:
        shown = _minus(self._last[name], self._base.pop(name))
        self._ended = tuple(a + b for a, b in zip(self._ended, shown, strict=True))


def _minus(a: Counters, b: Counters) -> Counters:
    return tuple(x - y for x, y in zip(a, b, strict=True))


def per_label(labels: Iterable[str], values: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """What is not counted but is so now, per label; of the others their sum."""
    chosen = set(labels)
    yield from ((name, value) for name, value in values.items() if name in chosen and name != OTHERS)
    if OTHERS in chosen:
        yield OTHERS, sum(value for name, value in values.items() if name not in chosen or name == OTHERS)
