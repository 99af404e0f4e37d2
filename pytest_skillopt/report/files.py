"""The reports of a run as files in its directory."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

from pytest_skillopt.report.html import render_html
from pytest_skillopt.report.markdown import step_summary

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_skillopt.run.result import Result

RESULT, HTML, SUMMARY, PATCH = "result.json", "report.html", "summary.md", "skill.patch"

_MODE = 0o600
"""Transcripts may hold what no other user of the machine should read."""


def write_reports(directory: Path, result: Result) -> None:
    """Write ``result.json``, and what is rendered from it; the data first.

    Each file appears whole or not at all. A patch that an earlier attempt of the same run left
    behind is removed when nothing was changed.

    Raises:
        OSError: the directory cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    _write(directory / RESULT, result.dump() + "\n")
    _write(directory / HTML, render_html(result))
    _write(directory / SUMMARY, step_summary(result))
    patch = "".join(skill.patch for skill in result.skills)
    if patch:
        _write(directory / PATCH, patch)
    else:
        (directory / PATCH).unlink(missing_ok=True)


def _write(path: Path, text: str) -> None:
    """Replace a file atomically; line ends stay as they are."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8", "backslashreplace"))
            os.fchmod(file.fileno(), _MODE)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
