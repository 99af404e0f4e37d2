"""A task: what the trainer knows of a test that carries the ``skill_task`` marker."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class SkillTask:
    """Plain data, so that it can be sent from the worker that collected it."""

    id: str
    """Node id."""
    source: str = ""
    """SHA-256 of the test function's source and of its parameters; the id where it is empty."""
    skill: str = "SKILL.md"
    """Path of the skill file relative to the root directory, with ``/``."""
    group: str = ""
    """Tasks of one group always lie in one split; the id where it is empty."""
    split: str = ""
    """``train``, ``val``, ``test`` or ``both``; empty until the splits are assigned."""
    rollouts: int | None = None
    min_pass_rate: float | None = None
    must_pass: bool = False
    contract: str = ""
    """What the task fixes about the answer; the optimizer is told to leave it."""
    doc: str = ""
    """Docstring of the test function: what the optimizer is told the task is about."""
    roles: tuple[str, ...] = ()
    """Roles whose model the test uses through a fixture: ``target``, ``judge``."""
    text: str = ""
    """Source of the test function and representation of its parameters (bounded), for the leak
    check; never shown to the optimizer."""

    def __post_init__(self) -> None:
        for name in ("source", "group"):
            if not getattr(self, name):
                object.__setattr__(self, name, self.id)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SkillTask:
        return cls(**{**data, "roles": tuple(data.get("roles", ()))})
