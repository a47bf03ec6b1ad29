"""`overload learn`: what a log says about its callers, and a steady profile out of it."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.cli.reading import DURATION, Parsed, ReadingOptions, opened, reading_options
from harness.recorded.account import Account
from harness.recorded.document import profile_name
from harness.recorded.errors import RecordedError, printable
from harness.recorded.learn import Identity, Study, agents_among, study, study_json
from harness.recorded.prepare import windowed
from harness.recorded.steady import show_span, steady_profile
from harness.recorded.transform import TrialClock, rest_name

_DEFAULT_TOP = 20
_MAX_AGENTS_BYTES = 1 << 20


def parse_statuses(text: str) -> frozenset[int]:
    codes = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[1-5]\d\d", code, re.ASCII) for code in codes):
        raise ValueError("expected HTTP statuses such as 429,503")
    return frozenset(map(int, codes))


def parse_agents(text: str) -> re.Pattern[str]:
    """A regular expression, or the name of a file with one a line. Matches anywhere in an identity."""
    path = Path(text)
    try:
        found = path.is_file()
    except (OSError, ValueError):
        found = False
    if not found:
        return _compiled(text)
    with path.open("rb") as file:
        content = file.read(_MAX_AGENTS_BYTES + 1)
    if len(content) > _MAX_AGENTS_BYTES:
        raise ValueError("a file of agents holds at most 1 MiB")
    lines = [line.strip() for line in content.decode("utf-8", "replace").splitlines()]
    patterns = [line for line in lines if line and not line.startswith("#")]
    if not patterns:
        raise ValueError("that file names no agent (one regular expression a line)")
    return _compiled("|".join(f"(?:{_compiled(pattern).pattern})" for pattern in patterns))


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"'{printable(pattern, 60)}' is no regular expression ({error})") from None


@click.command()
@reading_options
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the steady profile here.")
@click.option(
    "--agents",
    type=Parsed("REGEX|FILE", parse_agents),
    help="Identities that are agent runtimes: a regular expression, or a file with one a line.",
)
@click.option(
    "--refusals",
    type=Parsed("STATUS,...", parse_statuses),
    default="429,503",
    show_default=True,
    help="Statuses that refuse a call.",
)
@click.option(
    "--within",
    type=DURATION,
    default="5s",
    show_default=True,
    help="A call so soon after a failure of the same identity counts as an inferred re-plan.",
)
@click.option("--service-time", type=DURATION, default="200ms", show_default=True, help="For the profile's service.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON on standard output.")
def command(
    reading: ReadingOptions,
    output: Path | None,
    agents: re.Pattern[str] | None,
    refusals: frozenset[int],
    within: int,
    service_time: int,
    as_json: bool,
) -> int:
    """Read a log and say who calls how often, who is refused, and who answers a refusal with more calls.

    With -o it also writes a steady profile with the mean rate of each of the busiest callers (--top, 20 unless given).

    \b
    Examples:
      overload learn access.log
      overload learn access.log --top 4 --squeeze-gaps 5s -o learned.yaml
      overload learn calls.jsonl --map time=ts,tenant=auth.sub,queue_time=wait_ms --agents '^agent-'
    """
    if not service_time:
        raise RecordedError("--service-time", "a service time is above zero")
    account = Account()
    with opened(reading.logs) as sources:
        # Not spread: the order of the lines of one second is all there is to tell what followed a failure.
        records, begin_ns, _ = windowed(
            sources, reading.reading(None, paths=False), reading.begin, reading.end, account, reading.max_broken
        )
        clock = TrialClock(begin_ns, reading.squeeze_ns, Fraction(1))
        found = study(records, clock.at, within, refusals)
    if not found.calls:
        raise RecordedError("--from/--to", f"no call lies in the window ({account.read:,} were read)", "widen it")
    account.squeezed_gaps, account.squeezed_ns = clock.squeezed_gaps, clock.squeezed_ns
    ranked = found.ranked(reading.top or _DEFAULT_TOP, rest_name(found.identities))
    marked = frozenset(name for name in found.identities if agents is not None and agents.search(name))
    if output is not None:
        _write(output, reading, found, ranked, marked, service_time)
    if as_json:
        from harness.cli.output import echo_json

        echo_json({"account": account.as_json(), **study_json(found, ranked, marked, within)})
    else:
        _show(account, found, ranked, marked, within, output, Console())
    return 0


def _write(
    output: Path, reading: ReadingOptions, found: Study, ranked: list[Identity], agents: frozenset[str], time_ns: int
) -> None:
    name = profile_name(reading.logs[0].stem).replace("replay", "learned", 1)
    text = steady_profile(name, found, ranked, agents, time_ns, reading.squeeze_ns is not None)
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RecordedError(str(output), f"cannot be written ({error.strerror})", "give -o another file") from None


def _show(
    account: Account,
    found: Study,
    ranked: list[Identity],
    agents: frozenset[str],
    within_ns: int,
    output: Path | None,
    console: Console,
) -> None:
    for line in [*summary_lines(account, found), *agent_lines(found, agents)]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    waits = any(one.waits.count for one in ranked)
    table = Table(box=None, pad_edge=False)
    headings = ["caller", "calls", "rate", "peak minute", "refused", "inferred re-plans"]
    for heading in [*headings, *(["mean queue", "p95 queue"] if waits else [])]:
        table.add_column(heading, justify="left" if heading == "caller" else "right", overflow="fold")
    for one in ranked:
        many = f" ({one.identities:,} callers)" if one.identities > 1 else ""
        agent = "  [bold]agent[/bold]" if one.name in agents else ""
        shares = (one.refused_share, one.inferred_replan_share)
        cells = [f"{share:.1%}" if found.with_status else "not logged" for share in shares]
        rate = f"{float(found.rate_per_s(one.calls)):.3g}/s"
        queue = [_ms(one.waits.mean_ns), _ms(one.waits.quantile_ns(0.95))] if waits else []
        peak = "–" if one.peak_minute < 0 else f"{one.peak_minute:,}"
        table.add_row(escape(one.name) + many + agent, f"{one.calls:,}", rate, peak, *cells, *queue)
    console.print(table)
    notes = [
        f"inferred re-plans: calls within {within_ns / 1e9:g} s after a failure of the same caller; an upper bound"
    ]
    if output is not None:
        notes.append(f"profile   {output}  (overload profile check {output})")
    for line in notes:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def summary_lines(account: Account, found: Study) -> list[str]:
    """What people read first."""
    rate = float(found.rate_per_s(found.calls))
    lines = [
        f"lines     {account.lines:,}, {account.broken_lines:,} broken, {account.outside:,} calls outside the window",
        f"calls     {found.calls:,} of {len(found.identities):,} callers in {show_span(found.span_ns)}, "
        f"{found.minutes:,} minutes with calls",
        f"rate      {rate:.3g}/s on average; the busiest minute {found.peak_minute:,} calls "
        f"({found.peak_minute / 60:.3g}/s, {found.peak_minute / 60 / rate:.1f} times as much)",
    ]
    if found.waits.count:
        lines.append(
            f"queue     mean {_ms(found.waits.mean_ns)}, p95 {_ms(found.waits.quantile_ns(0.95))}, "
            f"longest {_ms(found.waits.most_ns)} ({found.waits.count:,} calls)"
        )
    else:
        lines.append("queue     not in this log; if it is, name the field: --map queue_time=FIELD:ms")
    if not found.with_status:
        lines.append("refusals  not in this log: no field is the status; name it: --map status=FIELD")
    return lines


def agent_lines(found: Study, agents: frozenset[str]) -> list[str]:
    """How much of the traffic the identities marked with --agents are; nothing if none was marked."""
    if not agents:
        return []
    all_ = agents_among(found, agents.__contains__)
    text = f"agents    {all_.identities:,} callers, {all_.calls:,} calls ({all_.calls / found.calls:.1%} of all)"
    if found.with_status:
        text += f", {all_.refused_share:.1%} refused, {all_.inferred_replan_share:.1%} inferred re-plans"
    return [text]


def _ms(ns: float | None) -> str:
    return "–" if ns is None else f"{ns / 1e6:.1f} ms"
