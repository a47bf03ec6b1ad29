"""Deliberately wrong parts, and their healthy twins. Importing this package registers all of them."""

from __future__ import annotations

from stub_service.defects import fairness, refusals

__all__ = ["fairness", "refusals"]
