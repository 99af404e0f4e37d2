"""Train a SKILL.md with your own pytest suite.

The names here are those that a user's tests and ``conftest.py`` may need; they are imported when
first used, so that an ordinary pytest run pays nothing for them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_skillopt.edits.patches import Patch
    from pytest_skillopt.edits.update import Update
    from pytest_skillopt.model.agent import Agent, Reply
    from pytest_skillopt.model.types import (
        CacheMiss,
        CapReached,
        Completion,
        Model,
        ModelFault,
        ToolCall,
        Usage,
    )
    from pytest_skillopt.models import chat_model
    from pytest_skillopt.search.parameters import TrialParameters
    from pytest_skillopt.search.stages import Stages
    from pytest_skillopt.search.trainer import Trainer
    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.skill.edits import Edit
    from pytest_skillopt.suite.context import Recorder, Skill
    from pytest_skillopt.suite.rollouts import InfraError, Rollout

__version__ = "0.1.0"

_NAMES = {
    "edits.patches": "Patch",
    "edits.update": "Update",
    "model.agent": "Agent Reply",
    "model.types": "CacheMiss CapReached Completion Model ModelFault ToolCall Usage",
    "models": "chat_model",
    "search.parameters": "TrialParameters",
    "search.stages": "Stages",
    "search.trainer": "Trainer",
    "skill.document": "Document",
    "skill.edits": "Edit",
    "suite.context": "Recorder Skill",
    "suite.rollouts": "InfraError Rollout",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = [
    "Agent",
    "CacheMiss",
    "CapReached",
    "Completion",
    "Document",
    "Edit",
    "InfraError",
    "Model",
    "ModelFault",
    "Patch",
    "Recorder",
    "Reply",
    "Rollout",
    "Skill",
    "Stages",
    "ToolCall",
    "Trainer",
    "TrialParameters",
    "Update",
    "Usage",
    "chat_model",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"pytest_skillopt.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'pytest_skillopt' has no attribute {name!r}")
