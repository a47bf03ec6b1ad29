"""Dotted paths into a profile, as variants, `--set` and error messages write them.

    tenants.D.rate.1.rate          keys joined by dots; a number is a place in a list, from 0
    tenants."billing.eu".budget    a key that holds a dot, a quote or a space stands in double quotes

Inside quotes, `\\"` is a quote and `\\\\` a backslash.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from harness.profile.errors import printable

Step = str | int
Path = tuple[Step, ...]

_PLAIN = re.compile(r"[^.\"\s=\\]+")
_QUOTED = re.compile(r'"((?:[^"\\]|\\["\\])*)"')


def parse_path(text: str) -> tuple[str, ...]:
    """Raises ValueError that says what is wrong. Steps stay text: the document says whether `1` is a key or a place."""
    path, rest = _take_path(text)
    if rest:
        raise ValueError(f"'{printable(rest[:20])}' is not expected there")
    return path


def split_assignment(text: str) -> tuple[tuple[str, ...], str]:
    """`path=value` -> (path, value). Raises ValueError."""
    path, rest = _take_path(text)
    if not rest.startswith("="):
        raise ValueError("expected path=value, such as tenants.D.rate=40/s")
    return path, rest[1:]


def _take_path(text: str) -> tuple[tuple[str, ...], str]:
    steps: list[str] = []
    at = 0
    while True:
        if match := _QUOTED.match(text, at):
            steps.append(re.sub(r"\\(.)", r"\1", match[1]))
        elif match := _PLAIN.match(text, at):
            steps.append(match[0])
        else:
            raise ValueError("expected a dotted path, such as tenants.D.rate (quote a key that holds a dot)")
        at = match.end()
        if text[at : at + 1] != ".":
            return tuple(steps), text[at:]
        at += 1


def show_path(path: Sequence[Step]) -> str:
    """The text that `parse_path` reads back."""
    return ".".join(_show_step(str(step)) for step in path)


def _show_step(step: str) -> str:
    if _PLAIN.fullmatch(step) and step.isprintable():
        return step
    quoted = step.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{printable(quoted)}"'
