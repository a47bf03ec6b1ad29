"""The JSON Schema of target files, generated from the models that validate (model.py), so that it cannot drift."""

from __future__ import annotations

from typing import Any

from harness.profile.schema import DIALECT, tidy
from harness.target.model import TargetFile


def target_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a target file."""
    schema = TargetFile.model_json_schema(by_alias=True)
    tidy(schema)
    schema["title"] = "overload target"
    return {"$schema": DIALECT, **schema}
