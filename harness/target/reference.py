"""Every key of a target file: `python -m harness.target.reference` prints docs/reference/target.md.

How: harness/profile/reference.py.
"""

from __future__ import annotations

from harness.profile.reference import Page, markdown
from harness.target.meanings import MEANINGS
from harness.target.schema import target_schema

INTRO = """\
# Every key of a target file

Made from the models that read target files; `python -m harness.target.reference` prints it. How such a file is written,
with examples of every key: [targets.md](../targets.md). A pointer is a JSON pointer, such as `/error/code`. Texts that
may hold `{name}` take one of call, attempt, tenant, seq, round, due_ms, uuid, or a name of `data`; `{{` is a brace.
"""


def target_page() -> Page:
    return Page(INTRO, "TargetFile", target_schema(), MEANINGS)


if __name__ == "__main__":
    print(markdown(target_page()), end="")
