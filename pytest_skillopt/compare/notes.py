"""Refusals of wrong names of versions, and notes and counts beside a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.compare import check, compare
from pytest_skillopt.compare.comparison import at_revision
from pytest_skillopt.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_skillopt import Result
    from pytest_skillopt.mode import Mode


def refuse_versions(config: pytest.Config, mode: Mode) -> None:
    """Refuse unknown versions before a worker is started."""
    named = mode.argument
    if mode.name == "try" and not (config.rootpath / named).exists():
        raise pytest.UsageError(f"--skillopt-try={named}: there is no such file or folder")
    if mode.name == "compare":
        compare.check_names(config)
    if mode.name == "check":
        # Any path: only the revision matters.
        at_revision(config.rootpath, "the project", named)


def notes_on_comparison(config: pytest.Config, result: Result) -> Iterator[str]:
    """Save the baseline if every task was measured."""
    wanted = config.getoption("skillopt_save_baseline") and result.status == "measured"
    rows = [row for skill in result.skills for row in skill.tasks]
    if wanted and all(row.before.n or row.skipped for row in rows):
        saved = check.write_baseline(config.rootpath, Settings.from_config(config).dir, result)
        yield f"the counts were saved in {saved}"
