"""What a record says: how many mutants of each module were made, tried, killed, have survived, and may."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from benchmarks.mutants import record
from benchmarks.mutants.operators import Mutant
from benchmarks.mutants.record import Row

COLUMNS = ("mutants", "tried", "killed", "survived", "justified", "left")


def plan(chosen: Sequence[Mutant], rows: Mapping[str, Row]) -> str:
    made, tried = Counter[str](), Counter[str]()
    for mutant in chosen:
        made[mutant.module] += 1
        tried[mutant.module] += record.of(mutant, rows) is not None
    lines = [f"{name:40} {made[name]:6} {tried[name]:6} tried" for name in made]
    return "\n".join([*lines, f"{'in all':40} {made.total():6} {tried.total():6} tried"])


def survivors(chosen: Sequence[Mutant], rows: Mapping[str, Row]) -> str:
    lines = []
    for mutant in chosen:
        row = record.of(mutant, rows)
        if row is not None and not row.by and not record.justified(mutant):
            where = f"{mutant.module}.py:{mutant.line} {mutant.function}"
            lines.append(f"{where} [{mutant.kind}, {row.of} tests]\n    {mutant.change}")
    return "\n".join([*lines, f"{len(lines)} survivors that nobody has justified"])


def figures(chosen: Sequence[Mutant], rows: Mapping[str, Row]) -> str:
    """A Markdown table by module, and the classes of those that were let live."""
    found: dict[str, Counter[str]] = {}
    classes = Counter[str]()
    for mutant in chosen:
        counts = found.setdefault(mutant.module.removeprefix("harness/"), Counter())
        counts["mutants"] += 1
        row = record.of(mutant, rows)
        if row is None:
            continue
        why = "" if row.by else record.justified(mutant)
        counts.update(["tried", "killed" if row.by else "survived", *(["justified" if why else "left"] * (not row.by))])
        classes.update([why] if why else [])
    total = sum(found.values(), Counter[str]())
    lines = [f"| module | {' | '.join(COLUMNS)} |", f"| --- |{' --- |' * len(COLUMNS)}"]
    for name, counts in [*sorted(found.items()), ("in all", total)]:
        lines.append(f"| `{name}` | {' | '.join(str(counts[column]) for column in COLUMNS)} |")
    return "\n".join([*lines, "", *(f"- {why}: {n}" for why, n in classes.most_common())])
