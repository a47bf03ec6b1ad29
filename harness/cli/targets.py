"""What `--target` takes, and what is said before anything is sent there: the same for every command that sends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import click

from harness import trial
from harness.errors import BadInput
from harness.profile.demand import NO_PEAKS
from harness.profile.loader import Loaded
from harness.target.file import Described, load_target
from harness.target.rails import NO_CALLS, banner, sending_of
from harness.target.session import refuse
from harness.target.url import accepted_url

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

target_option: Decorator = click.option(
    "--target",
    default=trial.STUB,
    show_default=True,
    metavar="stub|URL|FILE",
    help="The bundled stub, the address of a service on this machine, or a target file (overload target init).",
)
dry_run_option: Decorator = click.option(
    "--dry-run", is_flag=True, help="Say what would be sent where, check every guard rail, and send nothing."
)


def target_of(text: str) -> trial.Target:
    """`stub`, and URLs that may be loaded, as they are; else a target file, read whole. Raises BadInput."""
    if text == trial.STUB:
        return text
    if "://" in text:
        return accepted_url(text)
    path = Path(text)
    if path.is_dir() or not path.exists():
        raise BadInput(
            f"--target {text}: there is no such file; give `stub`, a URL such as http://127.0.0.1:8080, or a target "
            "file (overload target init writes one)"
        )
    return load_target(path)


def announce(
    loaded: Loaded,
    target: trial.Target,
    recorded_peaks: Mapping[str, Fraction] = NO_PEAKS,
    recorded_calls: Mapping[str, int] = NO_CALLS,
) -> None:
    """The banner, on standard error, of what is not started here. Raises BadInput with every rail that forbids it."""
    if isinstance(target, Described):
        refuse(target, loaded.profile, loaded.time_scale, recorded_peaks)
        url, limits, name = target.target.url, target.target.limits, target.target.name
    elif "://" in target:
        url, limits, name = target, None, ""
    else:
        return
    said = banner(sending_of(loaded.profile, url, limits, recorded_peaks, recorded_calls), name)
    click.echo(said if said.isprintable() else ascii(said), err=True)


def dry_run(loads: list[Loaded], target: trial.Target) -> int:
    """What `--dry-run` says. Exit code 0: every rail allows it."""
    where = target.target.url if isinstance(target, Described) else target
    for loaded in loads:
        announce(loaded, target)
        name = loaded.profile.name + (f", variant {loaded.variant}" if loaded.variant else "")
        click.echo(f"dry run: profile {name} would be sent to {where}; nothing was sent")
    return 0
