"""Where the profiles and pages that come with overload are.

In a checkout they lie at its top, where people read them. A wheel carries them within the package (pyproject.toml),
because nothing else of it has a place that is sure to be its own. Reads no file: it only says where one is.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_IN_A_WHEEL = _PACKAGE / "_shipped"
_ROOT = _IN_A_WHEEL if _IN_A_WHEEL.is_dir() else _PACKAGE.parent

PROFILES = _ROOT / "profiles"
VERIFICATION = PROFILES / "verification"
"""A profile for each situation, and in `defects/` one for each defect that those do not show."""
PAGES_OF_CHECKS = _ROOT / "docs" / "checks"


def shown(path: Path) -> str:
    """A path as someone can type it here: short below this folder, else whole."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
