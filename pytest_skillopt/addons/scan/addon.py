"""Add-on ``skillopt_scan``: an external scanner has to accept each new version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.addon import AddOn
from pytest_skillopt.addons.later import Later
from pytest_skillopt.settings import AddOnSettings, Settings, setting

if TYPE_CHECKING:
    from pytest_skillopt import Document
    from pytest_skillopt.addons.scan import scanner
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import SkillResult
else:
    scanner = Later("scan.scanner")


@dataclass(frozen=True, slots=True)
class ScanSettings(AddOnSettings):
    """Settings of the add-on."""

    scan: str = setting("", "command that scans the folder {skill} before a write")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a command that cannot be run, if the mode judges new versions."""
    from pytest_skillopt.options import Mode

    mode = Mode.from_config(config)
    if not mode or not mode.splits or hasattr(config, "workerinput"):
        return
    if command := Settings.from_config(config).of(ScanSettings).scan:
        from pytest_skillopt.skill.document import SkillError

        try:
            scanner.check_command(command, config.rootpath)
        except SkillError as error:
            raise pytest.UsageError(str(error)) from error


def _vetted(run: Run, result: SkillResult, after: Document) -> SkillResult:
    """Scan a version of a skill; reject it if the scanner does."""
    command = run.settings.of(ScanSettings).scan
    if not command:
        return result
    said = scanner.scan_candidate(command, run.root, result.path, after)
    result = result.model_copy(update={"scan": said})
    refused = {"status": "rejected", "reason": said.why, "after": result.before}
    return result.model_copy(update=refused) if said.why else result


ADDON = AddOn(settings=ScanSettings, vetted=_vetted, vet_folder=scanner.scan_candidate)
