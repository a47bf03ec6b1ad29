"""`overload serve`: stands in for a model provider or a shared service, in the foreground, until Ctrl-C."""

from __future__ import annotations

import asyncio
import shlex
import signal
from pathlib import Path

import click

from harness.cli import standing_in
from stub_service.provider import forms
from stub_service.provider.scenarios import GROUPS, SCENARIOS


def _list(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    width = max(len(name) for name in (*SCENARIOS, *GROUPS))
    for scenario in SCENARIOS.values():
        click.echo(f"{scenario.name:<{width}}  {scenario.about}")
    click.echo("\nseveral in turn, for overload judge -- COMMAND:")
    for name, members in GROUPS.items():
        shown = f"all {len(members)} of them" if name == "all" else ", ".join(members)
        click.echo(f"{name:<{width}}  {shown}")
    click.echo("\nvariables that lead a client here (NAME=value, with the port that is shown when it serves):")
    for name, text in forms.variables("http://127.0.0.1:PORT").items():
        click.echo(f"{name}={text}")
    ctx.exit(0)


@click.command()
@click.option("--scenario", required=True, metavar="NAME", help="What the caller is to live through (--list).")
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="0: any free one.")
@click.option(
    "--evidence",
    type=click.Path(file_okay=False, path_type=Path),
    help="A new folder for what arrives (default: one under reports/).",
)
@click.option("--form", type=click.Choice(forms.FORMS), help="Serve this interface only (default: all of them).")
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=_list, help="Print all scenarios.")
def command(scenario: str, port: int, evidence: Path | None, form: str | None) -> int:
    """Stand in for a model provider or a shared service, inject a scenario, and write down what arrives.

    Serves OpenAI's chat completions and responses, Anthropic's messages, AWS JSON, and plain /service, on loopback.
    Point your agent at it with the variables that it prints; Ctrl-C ends it; `overload judge DIR` says what was right.

    \b
    Examples:
      overload serve --list
      overload serve --scenario refused_once --port 8090
      overload serve --scenario commits_then_resets --form openai --evidence /tmp/evidence
      curl -i -X POST http://127.0.0.1:8090/service                          (in another terminal)
      overload judge /tmp/evidence
    """
    chosen = standing_in.scenario_named(scenario)
    folder = evidence or standing_in.new_folder(f"serve-{chosen.name}")
    return asyncio.run(_serve(chosen.name, folder, port, form))


async def _serve(scenario: str, folder: Path, port: int, form: str | None) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with standing_in.opened(SCENARIOS[scenario], folder, form=form, port=port) as stand_in:
        click.echo(f"serving {scenario} at {stand_in.url}: {SCENARIOS[scenario].about}")
        click.echo("point a client at it:")
        for name, text in forms.variables(stand_in.url, form).items():
            click.echo(f"  export {name}={shlex.quote(text)}")
        click.echo(f"evidence: {folder}\nCtrl-C ends it")
        await stop.wait()
    click.echo(f"\n{stand_in.arrived} requests arrived. Judge them with:\n  overload judge {shlex.quote(str(folder))}")
    return 0
