"""`overload target`: describe a service of your own, and see what can be judged of it before anything is sent."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from harness import checks
from harness.checks.tiers import Judgeable, given_by, judgeable
from harness.cli import options
from harness.cli.output import echo_json
from harness.cli.targets import dry_run
from harness.errors import BadInput
from harness.profile.errors import ProfileError
from harness.report import grid
from harness.report.text import clean
from harness.target.file import Described, load_target, target_from_document, variable_of
from harness.target.model import TargetFile
from harness.target.probing import Probed, endpoint_of, probe_call
from harness.target.schema import target_schema
from harness.target.session import evidence_of
from harness.target.tokens import credentials_of
from harness.target.writing import Operation, Wish, read_openapi, target_text

PROBE_TENANT = "probe"
NEW_FILE = "the new file"
MOST_PROBED = 20
"""Tenants of a profile, where none are named."""


@click.group()
def command() -> None:
    """Describe a service of your own, and see what can be judged of it.

    \b
    Examples:
      overload target init -o staging.yaml                      asks a few questions
      overload target init --openapi openapi.yaml -o staging.yaml
      overload target check staging.yaml                        one call a tenant; what can be judged
      overload target conformance staging.yaml                  of a file with a Python driver: is it one?
      overload run profiles/steady.yaml --target staging.yaml --dry-run
    """


@command.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--profile", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Also hold this profile against the target's limits.")  # fmt: skip
@click.option("--tenant", "tenants", multiple=True, metavar="NAME",
              help="Whom to call for. Repeatable. Default: those of --profile, else of `credentials`.")  # fmt: skip
@click.option("--no-probe", is_flag=True, help="Send nothing at all.")
@options.json_option
def check(file: Path, profile: Path | None, tenants: tuple[str, ...], no_probe: bool, as_json: bool) -> int:
    """Reads FILE, sends one call for each tenant, shows how its answer was understood, and says which checks can be
    judged and what to add for the others.

    \b
    Examples:
      overload target check docs/examples/nginx/target.yaml --no-probe
      overload target check staging.yaml --tenant A --profile profiles/steady.yaml

    Exit code 0: sound, and every call was answered. 2: not.
    """
    described = load_target(file)
    if profile is not None:
        loaded = options.load_profile(profile, None, (), 1.0)
        dry_run([loaded], described)
        tenants = tenants or tuple(loaded.profile.tenants)[:MOST_PROBED]
    given = given_by(evidence_of(described))
    found = [judgeable(name, given) for name in checks.CHECKS]
    probed = [] if no_probe else _probe(described, tenants)
    if as_json:
        echo_json(_document(described, found, probed))
    else:
        _show(described, found, probed)
    return 2 if any(one.problem for one in probed) else 0


def _probe(described: Described, tenants: tuple[str, ...]) -> list[Probed]:
    credentials = described.target.credentials
    names = list(tenants) or list(credentials.tenants) or [PROBE_TENANT]
    tokens = credentials_of(described.target, names)
    endpoint = endpoint_of(described)
    return [probe_call(described, endpoint, name, tokens.get(name)) for name in names]


def _show(described: Described, found: list[Judgeable], probed: list[Probed]) -> None:
    console, target = Console(), described.target
    console.print(clean(f"{target.name}: {target.url}"), markup=False, highlight=False)
    limits = target.limits
    rails = f"at most {float(limits.max_rate):g} calls/s, {limits.max_in_flight} in flight" if limits else "no limits"
    console.print(
        f"limits: {rails}; allowed beside loopback: {clean(', '.join(target.allow)) or 'nothing'}", markup=False
    )
    if probed:
        rows = [[grid.Cell(clean(text)) for text in _probe_row(one)] for one in probed]
        header = [("", name) for name in ("tenant", "request", "answer", "understood as", "queue wait", "retry after")]
        grid.grid(console, header, rows, lead=len(header))
    can = [one.check for one in found if not one.missing]
    console.print(f"\ncan be judged ({len(can)}): {', '.join(can)}", markup=False, highlight=False)
    for tiers in dict.fromkeys(one.missing for one in found if one.missing):
        names = [one.check for one in found if one.missing == tiers]
        console.print(f"\nnot yet ({len(names)}): {', '.join(names)}", markup=False, highlight=False)
        for sentence in next(one.add for one in found if one.missing == tiers):
            console.print(f"  add {sentence}", markup=False, highlight=False)


def _probe_row(one: Probed) -> list[str]:
    if one.understood is None:
        return [one.tenant, one.request, one.problem or "", "", "", ""]
    said = one.understood
    meant = f"{said.outcome}{f' ({said.reason})' if said.reason else ''}, by {said.by}"
    wait = f"{said.queue_wait_ns / 1e6:.1f} ms" if said.queue_wait_ns >= 0 else "not told"
    return [
        one.tenant,
        one.request,
        f"{one.status} in {one.took_ns / 1e6:.0f} ms",
        meant,
        wait,
        said.retry_after or "-",
    ]


def _document(described: Described, found: list[Judgeable], probed: list[Probed]) -> dict[str, Any]:
    return {
        "name": described.target.name,
        "url": described.target.url,
        "judgeable": [one.check for one in found if not one.missing],
        "not_judgeable": [
            {"check": one.check, "missing": [str(tier) for tier in one.missing], "add": list(one.add)}
            for one in found if one.missing
        ],
        "probes": [
            {"tenant": one.tenant, "request": one.request, "status": one.status, "took_ms": one.took_ns / 1e6,
             "problem": one.problem, "outcome": one.understood.outcome if one.understood else None,
             "reason": one.understood.reason if one.understood else None,
             "understood_by": one.understood.by if one.understood else None,
             "queue_wait_ns": one.understood.queue_wait_ns if one.understood else None,
             "retry_after": one.understood.retry_after if one.understood else None}
            for one in probed
        ],
    }  # fmt: skip


@command.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--tenant", default="A", show_default=True, metavar="NAME", help="Whom to call for.")
@click.option("--dependency", default="customer", show_default=True, metavar="NAME", help="What each step calls.")
@options.json_option
def conformance(file: Path, tenant: str, dependency: str, as_json: bool) -> int:
    """Holds the Python driver that FILE names against what a driver must do, with a handful of calls to the service.

    \b
    Example:
      overload target conformance staging.yaml --tenant A --dependency billing

    Exit code 0: it keeps every rule. 1: it breaks one. 2: it cannot be made.
    """
    from harness.target.conformance import broken
    from harness.target.driver import Context, driver_class, made

    described = load_target(file)
    name = described.target.driver
    if name is None:
        raise BadInput(f"{file}: names no driver; a target without one is seen by overload target check {file}")
    token = credentials_of(described.target, [tenant]).get(tenant)
    context = Context(described.target.url, described.document, described.folder)
    found = broken(made(driver_class(name, described.folder), context), token, tenant, dependency)
    if as_json:
        echo_json({"driver": name, "broken": [{"method": one.method, "rule": one.rule} for one in found]})
    else:
        for one in found:
            click.echo(clean(f"{one.method}: {one.rule}"))
        click.echo(f"{name}: {len(found)} rules are broken" if found else f"{name}: keeps every rule")
    return 1 if found else 0


@command.command()
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Default: standard output.")
@click.option("--openapi", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Take an operation of this OpenAPI 3 document (YAML or JSON).")  # fmt: skip
@click.option("--operation", metavar='"POST /path"', help="Which one. Default: the first that writes.")
@click.option("--url", help="Where the service is. Asked for if left out.")
@click.option("--name", help="What to call it. Asked for if left out.")
@click.option("--tenants", metavar="A,B,C", help="Who calls it. Asked for if left out.")
@click.option("--method", help="Of a call. Asked for if left out.")
@click.option("--path", help="Of a call. Asked for if left out.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def init(
    output: Path | None,
    openapi: Path | None,
    operation: str | None,
    url: str | None,
    name: str | None,
    tenants: str | None,
    method: str | None,
    path: str | None,
    force: bool,
) -> int:
    """Writes a commented target file, from a few questions or from an OpenAPI document. Without a terminal nothing is
    asked, and the defaults stand.

    \b
    Examples:
      overload target init -o staging.yaml
      overload target init --openapi docs/openapi.yaml --url http://127.0.0.1:8080 --name shop --tenants A,B -o t.yaml
      overload target init --url http://127.0.0.1:8080 --name shop --tenants A,B,C,D
    """
    if output is not None and output.exists() and not force:
        raise BadInput(f"{output}: is there already; give another name, or --force")
    server, chosen = _chosen(openapi, operation)
    some = Wish("staging", "http://127.0.0.1:8080")
    url = url or _asked("Where is the service", server or some.url, lambda said: replace(some, url=said))
    name = name or _asked("What is it called", some.name, lambda said: replace(some, name=said))
    asked = "Tenants that call it, with commas between"
    tenants = tenants or _asked(asked, "A,B,C,D", lambda said: replace(some, tenants=_names_in(said)))
    names = _names_in(tenants)
    if chosen is None:
        method = method or _asked("Method of a call", "POST", lambda said: replace(some, method=said.upper()))
        method = method.upper()
        path = path or _asked("Path of a call", "/", lambda said: replace(some, path=said))
        wish = Wish(name, url, method, path, {} if method in ("POST", "PUT", "PATCH") else None, names)
    else:
        wish = Wish(
            name, url, chosen.method, chosen.path, chosen.body, names, data=chosen.data, outcomes=chosen.outcomes
        )
    text = target_text(wish)
    _must_be_sound(text)
    if output is None:
        click.echo(text, nl=False)
        return 0
    try:
        output.write_text(text)
    except OSError as error:
        raise BadInput(f"{output}: cannot be written ({error.strerror})") from None
    exports = " ".join(filter(None, (variable_of(target_of_text(text).credentials, tenant) for tenant in names)))
    click.echo(f"wrote {output}\nnext: export {exports}, then: overload target check {output}", err=True)
    return 0


def _asked(question: str, default: str, wish: Callable[[str], Wish]) -> str:
    """Asked again until a file with this answer would be sound."""

    def sound(said: str) -> str:
        try:
            _must_be_sound(target_text(wish(said)))
        except (BadInput, ProfileError) as error:
            raise click.UsageError(str(error).removeprefix(f"{NEW_FILE}: ")) from None
        return said

    return str(click.prompt(question, default=default, value_proc=sound, err=True)) if sys.stdin.isatty() else default


def _names_in(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise BadInput(f"tenants: {text!r}: expected names with commas between, such as A,B,C")
    return names


def _chosen(openapi: Path | None, operation: str | None) -> tuple[str | None, Operation | None]:
    if openapi is None:
        if operation is not None:
            raise BadInput("--operation names one of an --openapi document; give that, too")
        return None, None
    server, operations = read_openapi(openapi)
    if operation is None:
        return server, next((one for one in operations if one.method == "POST"), operations[0])
    for one in operations:
        if one.name.partition("?")[0].lower() == operation.strip().lower():
            return server, one
    shown = ", ".join(one.name for one in operations[:20])
    raise BadInput(f"{openapi}: has no operation {operation!r}; it has {shown}")


def target_of_text(text: str) -> TargetFile:
    from harness.profile import nodes

    root, _ = nodes.compose(text, NEW_FILE)
    return target_from_document(root.plain(), Path.cwd(), NEW_FILE).target


def _must_be_sound(text: str) -> None:
    """What the answers made must load: a name with a colon in it, say, is told now."""
    target_of_text(text)


@command.command()
def schema() -> None:
    """Prints the JSON Schema of target files, for completion and checks in an editor.

    \b
    Example:
      overload target schema > target.schema.json
    """
    click.echo(json.dumps(target_schema(), indent=2, ensure_ascii=False))
