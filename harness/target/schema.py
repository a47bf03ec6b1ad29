"""The JSON Schema of target files, generated from the models that validate (model.py), so that it cannot drift."""

from __future__ import annotations

from typing import Any

from harness.profile.schema import DIALECT, tell, tidy
from harness.target.meanings import MEANINGS
from harness.target.model import TargetFile


def target_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a target file."""
    schema = TargetFile.model_json_schema(by_alias=True)
    tidy(schema)
    tell(schema, "TargetFile", MEANINGS)
    schema["title"] = "overload target"
    return {"$schema": DIALECT, **schema}
