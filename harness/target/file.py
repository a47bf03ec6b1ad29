"""A target file -> a TargetFile, or every problem with it at once, as profiles are read (harness/profile/loader.py).

Rules between fields are here: where may be sent, which names a template may hold, what needs what. Reading sends
nothing and needs no secret: that each tenant has its token is asked when a trial is planned (`tokens_for`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from harness.errors import BadInput
from harness.profile import nodes
from harness.profile.errors import Problem, ProfileError, did_you_mean
from harness.profile.explain import explain, explain_contradictions
from harness.profile.nodes import Node
from harness.profile.paths import Path as DottedPath
from harness.target import templates
from harness.target.hosts import accepted, is_loopback
from harness.target.model import TENANT_MARK, Credentials, Request, TargetFile
from harness.target.tls import Tls

OURS = ("overload-call", "overload-attempt", "overload-round", "overload-queue-deadline-ms", "overload-cost")
"""Headers that the harness sets, beside the credential."""


class TargetFileError(ProfileError):
    """At least one problem; `str()` is every one of them, a line each."""


@dataclass(frozen=True, slots=True)
class Described:
    """document: as the file has it, which is what a trial's manifest keeps (it holds no secret). folder: where paths in
    it begin."""

    target: TargetFile
    document: dict[str, Any]
    folder: Path


def load_target(path: Path) -> Described:
    """Raises TargetFileError."""
    name = str(path)
    try:
        with open(path, "rb") as file:
            data = file.read(nodes.MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TargetFileError([Problem(name, None, None, "", None, f"the file cannot be read: {reason}")]) from None
    try:
        root, problems = nodes.compose(nodes.decode(data, name), name)
    except ProfileError as error:
        raise TargetFileError(_ours(error.problems)) from None
    return _finish(root, _ours(problems), path.resolve().parent)


def target_from_document(document: Any, folder: Path, origin: str = "<document>") -> Described:
    """The same from a document in memory, such as the one that a manifest keeps. Raises TargetFileError."""
    try:
        root = nodes.from_plain(document, origin)
    except ProfileError as error:
        raise TargetFileError(_ours(error.problems)) from None
    return _finish(root, [], folder)


def _finish(root: Node, problems: list[Problem], folder: Path) -> Described:
    mark = root.mark
    if root.kind != "mapping":
        rule = "a target file is a mapping of keys such as name, url and call"
        raise TargetFileError([*problems, Problem(mark.file, mark.line, mark.column, "", root.shown(), rule)])
    document = root.plain()
    target: TargetFile | None = None
    try:
        target = TargetFile.model_validate(document)
    except ValidationError as error:
        problems += explain(error, root, TargetFile)
    else:
        problems += explain_contradictions(contradictions(target, folder), root)
    if target is None or problems:
        unique = dict.fromkeys(problems)
        raise TargetFileError(sorted(unique, key=lambda p: (p.line is None, p.line or 0, p.column or 0)))
    return Described(target, document, folder)


def _ours(problems: Any) -> list[Problem]:
    """The reader of YAML speaks of profiles."""
    return [
        Problem(p.file, p.line, p.column, p.path, p.value, p.rule.replace("a profile", "a target file"), p.hint)
        for p in problems
    ]


Found = tuple[DottedPath, str]


def contradictions(target: TargetFile, folder: Path) -> Iterator[Found]:
    """Rules that span fields, or that a pattern cannot say."""
    yield from _of_url(target)
    if target.tls != type(target.tls)() and urlsplit(target.url).scheme == "http":
        yield ("tls",), "has no use: the url is plain HTTP; write https:// there, or leave `tls` out"
    yield from _of_files(target, folder)
    yield from _of_templates(target)
    if target.driver is not None and target.runs is not None:
        yield ("driver",), "a driver opens runs itself: leave out `runs`, or the driver"
    sources = target.evidence
    for path, url in (
        (("evidence", "decisions", "url"), sources.decisions.url if sources.decisions else None),
        (("evidence", "dependencies"), sources.dependencies),
    ):
        if url is not None:
            for message in _bad_url(url, target):
                yield path, message


def _of_url(target: TargetFile) -> Iterator[Found]:
    for message in _bad_url(target.url, target):
        yield ("url",), message
    if target.host and not is_loopback(target.host):
        if target.limits is None:
            yield (
                ("url",),
                (
                    "a host other than this machine's own needs `limits: {max_rate: ...}`, the most calls a second "
                    "that its owner allows"
                ),
            )
        if not target.tls.verify:
            yield ("tls", "verify"), "may be false only where the host is loopback; give `ca` instead"


def _bad_url(url: str, target: TargetFile) -> Iterator[str]:
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError as error:
        yield f"is not a URL ({error}); expected one such as https://staging.example"
        return
    if parts.scheme not in ("http", "https") or not host:
        yield "expected a URL such as http://127.0.0.1:8080 or https://staging.example"
        return
    if parts.username is not None or parts.password is not None:
        yield "must not carry a user or a password: tokens come from the environment (`credentials`)"
    if parts.query or parts.fragment:
        yield "has a query or a fragment; put those into `call.path`"
    if not url.isascii() or not url.isprintable() or " " in url:
        yield "has characters that a URL cannot have"
    if port == 0:
        yield "has port 0, on which nothing can listen"
    if not may_be_sent(host, target):
        yield (
            f"{host!r} is not on the allow list; if you may load it, add it: `allow: [{host}]` "
            "(loopback is always allowed)"
        )


def may_be_sent(host: str, target: TargetFile) -> bool:
    """Loopback always; else only what the allow list names, letter by letter: no wildcards."""
    return accepted(host, target.allow)


def _of_files(target: TargetFile, folder: Path) -> Iterator[Found]:
    for key in ("ca", "cert", "key"):
        name = getattr(target.tls, key)
        if name is not None and not (folder / name).is_file():
            yield ("tls", key), f"there is no such file (looked for in {folder})"


def _of_templates(target: TargetFile) -> Iterator[Found]:
    data = set(target.data)
    reserved = data & {*templates.CALL_NAMES, *templates.RUN_NAMES, *templates.STEP_NAMES}
    for name in sorted(reserved):
        yield ("data", name), "is a name that the harness fills itself; choose another"
    call = data | set(templates.CALL_NAMES)
    yield from _names(("call",), target.call, call)
    for name, text in target.recorded.headers.items():
        yield from _unknown(("recorded", "headers", name), text, call)
    yield from _unknown(("recorded", "body"), target.recorded.body, call)
    yield from _credential_headers(target)
    if target.runs is not None:
        known = call | set(templates.RUN_NAMES)
        for key in ("open", "submit", "read", "cancel", "finish"):
            request = getattr(target.runs, key)
            if request is not None:
                yield from _names(("runs", key), request, known)
        yield from _unknown(("runs", "step"), target.runs.step, set(templates.STEP_NAMES) | {"run", "batch"})
    if target.faults is not None:
        for key in ("set", "clear"):
            request = getattr(target.faults, key)
            if request is not None:
                yield from _names(("faults", key), request, set(templates.FAULT_NAMES))


def _credential_headers(target: TargetFile) -> Iterator[Found]:
    """A secret has no place in the file, and two headers of one name are read by each service in its own way."""
    named = target.credentials.header.lower()
    places = [("call", target.call.headers), ("recorded", target.recorded.headers)]
    runs = target.runs
    for key in ("open", "submit", "read", "cancel", "finish") if runs is not None else ():
        request = getattr(runs, key)
        places += [(f"runs.{key}", request.headers)] if request is not None else []
    for place, headers in places:
        for name in headers:
            if name.lower() in (named, *OURS):
                path = (*place.split("."), "headers", name)
                yield path, "is set by the harness itself (`credentials`, and its own); leave it out"


def _names(path: DottedPath, request: Request, known: set[str]) -> Iterator[Found]:
    yield from _unknown((*path, "path"), request.path, known)
    for name, text in request.headers.items():
        yield from _unknown((*path, "headers", name), text, known)
    yield from _unknown((*path, "body"), request.body, known)


def _unknown(path: DottedPath, value: Any, known: set[str]) -> Iterator[Found]:
    try:
        names = templates.names_in(value)
    except ValueError as error:
        yield path, str(error)
        return
    for name in sorted(names - known):
        yield path, f"{{{name}}} is not known; {did_you_mean(name, sorted(known), 'names here')}"


def tls_of(described: Described) -> Tls | None:
    """What the client is to do; None for plain HTTP. Paths are whole."""
    part, url = described.target.tls, described.target.url
    if urlsplit(url).scheme != "https":
        return None
    ca, cert, key = (None if name is None else str(described.folder / name) for name in (part.ca, part.cert, part.key))
    return Tls(ca, cert, key, part.server_name, part.verify)


def tokens_for(
    credentials: Credentials, tenants: list[str], environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Tenant -> token, from the environment variables that the file names. A tenant for which it names none is not in
    the answer: OVERLOAD_TOKENS, a JSON object tenant -> token, may have it.

    Raises BadInput that names every missing variable and never shows what is in one."""
    tokens: dict[str, str] = {}
    missing = []
    made_for: dict[str, str] = {}
    for tenant in tenants:
        variable = variable_of(credentials, tenant)
        if variable is None:
            continue
        if tenant not in credentials.tenants and TENANT_MARK in (credentials.env or ""):
            other = made_for.setdefault(variable, tenant)
            if other != tenant:
                raise BadInput(
                    f"tenants {other!r} and {tenant!r} would both have the token of {variable} (credentials.env), and "
                    "be one tenant to the service; give one of them a variable of its own in `credentials.tenants`"
                )
        value = environment.get(variable)
        if value:
            tokens[tenant] = value
        else:
            missing.append(f"{tenant}: {variable}")
    if missing:
        shown = ", ".join(missing[:20]) + (f" and {len(missing) - 20} more" if len(missing) > 20 else "")
        raise BadInput(f"no token in the environment for {shown}; export the variables that the target file names")
    return tokens


def variable_of(credentials: Credentials, tenant: str) -> str | None:
    """The environment variable that holds a tenant's token; None where the file names none."""
    if tenant in credentials.tenants:
        return credentials.tenants[tenant]
    if credentials.env is None:
        return None
    capitals = "".join(char if char.isascii() and char.isalnum() else "_" for char in tenant.upper())
    return credentials.env.replace(TENANT_MARK, capitals)
