"""A steady profile out of a log: the mean rate of each of the busiest callers, as YAML for people to read and edit."""

from __future__ import annotations

import math
from fractions import Fraction

import yaml

from harness.profile.units import NS_PER_S, show_duration
from harness.recorded.learn import Identity, Study

DURATION_NS = 120 * NS_PER_S
HEADROOM = Fraction(13, 10)


def steady_profile(
    name: str, found: Study, tenants: list[Identity], agents: frozenset[str], service_time_ns: int, squeezed: bool
) -> str:
    """The text of a profile that `overload profile check` accepts. Rates are means over the span that was studied."""
    total = found.rate_per_s(found.calls)
    workers = max(1, math.ceil(total * service_time_ns / NS_PER_S * HEADROOM))
    burst = float(Fraction(found.peak_minute, 60) / total)
    span = "the span (long silences squeezed)" if squeezed else "the whole span, silences included"
    lines = [
        f"# Learned from {found.calls:,} recorded calls of {len(found.identities):,} callers.",
        f"# Rates are means over {span}: {show_span(found.span_ns)}.",
        f"# The busiest minute had {found.peak_minute:,} calls, {burst:.1f} times the mean: real traffic is burstier.",
        f"name: {name}",
        "about: A steady profile learned from an access log.",
        f"duration: {show_duration(DURATION_NS)}",
        "patience: 2s               # an assumption: the log does not say how long callers wait",
        "patience_until: start",
        "service:",
        f"  workers: {workers:<17}# the mean load times {float(HEADROOM):g}",
        f"  service_time: {show_duration(service_time_ns):<11} # an assumption unless you measured it (--service-time)",
        "  admission: {policy: shared_fifo, queue: 200}",
        "tenants:",
    ]
    for one in tenants:
        notes = [f"{one.calls:,} calls"]
        if one.identities > 1:
            notes.append(f"{one.identities:,} callers in one")
        if one.name in agents:
            notes.append("an agent runtime: consider replans and a budget")
        if found.with_status and one.refused:
            notes.append(f"{one.refused:,} refused")
        lines.append(f"  {quoted(one.name)}: {{rate: {show_rate_exactly(found.rate_per_s(one.calls))}, pace: poisson}}")
        lines[-1] += f"   # {', '.join(notes)}"
    ordinary = ", ".join(quoted(one.name) for one in tenants if one.name not in agents)
    lines.append(f"ordinary: [{ordinary}]")
    lines += [
        "# To ask who is hurt when one of them runs away, give it a step and re-plans, name the phases, add the check:",
        "#   phases: {calm: [0s, 40s], burst: [40s, 80s], recovery: [80s, 120s]}",
        "#   tenants:",
        "#     NAME:",
        "#       rate: [1/s, {from: 40s, to: 80s, rate: 50/s}]",
        "#       replans: {calls: 2, after: 500ms, rounds: 3}",
        "#   checks: [fairness.ordinary_unmoved]",
    ]
    return "\n".join(lines) + "\n"


def quoted(name: str) -> str:
    """A name as a YAML scalar that is this very text again, whatever is in it."""
    return yaml.safe_dump(name, default_style='"', allow_unicode=True, width=10_000).strip()


def show_rate_exactly(rate_per_s: Fraction) -> str:
    """A rate with at least three digits that count, in the unit that keeps them: 12.3/s, 2.05/m, 0.412/h."""
    for unit, seconds in (("s", 1), ("m", 60), ("h", 3600)):
        rate = rate_per_s * seconds
        if rate >= 1 or unit == "h":
            digits = 3 if rate >= 1 else 9
            text = f"{float(rate):.{digits}f}".rstrip("0").rstrip(".")
            return f"{text if float(text) > 0 else '0.000000001'}/{unit}"
    raise AssertionError("unreachable")


def show_span(ns: int) -> str:
    """A span for people: 83.0 h, 12.5 min, 40.0 s."""
    for unit, size in (("h", 3600 * NS_PER_S), ("min", 60 * NS_PER_S)):
        if ns >= 2 * size:
            return f"{ns / size:.1f} {unit}"
    return f"{ns / NS_PER_S:.1f} s"
