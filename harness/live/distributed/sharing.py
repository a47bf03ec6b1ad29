"""Each worker gets its share before the trial begins: manifest, parts, and the recorded arrivals of its tenants.

Never sends a token, and no share before every worker has joined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gevent
import orjson

from harness.live.distributed import wire
from harness.live.distributed.measuring import looks
from harness.live.distributed.members import Member
from harness.live.manifest import CannotBegin, Manifest
from harness.workload.dealing import deal, items_of

PREPARE_S = 60.0
FILE_PIECE = 256 << 10
_NOT_TOLD = ("plan", "ended")

Tell = Callable[[Member, str, dict[str, Any]], None]


def hand_out(
    members: Sequence[Member], manifest: Manifest, plan: Mapping[str, Mapping[str, int]], folder: Path, tell: Tell
) -> None:
    """members: in the order in which they are dealt to. Raises CannotBegin."""
    shares = deal(items_of(manifest.profile, plan), len(members))
    document = orjson.dumps({key: value for key, value in manifest.document.items() if key not in _NOT_TOLD})
    for place, (member, share) in enumerate(zip(members, shares, strict=True)):
        member.share = share
        if not member.local:
            _ship_recordings(member, manifest, folder, tell)
        parts = {name: list(part) for name, part in share.parts.items()}
        tell(member, wire.PLAN, {"manifest": document, "parts": parts, "place": place, "of": len(shares)})


def _ship_recordings(member: Member, manifest: Manifest, folder: Path, tell: Tell) -> None:
    for name in member.share.parts:
        recorded = manifest.profile.tenants[name].recorded
        if recorded is None:
            continue
        places = [folder / recorded.file, folder / "schedule" / recorded.file]
        path = next((place for place in places if place.is_file()), None)
        if path is None:
            raise CannotBegin(f"{places[0]}: no such schedule file; write it with overload replay")
        with path.open("rb") as file:
            first = True
            while (data := file.read(FILE_PIECE)) or first:
                tell(member, wire.FILE, {"name": recorded.file, "data": data, "first": first})
                first = False
                gevent.sleep(0)


def wait_until_prepared(members: Sequence[Member], stopped: Callable[[], bool]) -> None:
    """Raises CannotBegin with what a worker lacks, or with who does not answer."""
    for _ in looks(PREPARE_S):
        refused = [member for member in members if member.prepared]
        if refused:
            raise CannotBegin(f"worker {refused[0].name}: {refused[0].prepared}")
        if stopped() or all(member.prepared == "" for member in members):
            return
    late = ", ".join(member.name for member in members if member.prepared is None)
    raise CannotBegin(f"not ready within {PREPARE_S:g} s: {late}; nothing was sent")
