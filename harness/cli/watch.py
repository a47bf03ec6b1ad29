"""`overload watch`: a growing access log, tenant by tenant, and a word when somebody begins to re-plan."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import orjson
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from harness.cli.following import Follower
from harness.cli.learn import parse_statuses
from harness.cli.metrics_port import Source, Tell, metrics_option, served
from harness.cli.reading import DURATION, Parsed
from harness.errors import BadInput
from harness.profile.units import NS_PER_S, show_duration
from harness.recorded import formats
from harness.recorded.account import Account
from harness.recorded.fields import parse_map
from harness.recorded.reader import Growing, Reading
from harness.recorded.times import zone_of
from harness.recorded.watch_metrics import families
from harness.recorded.watching import Alert, Row, Rules, Watch
from harness.report.text import MISSING, clean, count, percent
from stub_service.exposition import Busiest, text

SHOWN = 20
_FORMATS = tuple(name for name in formats.NAMES if name != "har")


# fmt: off
@click.command()
@click.argument("log", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="LOG")
@click.option("--format", "form", default="auto", show_default=True, metavar="NAME",
              help=f"{', '.join(_FORMATS)}, or 'nginx:<your log_format string>'.")
@click.option("--map", "roles", type=Parsed("map", parse_map), default="", metavar="ROLE=FIELD,...",
              help="Which field is what: time, tenant, status, path, duration.")
@click.option("--tenant", metavar="FIELD",
              help="Who is charged: remote_addr, user, header:x-tenant, field:NAME or path:N.")
@click.option("--zone", type=Parsed("zone", zone_of), default="UTC", show_default=True, help="Of times that name none.")
@click.option("--window", type=DURATION, default="5m", show_default=True, help="What the figures are taken over.")
@click.option("--within", type=DURATION, default="5s", show_default=True,
              help="A call so soon after a failure of the same tenant is an inferred re-plan.")
@click.option("--refusals", type=Parsed("STATUS,...", parse_statuses), default="429,503", show_default=True,
              help="Statuses that refuse a call.")
@click.option("--share", type=click.FloatRange(0, 100), default=20.0, show_default=True, metavar="PERCENT",
              help="Alert over this inferred re-plan share.")
@click.option("--rise", type=click.FloatRange(0, 100), metavar="POINTS",
              help="Alert when the share is by so many points higher than in the six windows before.")
@click.option("--least-calls", type=click.IntRange(1), default=50, show_default=True,
              help="A tenant with fewer calls in the window alerts nobody.")
@click.option("--once", is_flag=True, help="Read what is there, say it, and end: for cron.")
@click.option("--new-only", is_flag=True, help="Begin at the end of the file.")
@click.option("--every", type=DURATION, default="5s", show_default=True, help="How often to look and to show.")
@click.option("--fail", is_flag=True, help="End with exit code 1 at the first alert (with --once: if one stands).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a look, a line each.")
@metrics_option
@click.option("--textfile", type=click.Path(dir_okay=False, path_type=Path),
              help="Write Prometheus text here at each look, for the node exporter.")
def command(
    log: Path,
    form: str,
    roles: dict[str, str],
    tenant: str | None,
    zone: Any,
    once: bool,
    new_only: bool,
    every: int,
    fail: bool,
    as_json: bool,
    metrics_port: int | None,
    textfile: Path | None,
    **rules: Any,
) -> int:
    """Follow a growing access log: offered, served, refused and the inferred re-plan share, tenant by tenant.

    For the weeks after a rollout. A line is printed when a tenant passes a threshold and when it is back under it.
    Rotation and truncation are followed; memory is bounded. Sends nothing.

    \b
    Examples:
      overload watch access.log --once --fail
      overload watch access.log --window 1m --share 10 --once --json
      overload watch access.log --tenant header:x-tenant --once --textfile overload.prom
    """
    # fmt: on
    if form == "har":
        raise BadInput("--format: a HAR file does not grow; overload learn reads it")
    if not every or not rules["window"] or not rules["within"]:
        raise BadInput("--every, --window and --within are above zero")
    account = Account()
    watch = Watch(_rules(**rules))
    growing = Growing(str(log), Reading(form, roles, tenant, zone, paths=False), account)
    with contextlib.ExitStack() as stack:
        follower = Follower(log, new_only)
        stack.callback(follower.close)
        shown: Shown = JsonLines(watch, account) if as_json else stack.enter_context(_screen(watch, account, log, once))
        told = [textfile_writer(textfile)] if textfile else []
        if metrics_port is not None:
            told.append(stack.enter_context(served(metrics_port)))
        looks = Looks(follower, growing, watch, account, shown, told, fail)
        looks.until(once, every, time.monotonic_ns, time.sleep)
    return 1 if fail and (looks.began or watch.alerting()) else 0


def _rules(
    window: int, within: int, refusals: frozenset[int], share: float, rise: float | None, least_calls: int
) -> Rules:
    return Rules(window, within, share / 100, None if rise is None else rise / 100, least_calls, 6, refusals)


Shown = Callable[[list[Alert]], object]
"""Told of each look, with the alerts that it brought."""


@dataclass
class Looks:
    """One look after another. began: alerts that have begun so far."""

    follower: Follower
    growing: Growing
    watch: Watch
    account: Account
    shown: Shown
    told: list[Tell]
    fail: bool
    began: int = 0

    def __post_init__(self) -> None:
        self._busiest = Busiest()

    def look(self) -> int:
        """Reads what has come; returns how many calls that were."""
        added = self.watch.add_all(self.growing.records(self.follower.poll()))
        self._tell()
        return added

    def _tell(self) -> None:
        alerts = self.watch.alerts()
        self.began += sum(alert.began for alert in alerts)
        if self.told:
            found = families(self.watch, self.account, self._busiest)
            for tell in self.told:
                tell(lambda: found)
        self.shown(alerts)

    def until(self, once: bool, every_ns: int, clock: Callable[[], int], wait: Callable[[float], object]) -> None:
        """Looks once, or until Ctrl-C, or (`fail`) until an alert. In a silence the window moves on with the clock."""
        added, last_ns, newest_ns = self.look(), clock(), self.watch.now_ns
        while not once and not (self.fail and self.began):
            try:
                wait(every_ns / NS_PER_S)
            except KeyboardInterrupt:
                return
            if not added:
                self.watch.advance(newest_ns + clock() - last_ns)
            added = self.look()
            if added:
                last_ns, newest_ns = clock(), self.watch.now_ns


class JsonLines:
    """A line a look, for machines."""

    def __init__(self, watch: Watch, account: Account) -> None:
        self._watch, self._account = watch, account

    def __call__(self, alerts: list[Alert]) -> None:
        rules = self._watch.rules
        row = {
            "at_ns": self._watch.now_ns,
            "lines": self._account.lines,
            "broken_lines": self._account.broken_lines,
            "late_lines": self._watch.late,
            "window_ns": rules.window_ns,
            "replan_share": {"kind": "inferred", "within_ns": rules.within_ns},
            "tenants": [_row_json(one) for one in self._watch.rows()[:1000]],
            "alerts": [
                {"tenant": a.tenant, "kind": a.kind, "began": a.began, "value": a.value, "bound": a.bound,
                 "calls": a.calls, "at_ns": a.at_ns}
                for a in alerts
            ],
        }  # fmt: skip
        click.echo(orjson.dumps(row).decode())


def _row_json(row: Row) -> dict[str, Any]:
    one = row.window
    return {
        "tenant": row.tenant,
        "offered": one.offered,
        "served": one.served,
        "refused": one.refused,
        "failed": one.failed,
        "mean_duration_ns": one.took_ns / one.timed if one.timed else None,
        "inferred_replan_share": one.share,
        "share_before": row.before,
        "alerting": sorted(row.alerting),
    }


@contextlib.contextmanager
def _screen(watch: Watch, account: Account, log: Path, once: bool) -> Iterator[Shown]:
    """A table that renews itself on a terminal; elsewhere (and with --once) plain text, the table once."""
    console = Console()
    if once or not console.is_terminal:

        def plain(alerts: list[Alert]) -> None:
            if once:
                console.print(_picture(watch, account, log))
            for alert in alerts:
                console.print(_alert(alert), soft_wrap=True)

        yield plain
        return
    with Live(_picture(watch, account, log), console=console, auto_refresh=False) as live:

        def renewed(alerts: list[Alert]) -> None:
            for alert in alerts:
                live.console.print(_alert(alert))
            live.update(_picture(watch, account, log), refresh=True)

        yield renewed


def _alert(alert: Alert) -> Text:
    word, style = ("ALERT", "bold red") if alert.began else ("over ", "green")
    return Text(f"{word}  {clean(str(alert), 300)}", style)


def _picture(watch: Watch, account: Account, log: Path) -> Group:
    rules, rows = watch.rules, watch.rows()
    table = Table(box=None, pad_edge=False)
    headings = ("tenant", "offered", "served", "refused", "failed", "mean time", "inferred re-plans", "before")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "tenant" else "right", overflow="fold")
    for row in rows[:SHOWN]:
        one = row.window
        mean = f"{one.took_ns / one.timed / 1e6:,.1f} ms" if one.timed else MISSING
        table.add_row(
            Text(clean(row.tenant, 60)), count(one.offered), count(one.served), _lost(one.refused), _lost(one.failed),
            mean, Text(percent(one.share), "bold red" if row.alerting else ""), percent(row.before),
        )  # fmt: skip
    unread = f", {account.broken_lines:,} broken" if account.broken_lines else ""
    late = f", {watch.late:,} too old" if watch.late else ""
    head = Text(
        f"{clean(str(log), 120)}: {account.lines:,} lines{unread}{late}; the last {show_duration(rules.window_ns)}, "
        f"re-plans inferred within {show_duration(rules.within_ns)} of a failure: an upper bound"
    )
    more = [Text(f"and {len(rows) - SHOWN:,} tenants more")] if len(rows) > SHOWN else []
    return Group(head, table, *more)


def _lost(n: int) -> Text:
    return Text(count(n), "red" if n else "")


def textfile_writer(path: Path) -> Tell:
    """Writes whole files only: the node exporter may read at any moment."""

    def tell(source: Source) -> None:
        try:
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".overload-", delete=False) as file:
                file.write(text(source()))
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except OSError as error:
            raise BadInput(f"{path}: cannot be written ({error.strerror}); give --textfile another file") from None

    return tell
