"""Commands that publish or adopt a result, or train unattended; the proposal of a training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_skillopt.addons.later import later
from pytest_skillopt.settings import setting

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from pytest_skillopt import Result


@dataclass(frozen=True, slots=True)
class ProposeSettings:
    """Setting of the base branch for proposals."""

    propose_skills: str = setting(
        "", "skills that proposals may change (default: the skill)", many=","
    )


SETTINGS = ProposeSettings
add_commands = later("propose.commands:add_commands")


def pytest_skillopt_finished(config: pytest.Config, result: Result, folder: Path) -> None:
    """Replace the project's proposal by that of a training, or remove it."""
    if result.mode == "train":
        from pytest_skillopt.addons.propose.proposal import leave_proposal
        from pytest_skillopt.run.directory import Home

        leave_proposal(config.rootpath, Home(folder.parents[1]), folder, result)
