"""docs/your_service.md, "What lies behind": a shop that tries again by itself is named; one that does not passes."""

from __future__ import annotations

import shutil
import sys

import pytest

from harness.checks.verdict import Word
from tests.real.services import EXAMPLES, example, running, stub

pytestmark = pytest.mark.live
V05 = "v05.one_retry_owner"


@pytest.mark.parametrize(("attempts", "word"), [(2, Word.FAIL), (1, Word.PASS)])
def test_the_shop_behind_which_dependencies_stand(tmp_path, attempts, word):
    one = example("your_service", tmp_path)
    shutil.copy(EXAMPLES / "retrying_proxy" / "profile.yaml", one.folder)
    command = [sys.executable, str(one.folder / "shop.py"), "--port", str(one.ports["8086"])]
    command += ["--dependencies", f"http://{one.address(9000)}", "--attempts", str(attempts)]
    with stub(one, dependencies_only=True), running(command, one.address(8086), one.folder):
        verdict = one.drive("behind.yaml")[V05]
    assert verdict.word is word, verdict.sentence
    if word is Word.FAIL:
        assert "a layer between the caller and the dependency (target shop-behind)" in verdict.sentence
        assert "which calls itself '1.1 shop'" in verdict.sentence
