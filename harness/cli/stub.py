"""`overload stub`: the bundled service in the foreground, for curl, for another load tool, for an agent's runtime."""

from __future__ import annotations

import shlex
import signal
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import click

from harness.cli import options
from harness.errors import BadInput
from harness.profile.model import Profile
from harness.simulate.service import capacity_config, shared_service
from harness.target.stub import StubProcess
from harness.target.tls import ServerTls
from harness.workload.defects import is_of_callers
from stub_service.capacity.config import CapacityConfig
from stub_service.config import SharedServiceConfig
from stub_service.defects.registry import DEFECTS

_LOOK_S = 0.5
_SHOWN_TENANTS = 10
_PEM = click.Path(exists=True, dir_okay=False, path_type=Path)


def _list_defects(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    for line in defect_lines():
        click.echo(line)
    ctx.exit(0)


def defect_lines() -> list[str]:
    """Every defect: its name, what is wrong, and which checks must catch it."""
    lines = []
    for name, defect in DEFECTS.items():
        caught = "every check must PASS" if defect.healthy else f"caught by {', '.join(defect.caught_by)}"
        lines.append(f"{name}: {defect.about} ({caught})")
    return lines or ["no defects are registered"]


@click.command()
@options.profile_argument
@click.option("--variant", metavar="NAME", help="A variant of the profile.")
@options.set_option
@options.time_scale_option
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0: any free one.")
@options.defect_option
@click.option(
    "--evidence",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for decisions.jsonl and its like (default: a temporary one).",
)
@click.option(
    "--dependencies-only",
    is_flag=True,
    help="Serve the dependencies of `capacity` without the controller, for one of your own.",
)
@click.option("--tls-cert", type=_PEM, help="Serve HTTPS with this certificate (PEM, with its chain).")
@click.option("--tls-key", type=_PEM, help="Its private key, if it is not in the same file.")
@click.option("--tls-client-ca", type=_PEM, help="Callers must show a certificate of this CA.")
@click.option(
    "--list-defects",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_defects,
    help="Print the names that --defect takes, and exit.",
)
def command(
    profile: Path,
    variant: str | None,
    sets: tuple[str, ...],
    time_scale: float,
    port: int,
    defect: str | None,
    evidence: Path | None,
    dependencies_only: bool,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
) -> int:
    """Serve what PROFILE describes under `service` and `capacity`, in the foreground, until Ctrl-C.

    \b
    Examples:
      overload stub profiles/worked_example.yaml
      overload stub profiles/worked_example.yaml --variant fair_queues --port 0
      overload run profiles/worked_example.yaml --target http://127.0.0.1:8080     (in another terminal)
      overload stub profiles/support_ticket.yaml --dependencies-only
      overload stub profiles/steady.yaml --tls-cert server.pem --tls-key server.key
      overload stub --list-defects
    """
    if defect is not None and defect not in DEFECTS:
        raise BadInput(f"--defect {defect}: there is no such defect; overload stub --list-defects prints their names")
    if is_of_callers(defect):
        raise BadInput(f"--defect {defect}: it is laid over callers, not over a stub: overload run --defect {defect}")
    if tls_cert is None and (tls_key is not None or tls_client_ca is not None):
        raise BadInput("--tls-key and --tls-client-ca say how to serve TLS; give its certificate, too: --tls-cert")
    tls = ServerTls(tls_cert, tls_key, tls_client_ca) if tls_cert is not None else None
    loaded = options.load_profile(profile, variant, sets, time_scale)
    shared, capacity = parts_of(loaded.profile, profile, dependencies_only)
    with ExitStack() as stack:
        if evidence is None:
            evidence = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="overload-evidence-")))
        stub = stack.enter_context(
            StubProcess(
                shared,
                evidence,
                capacity=capacity,
                dependencies_only=dependencies_only,
                defect=defect,
                port=port,
                tls=tls,
            )
        )
        for line in greeting(loaded.profile, stub.url, evidence, defect, dependencies_only):
            click.echo(line)
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does: in order
        try:
            while True:
                stub.check_alive()
                time.sleep(_LOOK_S)
        except KeyboardInterrupt:
            click.echo("stopping")
    return 0


def parts_of(
    profile: Profile, path: Path, dependencies_only: bool
) -> tuple[SharedServiceConfig | None, CapacityConfig | None]:
    """What the stub is to serve. Raises BadInput if the profile describes nothing of it."""
    capacity = capacity_config(profile) if profile.capacity is not None else None
    if dependencies_only:
        if capacity is None:
            raise BadInput(f"{path}: --dependencies-only needs a profile with `capacity:`, which says what they are")
        return None, capacity
    if profile.service is None and capacity is None:
        raise BadInput(f"{path}: describes nothing to serve; add `service:`, `capacity:` or both")
    return shared_service(profile) if profile.service is not None else None, capacity


def greeting(
    profile: Profile, url: str, evidence: Path, defect: str | None, dependencies_only: bool = False
) -> list[str]:
    """What somebody needs to know to call it."""
    tenants = list(profile.tenants)
    tokens = [f"  {name}: token-{name}" for name in tenants[:_SHOWN_TENANTS]]
    if len(tenants) > _SHOWN_TENANTS:
        tokens.append(f"  ... and {len(tenants) - _SHOWN_TENANTS} more, each token-<tenant>")
    if dependencies_only:
        tokens = ["  not asked for by the dependencies"]
    lines = [f"serving {profile.name} at {url}", "tokens (unless OVERLOAD_TOKENS gives others):", *tokens]
    if defect is not None:
        lines.append(f"with the defect {defect}: {DEFECTS[defect].about}")
    return [
        *(line if line.isprintable() else ascii(line) for line in lines),
        f"try:      {_trial_call(profile, url, tenants[0], dependencies_only)}",
        f"figures:  {url}/healthz  {url}/metrics",
        f"evidence: {evidence}",
        "Ctrl-C ends it",
    ]


def _trial_call(profile: Profile, url: str, tenant: str, dependencies_only: bool) -> str:
    """One call that will be answered, as somebody would type it."""
    curl = "curl -ik" if url.startswith("https:") else "curl -i"
    if dependencies_only and profile.capacity is not None:
        return f"{curl} -X POST {url}/dependencies/{quote(next(iter(profile.capacity.dependencies)), safe='')}/read"
    header = shlex.quote(f"Authorization: Bearer token-{tenant}")
    if profile.service is None:
        return f"{curl} -H {header} -X POST {url}/runs"
    return f"{curl} -H {header} {url}/service"
