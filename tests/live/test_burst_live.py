"""`overload burst` against a service of one's own: who is watched is hurt, or is not, and the exit code says which."""

from __future__ import annotations

import json

import pytest

from tests.live.awkward import OK, serving
from tests.unit.test_cli import overload

pytestmark = pytest.mark.live

REFUSED = (
    b"HTTP/1.1 429 X\r\nRetry-After: 1\r\nContent-Type: application/json\r\nContent-Length: 23\r\n\r\n"
    b'{"outcome":"throttled"}'
)
RUNAWAY, IN_BURST = "3", range(300, 300 + 900)


def service(fair):
    """Refuses in the burst: the one that runs away, or everybody."""
    at = {"burst": False}

    async def behave(connection):
        tenant, _, seq = connection.request.headers.get("overload-call", "").partition(".")
        if tenant == RUNAWAY:
            at["burst"] = int(seq) in IN_BURST
        refused = at["burst"] and (tenant == RUNAWAY or not fair)
        await connection.answer(REFUSED if refused else OK)
        return True

    return behave


def judged(tmp_path, fair):
    with serving(service(fair)) as server:
        done = overload(
            "burst", "--target", server.url, "--tenant", "D", "--rate", "300/s", "--for", "3s", "--ordinary-rate",
            "100/s", "--reports", tmp_path, "--json",
        )  # fmt: skip
    (made,) = json.loads(done.stdout)["trials"]
    return done.returncode, {one["check"]: one["word"] for one in made["verdicts"]}


@pytest.mark.parametrize("fair", [False, True])
def test_the_others_are_hurt_or_not(tmp_path, fair):
    code, words = judged(tmp_path, fair)
    if words["trial.on_time"] == "INVALID":
        code, words = judged(tmp_path, fair)
    # So few calls on a busy machine may leave open whether latency moved; never that somebody was refused.
    assert words["fairness.ordinary_unmoved"] in (("PASS", "INCONCLUSIVE") if fair else ("FAIL",))
    assert code in ((0, 3) if fair else (1,))
