"""The document of a baseline, and how it is read and written.

It is kept in git and reviewed, so the same trials give the same bytes: keys sorted, figures rounded, no time of day, a
line for each quantity. It is read as foreign input: bounded, validated, with one message that says what is wrong.

    kind, schema, confidence
    environment    {name: text}: what must be equal for a comparison (driver, target, machine, versions)
    situations     name -> Situation; of a single trial: the profile's name and variant
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import AfterValidator, Field, ValidationError, model_validator

from harness.checks.verdict import Word
from harness.errors import BadInput
from harness.profile.base import Part

KIND, SCHEMA = "overload baseline", 1
FOLDER = Path("reports/baselines")
CONFIDENCE = 0.95
"""Of each end of each interval."""

SHARES = ("served", "refused", "abandoned", "replans")
WAITS = ("wait_mean_ms", "wait_p50_ms", "wait_p95_ms")
MOST_BYTES = 32 << 20
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)

Finite = Annotated[float, Field(allow_inf_nan=False, ge=-1e15, le=1e15)]
Calls = Annotated[int, Field(ge=0, le=10**15)]


def _known(quantities: dict[str, Quantity]) -> dict[str, Quantity]:
    unknown = next((name for name in quantities if name not in (*SHARES, *WAITS)), None)
    if unknown is not None:
        raise ValueError(f"there is no quantity '{unknown[:60]}'")
    for name in SHARES:
        share = quantities.get(name)
        if share is not None and not (share.low >= 0 and share.high <= 1 and share.hits is not None):
            raise ValueError(f"{name} is a share: from 0 to 1, with its hits")
    return quantities


def _ours(confidence: float) -> float:
    if confidence != CONFIDENCE:
        raise ValueError(f"its intervals are not of {CONFIDENCE}, so no others can be held against them")
    return confidence


class Quantity(Part):
    """low <= estimate <= high. n: calls that it is of. hits: of a share, how many of them."""

    estimate: Finite
    low: Finite
    high: Finite
    n: Calls
    hits: Calls | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.low <= self.estimate <= self.high or (self.hits or 0) > self.n:
            raise ValueError("low, estimate and high must be in this order, and hits at most n")
        return self


class Window(Part):
    """One tenant in one phase. due: original calls wanted; offered: all that was sent, re-plans included."""

    due: Calls
    offered: Calls
    quantities: Annotated[dict[str, Quantity], AfterValidator(_known)]


class CheckFigures(Part):
    """low, high: the interval of the finding that decided, where it has one."""

    word: Word
    measured: Finite | None = None
    low: Finite | None = None
    high: Finite | None = None
    bound: Finite | None = None
    unit: str = ""
    samples: Calls = 0


class Tenant(Part):
    ordinary: bool
    phases: dict[str, Window]


class Situation(Part):
    """trials: how many were put together. parts: hash of each part of the profile; served_by: of those parts that are
    what the bundled stub or the simulator runs. wait: what a wait is. service_time_ms: None unknown."""

    profile: str
    variant: str | None = None
    profile_hash: str
    time_scale: float
    parts: dict[str, str]
    served_by: dict[str, str]
    trials: Annotated[int, Field(ge=1)] = 1
    wait: Literal["queue wait", "latency"]
    service_time_ms: Finite | None = None
    tenants: dict[str, Tenant]
    pooled: dict[str, Window]
    checks: dict[str, CheckFigures]


class Baseline(Part):
    kind: Literal["overload baseline"] = "overload baseline"
    schema_: Annotated[Literal[1], Field(alias="schema")] = 1
    confidence: Annotated[float, AfterValidator(_ours)] = CONFIDENCE
    environment: dict[str, str]
    situations: Annotated[dict[str, Situation], Field(min_length=1)]


def find(name: str, folder: Path) -> Path | None:
    """The file of a baseline by its name."""
    path = folder / f"{name}.json"
    return path if NAME.fullmatch(name) and path.is_file() else None


def no_such(text: str, folder: Path) -> BadInput:
    """What to say of a place that does not exist."""
    names = sorted(path.stem for path in folder.glob("*.json")) if folder.is_dir() else []
    near = get_close_matches(text, names, 1, 0.6)
    hint = f"; did you mean {near[0]}?" if near else ""
    known = f" (baselines in {folder}: {', '.join(names[:20]) or 'none'})"
    return BadInput(f"{text}: no such trial, file or baseline{hint}{known}")


def read_document(path: Path) -> Any:
    """JSON of a file of any origin. Raises BadInput."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise BadInput(f"{path}: larger than {MOST_BYTES >> 20} MiB, so it is no baseline")
        return orjson.loads(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from None
    except orjson.JSONDecodeError as error:
        raise BadInput(
            f"{path}: not JSON ({error}); give a baseline, a trial's folder, or what verify --json said"
        ) from None


def parse(document: Mapping[str, Any], path: Path) -> Baseline:
    """Raises BadInput with the first thing that is wrong."""
    if document.get("schema") != SCHEMA:
        said = str(document.get("schema"))[:40]
        raise BadInput(f"{path}: schema {said} is not {SCHEMA}; save the baseline again: overload baseline save")
    try:
        return Baseline.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part)[:60] for part in first["loc"])[:300]
        raise BadInput(
            f"{path}: {where}: {first['msg']}; was it edited? Save it again: overload baseline save"
        ) from None


def dump(baseline: Baseline) -> bytes:
    """The same bytes for the same figures."""
    document = baseline.model_dump(mode="json", by_alias=True, exclude_none=True)
    return ("\n".join(_lines(document, "")) + "\n").encode()


def _lines(value: Any, indent: str) -> list[str]:
    """Sorted keys; what holds no further object stands on one line."""
    if not isinstance(value, dict) or not any(isinstance(item, dict) for item in value.values()):
        return [_plain(value)]
    inner = indent + "  "
    lines = ["{"]
    for place, key in enumerate(sorted(value)):
        comma = "," if place < len(value) - 1 else ""
        first, *rest = _lines(value[key], inner)
        told = [f"{inner}{_plain(key)}: {first}", *rest]
        lines += [*told[:-1], told[-1] + comma]
    return [*lines, indent + "}"]


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_plain(key)}: {_plain(value[key])}" for key in sorted(value)) + "}"
    return orjson.dumps(value).decode()
