"""The part of manifest.json that a live driver needs, read with one clear sentence for whatever is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from harness.errors import BadInput
from harness.ledger.reader import MANIFEST
from harness.live.requests import Target, target_in_manifest
from harness.profile.loader import from_document
from harness.profile.model import Profile
from harness.workload.plan import RecordedSource, no_recordings


class CannotBegin(BadInput):
    """One clear sentence: what, where, and what to do."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """document: all of it, as it was read."""

    profile: Profile
    target_kind: str
    target_url: str
    time_scale: float
    document: dict[str, Any] = field(repr=False)

    @property
    def caller_defect(self) -> str | None:
        """What is wrong with the callers, on purpose."""
        found: str | None = self.document["target"].get("caller_defect")
        return found


def read_manifest(folder: Path) -> Manifest:
    """Raises CannotBegin."""
    path = folder / MANIFEST
    try:
        document = orjson.loads(path.read_bytes())
    except OSError as error:
        raise CannotBegin(f"{path}: {error.strerror}; give the folder of a trial that has been planned") from None
    except ValueError as error:
        raise _not_one(str(path), error) from None
    return manifest_of(document, str(path))


def manifest_of(document: Any, origin: str) -> Manifest:
    """origin: where it comes from, for messages. Raises CannotBegin."""
    try:
        kind, url = document["target"]["kind"], document["target"]["url"]
        time_scale = float(document["time_scale"])
        profile = from_document(document["profile"], origin=origin, time_scale=time_scale).profile
    except (KeyError, TypeError, ValueError) as error:
        raise _not_one(origin, error) from None
    if not isinstance(kind, str) or not isinstance(url, str):
        raise CannotBegin(f"{origin}: target.url is not a text; a live trial needs one")
    return Manifest(profile, kind, url, time_scale, document)


def target_in(manifest: Manifest) -> Target:
    """Where its calls go. Raises BadInput."""
    return target_in_manifest(manifest.document["target"])


def _not_one(origin: str, error: Exception) -> CannotBegin:
    what = f"{type(error).__name__}: {error}"[:200]
    return CannotBegin(f"{origin}: not the manifest of a trial ({what}); was it edited?")


def recordings(profile: Profile, folder: Path, time_scale: float) -> RecordedSource:
    """Where recorded tenants find their arrivals."""
    if not any(tenant.recorded for tenant in profile.tenants.values()):
        return no_recordings
    from harness.recorded.schedule import source

    found: RecordedSource = source(folder, time_scale)
    return found
