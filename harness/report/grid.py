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

_ASCII = str.maketrans({"–": "-", "…": "~", "·": "|", "×": "x", "−": "-", "─": "-", "━": "="})


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
    """Prints a table. header: (group, title) a column; neighbours of one group stay in one part if they can.

    The first `lead` columns are text, aligned left and repeated in every part; the others are numbers, aligned right.
    A row of None is a blank line (left out where the output is not a terminal, where the heading is one line too).
    """
    filled = [row for row in rows if row is not None]
    if console.is_terminal:
        heads = [list(pair) for pair in zip(*header, strict=True)]
        heads = heads if any(heads[0]) else heads[1:]
    else:
        heads = [["_".join(part for part in pair if part).replace(" ", "_") for pair in header]]
    columns = range(len(header))
    widths = [
        max(
            cell_len(sayable(text, console))
            for text in (*(head[i] for head in heads), *(row[i].text for row in filled))
        )
        for i in columns
    ]
    room = console.width if console.is_terminal else None
    gap = 1 if room is not None and room < 100 else 2
    for number, part in enumerate(_packed(widths, [group for group, _ in header], lead, room, gap)):
        if number:
            console.print()
        shown = [*range(lead), *part]
        for head in heads:
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


def _print(console: Console, cells: Sequence[Cell], widths: Sequence[int], lead: int, gap: int) -> None:
    text = Text()
    for i, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        said = sayable(cell.text, console)
        said = set_cell_size(said, width) if i < lead else " " * (width - cell_len(said)) + said
        text.append((" " * gap if i else "") + said, style=cell.style or None)
    text.rstrip()
    console.print(text, soft_wrap=True, highlight=False)
