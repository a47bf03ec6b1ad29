"""Words that several sentences about a profile share."""

from __future__ import annotations

from collections.abc import Iterable

from harness.profile.errors import printable, short


def names_of(names: Iterable[str], most: int = 6) -> str:
    shown = [short(printable(name), 40) for name in names]
    if len(shown) > most:
        shown = [*shown[: most - 1], f"{len(shown) - most + 1} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def plural(count: int) -> str:
    return "" if count == 1 else "s"
