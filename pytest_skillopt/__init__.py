"""Train a SKILL.md with your own pytest suite.

The public names for tests and a ``conftest.py``. They are imported when
first used, so that an ordinary pytest run pays nothing for them.

PYTEST_DONT_REWRITE: a command has imported it when it starts a session.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_skillopt.edits.combine import Patch as Patch
    from pytest_skillopt.edits.context import Context as Context
    from pytest_skillopt.edits.records import TaskRecord as TaskRecord
    from pytest_skillopt.edits.update import Update as Update
    from pytest_skillopt.edits.update import update as update
    from pytest_skillopt.edits.vetting import Refusal as Refusal
    from pytest_skillopt.gate.engine import SequentialGate as SequentialGate
    from pytest_skillopt.mode import Mode as Mode
    from pytest_skillopt.model.agent import Agent as Agent
    from pytest_skillopt.model.agent import Reply as Reply
    from pytest_skillopt.model.roles import chat_model as chat_model
    from pytest_skillopt.model.types import CacheMiss as CacheMiss
    from pytest_skillopt.model.types import CapReached as CapReached
    from pytest_skillopt.model.types import Completion as Completion
    from pytest_skillopt.model.types import Model as Model
    from pytest_skillopt.model.types import ModelFault as ModelFault
    from pytest_skillopt.model.types import Role as Role
    from pytest_skillopt.model.types import ToolCall as ToolCall
    from pytest_skillopt.model.types import Usage as Usage
    from pytest_skillopt.rollouts.context import Recorder as Recorder
    from pytest_skillopt.rollouts.context import Skill as Skill
    from pytest_skillopt.rollouts.interrupts import Watchdog as Watchdog
    from pytest_skillopt.rollouts.rollout import InfraError as InfraError
    from pytest_skillopt.rollouts.rollout import Rollout as Rollout
    from pytest_skillopt.rollouts.runner import ConcurrentRunner as ConcurrentRunner
    from pytest_skillopt.rollouts.runner import RolloutRunner as RolloutRunner
    from pytest_skillopt.run.result import Result as Result
    from pytest_skillopt.run.result import StepRow as StepRow
    from pytest_skillopt.search.extensions import Search as Search
    from pytest_skillopt.search.extensions import Stages as Stages
    from pytest_skillopt.search.trainer import Trainer as Trainer
    from pytest_skillopt.search.trainer import train as train
    from pytest_skillopt.settings import Settings as Settings
    from pytest_skillopt.skill.edits import Edit as Edit
    from pytest_skillopt.skill.lint import LintRule as LintRule
    from pytest_skillopt.skill.text import Text as Text
    from pytest_skillopt.skill.version import Version as Version
    from pytest_skillopt.tasks.task import SkillTask as SkillTask

    __version__: str

_NAMES = {
    "edits.combine": "Patch",
    "edits.context": "Context",
    "edits.records": "TaskRecord",
    "edits.update": "Update update",
    "edits.vetting": "Refusal",
    "gate.engine": "SequentialGate",
    "mode": "Mode",
    "model.agent": "Agent Reply",
    "model.types": "CacheMiss CapReached Completion Model ModelFault Role ToolCall Usage",
    "model.roles": "chat_model",
    "run.result": "Result StepRow",
    "search.extensions": "Search Stages",
    "search.trainer": "Trainer train",
    "settings": "Settings",
    "skill.text": "Text",
    "skill.version": "Version",
    "skill.edits": "Edit",
    "skill.lint": "LintRule",
    "rollouts.context": "Recorder Skill",
    "rollouts.interrupts": "Watchdog",
    "rollouts.rollout": "InfraError Rollout",
    "rollouts.runner": "ConcurrentRunner RolloutRunner",
    "tasks.task": "SkillTask",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"pytest_skillopt.{_HOMES[name]}"), name)
    if name == "__version__":
        return import_module("importlib.metadata").version("pytest-skillopt")
    raise AttributeError(f"module 'pytest_skillopt' has no attribute {name!r}")
