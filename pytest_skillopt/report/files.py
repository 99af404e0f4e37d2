"""The files of a finished run: its result, and the reports rendered from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.run.directory import PAGE, PATCH, RESULT, SUMMARY, replace_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_skillopt.run.result import Result


def write_result(directory: Path, result: Result) -> None:
    """Write ``result.json`` atomically.

    Raises:
        OSError: the directory cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    replace_file(directory / RESULT, f"{result.dump()}\n".encode())


def write_reports(directory: Path, result: Result, more: Mapping[str, str] = {}) -> None:
    """Write the reports that are rendered from a result, and ``more`` by name.

    Each file is written atomically. If nothing changed, the patch of an earlier attempt of the same
    run is removed.

    Raises:
        OSError: the directory cannot be written.
    """
    from pytest_skillopt.report.markdown import render_summary
    from pytest_skillopt.report.page import render_html

    texts = {
        **more,
        PAGE: render_html(result),
        SUMMARY: render_summary(result),
        PATCH: "".join(skill.patch for skill in result.skills),
    }
    for name, text in texts.items():
        if text:
            replace_file(directory / name, text.encode("utf-8", "backslashreplace"))
        else:
            (directory / name).unlink(missing_ok=True)
