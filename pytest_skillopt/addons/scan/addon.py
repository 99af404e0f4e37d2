"""Add-on ``skillopt_scan``: an external scanner has to accept each new version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.addons.later import later
from pytest_skillopt.settings import Settings, setting

if TYPE_CHECKING:
    from pytest_skillopt import Document
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import SkillResult


@dataclass(frozen=True, slots=True)
class ScanSettings:
    """Settings of the add-on."""

    scan: str = setting("", "command that scans the folder {skill} before a write")


SETTINGS = ScanSettings
vet_folder = later("scan.scanner:scan")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a command that cannot be run, if the mode judges new versions."""
    from pytest_skillopt.options import Mode

    mode = Mode.from_config(config)
    if not mode or not mode.splits or hasattr(config, "workerinput"):
        return
    if command := Settings.from_config(config).of(ScanSettings).scan:
        from pytest_skillopt.addons.scan.scanner import check_command
        from pytest_skillopt.skill.document import SkillError

        try:
            check_command(command, config.rootpath)
        except SkillError as error:
            raise pytest.UsageError(str(error)) from error


def vetted(run: Run, result: SkillResult, after: Document) -> SkillResult:
    """Scan a version of a skill; reject it if the scanner does."""
    command = run.settings.of(ScanSettings).scan
    if not command:
        return result
    from pytest_skillopt.addons.scan.scanner import scan_candidate

    said = scan_candidate(command, run.root, result.path, after)
    result = result.model_copy(update={"scan": said})
    refused = {"status": "rejected", "reason": said.why, "after": result.before}
    return result.model_copy(update=refused) if said.why else result
