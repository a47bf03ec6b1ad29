"""What the live tests share."""

from __future__ import annotations

import pytest

from tests.conftest import lock_of
from tests.live import driving
from tests.live.target_trials import TOKENS


@pytest.fixture(scope="session", autouse=True)
def _lock(tmp_path_factory):
    driving.lock = lock_of(tmp_path_factory)


@pytest.fixture
def shop_tokens(monkeypatch):
    """What the target files of target_trials.py find in the environment."""
    for name, token in TOKENS.items():
        monkeypatch.setenv(f"SHOP_TOKEN_{name}", token)
