"""What a command writes for CI beside what it shows: the same options for `run`, `verify`, `burst`, `check` and `diff`.

Whether every file can be written is found out before anything is sent, not after a minute of trials.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from harness.errors import BadInput
from harness.report.annotations import github
from harness.report.junit import junit
from harness.report.markdown import markdown
from harness.report.results import Results

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
FILE: Any = click.Path(dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True)
class Outputs:
    """step_summary: where $GITHUB_STEP_SUMMARY points; None: not asked for."""

    junit: Path | None = None
    skip_inconclusive: bool = False
    markdown: Path | None = None
    step_summary: Path | None = None
    annotations: str | None = None

    @property
    def wanted(self) -> bool:
        return bool(self.junit or self.markdown or self.step_summary or self.annotations)

    def write(self, results: Results, as_json: bool = False) -> list[str]:
        """Writes what was asked for; a line for each file. as_json: standard output belongs to one document."""
        written = []
        try:
            if self.junit is not None:
                self.junit.write_bytes(junit(results, self.skip_inconclusive))
                written.append(f"junit   {self.junit}")
            if self.markdown is not None:
                self.markdown.write_text(markdown(results), encoding="utf-8", errors="backslashreplace")
                written.append(f"summary {self.markdown}")
            if self.step_summary is not None:
                with self.step_summary.open("a", encoding="utf-8", errors="backslashreplace") as file:
                    file.write(markdown(results) + "\n")
        except OSError as error:
            raise BadInput(f"{error.filename}: cannot be written ({error.strerror})") from None
        if self.annotations:
            for line in github(results):
                click.echo(line, err=as_json)
        return written


NONE = Outputs()


def outputs_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options, given to the command as one `outputs`."""

    @click.option("--junit", "junit_file", type=FILE, metavar="FILE", help="Write JUnit XML there, a case a check.")
    @click.option("--skip-inconclusive", is_flag=True, help="In JUnit, INCONCLUSIVE is skipped. The exit code stays 3.")
    @click.option("--markdown", "markdown_file", type=FILE, metavar="FILE",
                  help="Write a summary for a pull request there.")  # fmt: skip
    @click.option("--step-summary", is_flag=True, help=f"Append that summary to ${STEP_SUMMARY}.")
    @click.option("--annotations", type=click.Choice(["github"]),
                  help="Print a line for each check that did not PASS, as this CI shows them.")  # fmt: skip
    @functools.wraps(command)
    def with_outputs(
        *args: Any,
        junit_file: Path | None,
        skip_inconclusive: bool,
        markdown_file: Path | None,
        step_summary: bool,
        annotations: str | None,
        **kwargs: Any,
    ) -> Any:
        for path in (junit_file, markdown_file):
            must_be_writable(path)
        summary = _step_summary() if step_summary else None
        outputs = Outputs(junit_file, skip_inconclusive, markdown_file, summary, annotations)
        return command(*args, outputs=outputs, **kwargs)

    return with_outputs


def must_be_writable(path: Path | None) -> None:
    """Raises BadInput."""
    if path is None:
        return
    folder = path.parent
    if path.is_dir() or not folder.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise BadInput(f"{path}: cannot be written; give a file in a folder that exists and is writable")


def _step_summary() -> Path | None:
    """Outside of a CI job there is none: said, and no reason to stop, so that a job's steps run anywhere."""
    where = os.environ.get(STEP_SUMMARY)
    if not where:
        click.echo(f"note: --step-summary: {STEP_SUMMARY} is not set, so there is no summary to append to", err=True)
        return None
    must_be_writable(Path(where))
    return Path(where)
