"""Options that several commands share, spelled once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from harness import checks
from harness.profile.loader import Loaded, load
from harness.shipped import PROFILES

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class ProfileFile(click.Path):
    """A file. One that is not there and comes with overload is named: examples are written as in a checkout."""

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            hint = shipped_hint(value)
            if not hint:
                raise
            self.fail(f"{error.message} {hint}", param, ctx)


def shipped_hint(value: Any) -> str:
    """Of a profile that is not there: which one of ours is perhaps meant; empty if none is."""
    ours = PROFILES.parent / value
    if not ours.is_relative_to(PROFILES) or not os.path.isfile(ours):  # of any text: it never raises
        return ""
    return f"The one that comes with overload is {ours}"


profile_argument: Decorator = click.argument("profile", type=ProfileFile(), metavar="PROFILE")
set_option: Decorator = click.option(
    "--set", "sets", multiple=True, metavar="PATH=VALUE", help="Change one value, e.g. service.workers=16. Repeatable."
)
time_scale_option: Decorator = click.option(
    "--time-scale",
    type=click.FloatRange(0.001, 100),
    default=1.0,
    show_default=True,
    help="Shrink every duration and raise every rate alike: 0.25 runs four times as fast.",
)
seed_option: Decorator = click.option(
    "--seed", type=click.IntRange(0, 10**18 - 1), help="Instead of the profile's seed."
)
reports_option: Decorator = click.option(
    "--reports",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("reports"),
    show_default=True,
    help="Where the trial's folder is made.",
)
json_option: Decorator = click.option("--json", "as_json", is_flag=True, help="The result as JSON on standard output.")
defect_option: Decorator = click.option(
    "--defect", metavar="NAME", help="Lay a defect over the bundled service (overload stub --list-defects)."
)


def load_profile(
    path: Path, variant: str | None, sets: tuple[str, ...], time_scale: float, seed: int | None = None
) -> Loaded:
    """Loads with everything that can be wrong reported at once. Raises BadInput."""
    all_sets = [*sets, *([f"seed={seed}"] if seed is not None else [])]
    return load(path, variant=variant, sets=all_sets, time_scale=time_scale, checks=checks.PARAMETERS)
