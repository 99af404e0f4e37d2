"""Fixtures for a coding agent and its folder; imports happen when one is used."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_skillopt import Skill
    from pytest_skillopt.addons.harness.agent import HarnessAgent


@pytest.fixture
def _skillopt_workspace(tmp_path: Path) -> Path:
    """Make the folder of ``workspace``; a project's own fixture cannot override this name."""
    path = tmp_path / "work"
    path.mkdir()
    return path


@pytest.fixture
def workspace(_skillopt_workspace: Path) -> Path:
    """Return an empty folder in which the agent of ``skill_harness`` works."""
    return _skillopt_workspace


@pytest.fixture
def skill_harness(
    request: pytest.FixtureRequest, _skillopt_skill: Skill, _skillopt_workspace: Path
) -> HarnessAgent:
    """Run a coding agent with the skill installed, e.g. ``skill_harness("Fix the bug")``."""
    check_system()
    from pytest_skillopt.addons.harness.binding import make_agent
    from pytest_skillopt.fixtures import without_traceback
    from pytest_skillopt.suite.context import recorder

    with without_traceback():
        return make_agent(request, _skillopt_skill, recorder(request), _skillopt_workspace)


@pytest.fixture
def skill_proxy(request: pytest.FixtureRequest, _skillopt_skill: Skill) -> Iterator[str]:
    """Return the base URL, without ``/v1``, of a proxy to the target model, for your own agent.

    It needs no key, counts the calls, enforces the caps, distinguishes infrastructure errors from
    wrong answers, and notes whether the skill's body reached the model.
    """
    from pytest_skillopt.addons.harness.binding import serving
    from pytest_skillopt.fixtures import without_traceback
    from pytest_skillopt.suite.context import recorder

    with contextlib.ExitStack() as stack:
        with without_traceback():
            url = stack.enter_context(serving(request.config, _skillopt_skill, recorder(request)))
        yield url


def check_system() -> None:
    """Raise UsageError on a system on which no coding agent can be confined and ended."""
    if os.name == "nt":
        raise pytest.UsageError(
            "skill_harness runs coding agents on Linux and macOS only, because Windows has no way "
            "to confine and to end them safely: run these tests in WSL, or leave them out with "
            "--ignore or -k"
        )
