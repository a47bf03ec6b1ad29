"""One call as a dependency sees it, and the headers that carry it: text in, values or a complaint out.

The controller's own calls carry all of it (a `DependencyCall` has every field of a `Visit`); one from elsewhere may
carry none. Nothing here raises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote

from stub_service.capacity.ports import DependencyCall

_TEXT = re.compile(r"[ -~]{1,2000}", re.ASCII)
_WHOLE = re.compile(r"\d{1,18}", re.ASCII)
_INSTANT = re.compile(r"-?\d{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Visit:
    """What a call tells of itself; None: it does not say. via: of proxies on its way (RFC 9110, section 7.6.3)."""

    dependency: str
    operation: str
    run: str | None = None
    step: str | None = None
    attempt: int | None = None
    owner: str | None = None
    layer: str | None = None
    round: int | None = None
    tenant: str | None = None
    traffic_class: str | None = None
    tool: str | None = None
    deadline_ns: int | None = None
    probe: bool = False
    idempotency_key: str | None = None
    via: str | None = None


def headers_of(call: DependencyCall) -> dict[str, str]:
    """The headers that carry it over HTTP. Names that a header cannot hold are percent-encoded."""
    headers = {
        "Overload-Run": _sent(call.run),
        "Overload-Step": _sent(call.step),
        "Overload-Attempt-Number": str(call.attempt),
        "Overload-Owner": _sent(call.owner),
        "Overload-Layer": _sent(call.layer),
        "Overload-Round": str(call.round),
        "Overload-Tenant": _sent(call.tenant),
        "Overload-Traffic-Class": _sent(call.traffic_class),
        "Overload-Tool": _sent(call.tool),
        "Overload-Deadline-Ns": str(call.deadline_ns),
    }
    if call.probe:
        headers["Overload-Probe"] = "1"
    if call.idempotency_key is not None:
        headers["Idempotency-Key"] = _sent(call.idempotency_key)
    return headers


def read_visit(dependency: str, operation: str, headers: Mapping[str, str]) -> Visit | str:
    """The call as its headers tell it, or one sentence on what is wrong with them."""
    texts: dict[str, str | None] = {}
    for name in (*_TEXTS, "Idempotency-Key"):
        value = headers.get(name)
        if value is not None and not _TEXT.fullmatch(value):
            return f"{name} must be 1 to 2000 printable ASCII characters"
        texts[name] = None if value is None else _received(value)
    numbers: dict[str, int | None] = {}
    for name, form in (
        ("Overload-Attempt-Number", _WHOLE), ("Overload-Round", _WHOLE), ("Overload-Deadline-Ns", _INSTANT)
    ):  # fmt: skip
        value = headers.get(name)
        if value is not None and not form.fullmatch(value):
            return f"{name} must be a whole number, such as 1"
        numbers[name] = None if value is None else int(value)
    via = headers.get("Via")
    run, step, owner, layer, tenant, traffic_class, tool, key = texts.values()
    return Visit(
        dependency, operation, run, step, numbers["Overload-Attempt-Number"], owner, layer, numbers["Overload-Round"],
        tenant, traffic_class, tool, numbers["Overload-Deadline-Ns"], headers.get("Overload-Probe") == "1", key,
        via if via is not None and _TEXT.fullmatch(via) else None,
    )  # fmt: skip


_TEXTS = (
    "Overload-Run",
    "Overload-Step",
    "Overload-Owner",
    "Overload-Layer",
    "Overload-Tenant",
    "Overload-Traffic-Class",
    "Overload-Tool",
)


def _sent(text: str) -> str:
    """As a header can hold it. Plain names stay as they are; only what a header cannot hold, and %, is encoded."""
    return text if _PLAIN.fullmatch(text) else quote(text, safe=_SAFE)


def _received(text: str) -> str:
    return unquote(text, errors="replace") if "%" in text else text


_SAFE = "!\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"
_PLAIN = re.compile(r"[!-$&-~]+", re.ASCII)
