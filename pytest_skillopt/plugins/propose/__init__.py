"""Commands that publish or adopt a result, or train unattended; the proposal of a training."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from pathlib import Path
    from typing import Any

    import pytest

    from pytest_skillopt import Result


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "skills that proposals may change (default: the skill)"
    parser.addini("skillopt_propose_skills", text, type="linelist", default=None)


def pytest_skillopt_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the commands."""
    from pytest_skillopt.plugins.propose.commands import add_commands

    add_commands(commands)


def pytest_skillopt_finished(result: Result, folder: Path) -> None:
    """Replace the project's proposal by that of a training, or remove it; leave a receipt."""
    if result.mode == "train":
        from pytest_skillopt.plugins.propose.adopt import write_receipt
        from pytest_skillopt.plugins.propose.proposal import write_proposal
        from pytest_skillopt.run.directory import Home

        home = Home(folder.parents[1])
        write_proposal(home, folder, result)
        if written := [skill for skill in result.skills if skill.written]:
            write_receipt(home, result.run, written)
