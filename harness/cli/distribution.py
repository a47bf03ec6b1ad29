"""Options of a trial that several processes drive, and what is said while workers of other machines are awaited."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from harness.report.text import clean
from harness.target.driver_process import DEFAULT_PORT, Workers
from harness.trial import Progress

WEB_PORT = 8089

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_OPTIONS: tuple[Decorator, ...] = (
    click.option(
        "--workers",
        type=click.IntRange(0, 256),
        default=0,
        metavar="N",
        help="Drive it by so many worker processes here, instead of one. How many it needs: overload profile check.",
    ),
    click.option(
        "--remote-workers",
        type=click.IntRange(0, 10_000),
        default=0,
        metavar="N",
        help="And by so many on other machines, each started there with: overload worker --master HOST.",
    ),
    click.option(
        "--listen",
        default="",
        metavar="HOST:PORT",
        help=f"Where to listen for them. Default: every address, port {DEFAULT_PORT}. On a trusted network only.",
    ),
    click.option(
        "--join-within",
        type=click.FloatRange(1, 86_400),
        default=60.0,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for all workers. Then it is given up, and nothing was sent.",
    ),
)


def workers_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives the command `workers`, `remote_workers`, `listen` and `join_within`; `workers_of` makes one of them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def workers_of(here: int, elsewhere: int, listen: str, join_within_s: float) -> Workers:
    if listen and not (here or elsewhere):
        raise click.UsageError("--listen is where a master awaits its workers: give --workers or --remote-workers, too")
    return Workers(here, elsewhere, listen, join_within_s)


def web_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives the command `web_ui` and `web_port`; `page_of` makes one of them."""
    about = "Where, on 127.0.0.1. Default 8089, Locust's own; 0: a free one."
    command = click.option("--web-port", type=click.IntRange(0, 65535), metavar="PORT", help=about)(command)
    about = "Show it meanwhile in Locust's own web page, with tabs for tenants and phases. To look at, not to measure."
    return click.option("--web-ui", is_flag=True, help=about)(command)


def page_of(web_ui: bool, port: int | None) -> int | None:
    """The port of Locust's web page; None: there is to be none."""
    if port is not None and not web_ui:
        raise click.UsageError("--web-port is where Locust's web page is: give --web-ui, too")
    return (WEB_PORT if port is None else port) if web_ui else None


def announcing(on_progress: Progress) -> Progress:
    """Says on standard error who is awaited, and where the web page is; hands on everything else."""

    def heard(event: dict[str, Any]) -> None:
        if event.get("event") == "waiting":
            there = ", ".join(clean(str(name), 40) for name in event.get("joined", [])[:20])
            click.echo(
                f"waiting for workers: {len(event.get('joined', []))} of {event.get('expected')} are there"
                f"{f' ({there})' if there else ''}; start the others with: "
                f"overload worker --master {event.get('address')}",
                err=True,
            )
        elif event.get("event") == "page":
            click.echo(f"Locust's web page at {event.get('url')}", err=True)
        else:
            on_progress(event)

    return heard
