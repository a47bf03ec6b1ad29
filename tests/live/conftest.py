"""What the live tests share."""

from __future__ import annotations

import pytest

from tests.conftest import lock_of
from tests.live import driving


@pytest.fixture(scope="session", autouse=True)
def _lock(tmp_path_factory):
    driving.lock = lock_of(tmp_path_factory)
