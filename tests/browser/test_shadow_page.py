"""The page of a what-if in a real browser: it draws, it fetches nothing, and hostile names stay text."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.shadow import policies
from harness.shadow.figures import tried
from harness.shadow.page import page
from tests.browser.chromium import BINARY, visit
from tests.browser.test_report_page import INK, SIZES, STATE
from tests.unit.test_shadow import burst, traffic

pytestmark = [pytest.mark.browser, pytest.mark.skipif(BINARY is None, reason="there is no chromium on this machine")]

HOSTILE = "</script><script>document.title='hit'</script>"


def test_it_draws_offline_and_hostile_names_stay_text(tmp_path: Path) -> None:
    found = traffic(burst(400), tenants=(HOSTILE, "shop"), refused=(5, 6))
    specs = ("shared_fifo:queue=3", "fair_queues:queue=3", "tenant_cap:queue=3,cap=1")
    path = tmp_path / "shadow.html"
    path.write_text(page(found, [tried(found, policies.parse(spec), 4) for spec in specs], [], "What if", "as given"))
    seen = visit(path, (STATE, INK, "document.title", "document.body.innerText", SIZES))
    state, ink, title, text, sizes = seen.values
    assert (seen.requests, seen.faults, state["errors"]) == ([], [], "")
    assert (state["charts"], len(ink)) == ("3", 3)
    assert all(colours > 3 for colours in ink)
    assert title == "What if – overload"
    assert HOSTILE in text
    assert "refused in the log" in text
    assert sizes["page"] <= sizes["window"]
