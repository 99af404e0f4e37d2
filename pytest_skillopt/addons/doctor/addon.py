"""Plan of ``--collect-only``, and notes on the tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.addon import AddOn
from pytest_skillopt.options import Mode
from pytest_skillopt.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_skillopt import SkillTask


def pytest_configure(config: pytest.Config) -> None:
    """With a mode on, show its plan if pytest only collects."""
    if not config.option.collectonly or hasattr(config, "workerinput"):
        return
    if mode := Mode.from_config(config):
        from pytest_skillopt.addons.doctor.plan import Plan

        plan = Plan(config, mode, Settings.from_config(config))
        config.pluginmanager.register(plan, "skillopt-plan")


def pytest_skillopt_opened(config: pytest.Config, tasks: Sequence[SkillTask]) -> str | None:
    """Note what makes a training of these tasks hopeless or blind."""
    mode = Mode.from_config(config)
    if not mode or mode.name != "train":
        return None
    from pytest_skillopt.addons.doctor.plan import notes_on_tasks

    return "\n".join(notes_on_tasks(tasks, Settings.from_config(config)))


ADDON = AddOn()
