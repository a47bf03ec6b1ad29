"""Errors that a person can act on. The commands turn them into one message and an exit code; nothing else does."""

from __future__ import annotations


class BadInput(Exception):
    """Nothing was sent. The message says where, what, the rule and the remedy. Exit code 2."""


class TrialBroken(Exception):
    """The trial began and cannot be trusted (a child died, the target went away). Exit code 4."""
