"""`overload lab`: the worked example in the browser, every input exposed, until Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import webbrowser

import click
from aiohttp import web

from harness.errors import BadInput
from harness.lab.server import app

HOST = "127.0.0.1"


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="0: any free one.")
@click.option("--open/--no-open", "open_", default=True, help="Open the browser, where there is one.")
def command(port: int, open_: bool) -> int:
    """Try overload settings in the browser: change one input and see at once who is hurt.

    The worked example with every input: workers, queue, policy, tenants, the agent's burst, its re-plans and budget.
    Each change runs the simulator of `overload simulate` and shows the tenants, the verdict, charts, the range over
    many trials, and every decision. Two settings side by side; a link that holds the inputs; export and import; "save
    as profile" for a run against a real service.

    Serves this machine only, writes nothing, and loads nothing from elsewhere.

    \b
    Examples:
      overload lab
      overload lab --port 8765 --no-open        then open http://127.0.0.1:8765/
      ssh -L 8765:127.0.0.1:8765 machine        for a lab on another machine
    """
    return asyncio.run(_serve(port, open_))


async def _serve(port: int, open_: bool) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    runner = web.AppRunner(app(), access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, port)
        try:
            await site.start()
        except OSError as error:
            remedy = "leave --port out for any free one"
            raise BadInput(f"port {port} of {HOST} cannot be taken ({error.strerror}); {remedy}") from None
        url = f"http://{HOST}:{runner.addresses[0][1]}/"
        click.echo(f"the lab is at {url}\nCtrl-C ends it")
        if open_ and _has_screen():
            await asyncio.to_thread(webbrowser.open, url)
        await stop.wait()
    finally:
        await runner.cleanup()
    return 0


def _has_screen() -> bool:
    """Without one a browser of the terminal would take it over."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
