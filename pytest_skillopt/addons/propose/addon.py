"""Commands that publish or adopt a result, or train unattended; the proposal of a training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_skillopt.addon import AddOn
from pytest_skillopt.addons.later import Later
from pytest_skillopt.settings import AddOnSettings, setting

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from pytest_skillopt import Result
    from pytest_skillopt.addons.propose import commands
else:
    commands = Later("propose.commands")


@dataclass(frozen=True, slots=True)
class ProposeSettings(AddOnSettings):
    """Setting of the base branch for proposals."""

    propose_skills: str = setting(
        "", "skills that proposals may change (default: the skill)", many=","
    )


ADDON = AddOn(settings=ProposeSettings, add_commands=commands.add_commands)


def pytest_skillopt_finished(config: pytest.Config, result: Result, folder: Path) -> None:
    """Replace the project's proposal by that of a training, or remove it; leave a receipt."""
    if result.mode == "train":
        from pytest_skillopt.addons.propose.adopt import leave_receipt
        from pytest_skillopt.addons.propose.proposal import leave_proposal
        from pytest_skillopt.run.directory import Home

        home = Home(folder.parents[1])
        leave_proposal(config.rootpath, home, folder, result)
        if written := [skill for skill in result.skills if skill.written]:
            leave_receipt(home, result.run, written)
