"""`overload baseline`: keep the figures of a trial, to hold later ones against them (`overload diff`)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from rich.console import Console

from harness import trial
from harness.baseline import model
from harness.baseline.compare import environments_differ, profiles_differ, served_differs
from harness.baseline.model import Baseline, Situation
from harness.baseline.pooling import together
from harness.baseline.take import environment_of, identity_of, name_of, refuse_invalid, situation_of
from harness.checks.verdict import Word
from harness.cli.options import Decorator
from harness.errors import BadInput
from harness.ledger.reader import MANIFEST, read_trial
from harness.report.grid import line

folder_option: Decorator = click.option(
    "--baselines", type=click.Path(file_okay=False, path_type=Path), default=model.FOLDER, show_default=True,
    metavar="DIR", help="Where baselines are kept.",
)  # fmt: skip


@click.group()
def command() -> None:
    """Keep the figures of a trial, to hold later ones against them: see overload diff.

    \b
    Examples:
      overload baseline save reports/20250102-030405-steady
      overload diff steady reports/20250103-040506-steady
    """


@command.command()
@click.argument("sources", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path),
                metavar="TRIAL_DIR|VERIFY.json...")  # fmt: skip
@click.option("--name", help="Of the baseline. Default: that of the trial's profile and variant, or `verify`.")
@folder_option
def save(sources: tuple[Path, ...], name: str | None, baselines: Path) -> int:
    """Write reports/baselines/NAME.json: a small file, the same for the same trials, to be kept in git.

    Give the folder of a trial, or what `overload verify --json` said. Of several trials of one profile the baseline
    knows how much trials differ from each other: three to five make a gate that does not cry wolf.

    \b
    Examples:
      overload baseline save reports/20250102-030405-steady
      overload baseline save reports/*-steady --name steady
      overload verify --json > verify.json; overload baseline save verify.json
    """
    made, default = of_sources(sources)
    name = name or default
    if not model.NAME.fullmatch(name):
        raise BadInput(f"--name {name}: letters, digits, dots, dashes and underscores only, at most 100")
    path = baselines / f"{name}.json"
    written = write(path, made)
    console = Console()
    trials = sum(situation.trials for situation in made.situations.values())
    line(console, f"{written}  {path}  ({_several(len(made.situations), 'situation')}, {_several(trials, 'trial')})")
    failing = [f"{situation} {check}" for situation, one in made.situations.items()
               for check, figures in one.checks.items() if figures.word is Word.FAIL]  # fmt: skip
    if failing:
        line(console, f"note: it holds what FAILs already, which is no regression later: {', '.join(failing[:10])}")
    return 0


def _several(n: int, what: str) -> str:
    return f"{n} {what}" + ("" if n == 1 else "s")


def of_sources(sources: Sequence[Path]) -> tuple[Baseline, str]:
    """(the baseline of all trials, a name for it). Their order makes no difference. Raises BadInput."""
    trials = sorted(
        (pair for source in sources for pair in trials_of(source)), key=lambda pair: (pair[0], pair[1].name)
    )
    read = [(name, folder, *_taken(folder)) for name, folder in trials]
    _, _, first, environment, _ = read[0]
    whole = Baseline(environment=environment, situations={"first": first})
    by_name: dict[str, list[Situation]] = {}
    seen: dict[tuple[str, ...], Path] = {}
    for name, folder, situation, its, who in read:
        other = Baseline(environment=its, situations={"first": situation})
        same = by_name.setdefault(name, [])
        problems = environments_differ(whole, other, {})
        if same:
            said = profiles_differ(name, same[0], situation)
            served = served_differs(same[0], situation)
            problems += [*([said] if said else []), *([f"  {name}: what serves differs ({served})"] if served else [])]
        if problems:
            told = "\n".join([f"{folder} does not belong to the trials before it:", *problems])
            raise BadInput(f"{told}\nsave it as a baseline of its own")
        if (before := seen.setdefault((name, *who), folder)) is not folder:
            told = f"{before} and {folder} are one trial ({', '.join(who)}), which differs from itself by nothing"
            raise BadInput(f"{told}: give it once; in virtual time give each trial its own --seed")
        same.append(situation)
    made = Baseline(environment=environment, situations={name: together(same) for name, same in by_name.items()})
    return made, "verify" if len(by_name) > 1 else next(iter(by_name))


def _taken(folder: Path) -> tuple[Situation, dict[str, str], tuple[str, ...]]:
    """(its figures, its environment, what no other trial has)."""
    judged = trial.judge(folder, write=False)
    refuse_invalid(judged.trial, judged.verdicts)
    return situation_of(judged.trial, judged.verdicts), environment_of(judged.trial), identity_of(judged.trial)


def trials_of(source: Path) -> Iterator[tuple[str, Path]]:
    """(situation, folder) of each trial that a folder, or the JSON of a verification, is of. Raises BadInput."""
    if source.is_dir():
        yield name_of(read_trial(source)), source
        return
    document = model.read_document(source)
    rows = document.get("checks") if isinstance(document, dict) else None
    if not isinstance(rows, list) or not rows:
        raise BadInput(f"{source}: neither a trial's folder nor what `overload verify --json` said")
    for row in rows:
        case, folder = (row.get(key) if isinstance(row, dict) else None for key in ("case", "trial"))
        if not isinstance(case, str) or not isinstance(folder, str):
            told = f"{case} was not driven" if isinstance(case, str) else "a row names no situation"
            raise BadInput(f"{source}: {told}; give a verification that ran to its end")
        if not (Path(folder) / MANIFEST).is_file():
            raise BadInput(f"{source}: the trial of {case} is not in {folder}; run this where the verification ran")
        yield case, Path(folder)


def read_side(text: str, baselines: Path) -> tuple[Baseline, str]:
    """(what a side of a comparison is, why it is not to be trusted or empty). Raises BadInput."""
    path = Path(text)
    if path.is_dir():
        judged = trial.judge(path, write=False)
        broken = next((verdict for verdict in judged.verdicts if verdict.word is Word.INVALID), None)
        situation = situation_of(judged.trial, judged.verdicts)
        made = Baseline(environment=environment_of(judged.trial), situations={name_of(judged.trial): situation})
        return made, f"{broken.check}: {broken.sentence}" if broken else ""
    found = path if path.is_file() else model.find(text, baselines)
    if found is None:
        raise model.no_such(text, baselines)
    document = model.read_document(found)
    if isinstance(document, dict) and document.get("kind") == model.KIND:
        return model.parse(document, found), ""
    if isinstance(document, dict) and document.get("verdict") == Word.INVALID.value:
        raise BadInput(f"{found}: the verification is INVALID, so nothing can be compared with it; drive it again")
    return of_sources([found])[0], ""


def write(path: Path, baseline: Baseline) -> str:
    """`saved`, `replaced` or `same`. Raises BadInput."""
    data = model.dump(baseline)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_bytes() if path.exists() else None
        if before == data:
            return "same"
        part = path.with_name(path.name + ".part")
        part.write_bytes(data)
        os.replace(part, path)
    except OSError as error:
        raise BadInput(f"{path}: cannot be written ({error.strerror}); give --baselines another folder") from None
    return "saved" if before is None else "replaced"
