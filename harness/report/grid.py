"""Text tables that stay readable at 80 and at 200 columns, and plain where the output is not a terminal.

Columns are aligned by blanks. On a terminal a table too wide for it is cut into several, each with the leading columns
repeated, instead of being wrapped. Elsewhere it is one table of full width, so that `grep` and `awk` see whole rows.
No markup is ever read: cells are built as `rich.text.Text`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from harness.report.text import fit

_ASCII = str.maketrans({"–": "-", "…": "~", "·": "|", "×": "x", "−": "-", "─": "-", "━": "=", "█": "#", "░": "."})


@dataclass(frozen=True, slots=True)
class Cell:
    """style: of rich; empty: none."""

    text: str
    style: str = ""


def line(console: Console, *cells: Cell | str, indent: int = 0) -> None:
    """Prints one line: wrapped with its indent on a terminal, never wrapped elsewhere."""
    text = Text()
    for cell in cells:
        part = cell if isinstance(cell, Cell) else Cell(cell)
        text.append(sayable(part.text, console), style=part.style or None)
    if not console.is_terminal:
        console.print(Text(" " * indent) + text, soft_wrap=True, highlight=False)
        return
    for wrapped in text.wrap(console, max(20, console.width - indent)):
        wrapped.rstrip()
        console.print(Text(" " * indent) + wrapped, soft_wrap=True, highlight=False)


def sayable(text: str, console: Console) -> str:
    """What the output's encoding can carry: a report never dies on a character."""
    try:
        text.encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return text.translate(_ASCII).encode("ascii", "backslashreplace").decode("ascii")
    return text


def grid(
    console: Console,
    header: Sequence[tuple[str, str]],
    rows: Sequence[Sequence[Cell] | None],
    lead: int = 1,
) -> None:
    """Prints a table. header: (group, title) a column; neighbours of one group stay in one part if they can, and on a
    terminal the group's name stands once, above them all.

    The first `lead` columns are text, aligned left and repeated in every part; the others are numbers, aligned right.
    A row of None is a blank line (left out where the output is not a terminal, where the heading is one line too).
    """
    filled = [row for row in rows if row is not None]
    groups = [group for group, _ in header]
    if console.is_terminal:
        head = [title for _, title in header]
    else:
        head = ["_".join(part for part in pair if part).replace(" ", "_") for pair in header]
    shared = [
        bool(group) and group in (*groups[max(0, i - 1) : i], *groups[i + 1 : i + 2]) for i, group in enumerate(groups)
    ]
    own = ["" if shared[i] or not console.is_terminal else group for i, group in enumerate(groups)]
    widths = [
        max(cell_len(sayable(text, console)) for text in (own[i], head[i], *(row[i].text for row in filled)))
        for i in range(len(header))
    ]
    room = console.width if console.is_terminal else None
    gap = 1 if room is not None and room < 100 else 2
    for number, part in enumerate(_packed(widths, groups, lead, room, gap)):
        if number:
            console.print()
        shown = [*range(lead), *part]
        if console.is_terminal and any(groups[i] for i in shown):
            _print_groups(console, [groups[i] for i in shown], [widths[i] for i in shown], gap)
        _print(console, [Cell(head[i], "bold") for i in shown], [widths[i] for i in shown], lead, gap)
        for row in rows:
            if row is not None:
                _print(console, [row[i] for i in shown], [widths[i] for i in shown], lead, gap)
            elif console.is_terminal:
                console.print()


def _packed(widths: list[int], groups: list[str], lead: int, width: int | None, gap: int) -> list[list[int]]:
    """Which columns go into which part."""
    places = list(range(lead, len(widths)))
    if width is None:
        return [places]
    free = max(1, width - sum(w + gap for w in widths[:lead]))
    parts: list[list[int]] = [[]]
    room = free
    for unit in _units(places, groups, [w + gap for w in widths], free + gap):
        need = sum(widths[place] + gap for place in unit)
        if need > room + gap and parts[-1]:
            parts.append([])
            room = free
        parts[-1] += unit
        room -= need
    return parts


def _units(places: list[int], groups: list[str], widths: list[int], most: int) -> list[list[int]]:
    """Columns that stay together: neighbours of one named group, unless the group alone is too wide."""
    units: list[list[int]] = []
    for place in places:
        if units and groups[place] and groups[units[-1][-1]] == groups[place]:
            units[-1].append(place)
        else:
            units.append([place])
    return [
        part for unit in units for part in ([unit] if sum(widths[i] for i in unit) <= most else [[i] for i in unit])
    ]


def _print_groups(console: Console, groups: Sequence[str], widths: Sequence[int], gap: int) -> None:
    """The line above the titles: each group's name in the middle of its columns, between strokes if there is room."""
    text, place = Text(), 0
    while place < len(groups):
        after = place + 1
        while groups[place] and after < len(groups) and groups[after] == groups[place]:
            after += 1
        width = sum(widths[place:after]) + gap * (after - place - 1)
        name = fit(groups[place], width)
        if after - place > 1 and width >= cell_len(name) + 4:
            name = sayable(f" {name} ".center(width, "─"), console)
        text.append(" " * gap if place else "")
        text.append(" " * (width - cell_len(name)) + name, style="bold")
        place = after
    text.rstrip()
    console.print(text, soft_wrap=True, highlight=False)


def _print(console: Console, cells: Sequence[Cell], widths: Sequence[int], lead: int, gap: int) -> None:
    text = Text()
    for i, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        said = sayable(cell.text, console)
        said = set_cell_size(said, width) if i < lead else " " * (width - cell_len(said)) + said
        text.append((" " * gap if i else "") + said, style=cell.style or None)
    text.rstrip()
    console.print(text, soft_wrap=True, highlight=False)
