"""What pages, help texts and profiles say: links, file names, and command lines, as their readers meet them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from harness.cli import overload
from tests.conftest import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_BLOCK = re.compile(r"^(?:```[^\n]*\n(.*?)^```|((?:    [^\n]*\n|\n)+))", re.M | re.S)
_LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^()\s]+)\)")
_RUN = re.compile(r"^(?:\$ |nohup |if )?(?:[A-Z_]+=(?:'[^']*'|\S+) )*(?:\S*/)?overload (?P<rest>.*)$")


@dataclass(frozen=True, slots=True)
class Line:
    """A command line `overload ...`, and where it stands. whole: it is meant to be typed as it is."""

    where: str
    words: tuple[str, ...]
    whole: bool

    def __str__(self) -> str:
        return f"{self.where}: overload {' '.join(self.words)}"


def prose_and_blocks(text: str) -> tuple[str, list[str]]:
    """A page without its code blocks, and its code blocks (fenced, or indented by four spaces)."""
    blocks: list[str] = []

    def taken(match: re.Match[str]) -> str:
        if match[1] is None and not match[2].strip():
            return match[0]
        blocks.append(match[1] if match[1] is not None else re.sub(r"^    ", "", match[2], flags=re.M))
        return "\n"

    return _BLOCK.sub(taken, text + "\n"), blocks


def links(page: Path) -> list[str]:
    """Targets of the page's links and pictures that are not of another site."""
    prose, _ = prose_and_blocks(page.read_text())
    prose = re.sub(r"`[^`]*`", "``", prose)
    return [target for target in _LINK.findall(prose) if not re.match(r"[a-z]+:", target)]


def anchors(page: Path) -> set[str]:
    """Of the page's headings, as GitHub makes them."""
    prose, _ = prose_and_blocks(page.read_text())
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.*)$", prose, re.M):
        slug = re.sub(r"[^\w\- ]", "", heading.lower().replace("`", "")).replace(" ", "-")
        again = sum(1 for one in found if re.fullmatch(rf"{re.escape(slug)}(-\d+)?", one))
        found.add(f"{slug}-{again}" if again else slug)
    return found


def lines_of_page(page: Path) -> Iterator[Line]:
    where = str(page.relative_to(ROOT))
    prose, blocks = prose_and_blocks(page.read_text())
    for block in blocks:
        yield from lines_of_block(where, block)
    for span in re.findall(r"`([^`]+)`", prose):
        yield from _line(where, " ".join(span.split()), whole=False)


def lines_of_block(where: str, block: str) -> Iterator[Line]:
    for line in re.sub(r"\\\n\s*", " ", block).splitlines():
        yield from _line(where, line.strip(), whole=True)


def lines_of_profile(path: Path) -> Iterator[Line]:
    where = str(path.relative_to(ROOT))
    for comment in re.findall(r"^#\s{2,}(overload .*)$", path.read_text(), re.M):
        yield from _line(where, comment, whole=True)


def lines_of_ci(path: Path) -> Iterator[Line]:
    """Shell steps of an example for CI, variables and all."""
    yield from lines_of_block(str(path.relative_to(ROOT)), path.read_text())


def other_commands(page: Path) -> Iterator[tuple[str, str]]:
    """("make", target) and ("python -m", module) in a page's code."""
    prose, blocks = prose_and_blocks(page.read_text())
    for text in (*blocks, *re.findall(r"`([^`]+)`", prose)):
        for line in text.splitlines():
            if match := re.match(r"\s*(make|python -m) ([\w.-]+)", line):
                yield match[1], match[2]


def commands(group: click.Group = overload, name: str = "overload") -> Iterator[tuple[str, click.Command]]:
    """(name, command) of every command, groups included."""
    yield name, group
    for inner in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), inner)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} {inner}")
        else:
            yield f"{name} {inner}", command


def lines_of_help() -> Iterator[Line]:
    for name, command in commands():
        for text in (command.help, command.epilog):
            yield from lines_of_block(f"{name} --help", text or "")


def _line(where: str, text: str, whole: bool) -> Iterator[Line]:
    match = _RUN.match(text)
    if match is None:
        return
    # What stands after two spaces explains; so does a comment. What follows a pipe is another command.
    rest = re.split(r"\s{2,}|\s#", match["rest"])[0]
    words = shlex.split(rest, comments=True)
    for stop in ("|", "||", "&&", "&", ">", ";", "2>"):
        if stop in words:
            words = words[: words.index(stop)]
    yield Line(where, tuple(words), whole)


def command_of(words: tuple[str, ...]) -> tuple[click.Command, list[str]]:
    """The command that is meant, and what it is given. Raises click.UsageError for one that does not exist."""
    command: click.Command = overload
    left = list(words)
    while isinstance(command, click.Group) and left and not left[0].startswith("-"):
        found = command.get_command(click.Context(command), left[0])
        if found is None:
            raise click.UsageError(f"there is no command {left[0]!r}")
        command, left = found, left[1:]
    return command, left


def given(command: click.Command, words: list[str]) -> dict[str, list[str]]:
    """Parameter -> values, unconverted; what stands after `--` is somebody else's command.

    Raises click.UsageError for an option that is not there, or lacks its value.
    """
    context = click.Context(command)
    own = words[: words.index("--")] if "--" in words else words
    values, left, order = command.make_parser(context).parse_args(list(own))
    found: dict[str, list[str]] = {param.name or "": [] for param in order}
    for name, value in values.items():
        if isinstance(value, list | tuple):
            found[name] = [str(one) for one in value]
        elif isinstance(value, str):
            found[name] = [value]
    if left and not isinstance(command, click.Group):
        raise click.UsageError(f"takes no argument {left[0]!r}")
    return found


def is_placeholder(value: str) -> bool:
    """Stands for something of the reader's own: FILE, NAME=VALUE, <trial>, http://..., PATH."""
    return bool(re.search(r"<|…|\.\.\.", value) or not re.search(r"[a-z0-9]", value))
