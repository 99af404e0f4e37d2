"""What every stage is told of where the training stands."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_skillopt.edits.calls import Calls
    from pytest_skillopt.edits.memory import Memory
    from pytest_skillopt.edits.vetting import Vetting
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.skill.document import Document


UNBOUNDED = 10**6
"""A budget that clips nothing, for a search that tries edits one by one."""


@dataclass(frozen=True, slots=True)
class Context:
    """The working skill, the step, and the means of a stage."""

    document: Document
    settings: Settings
    calls: Calls
    memory: Memory
    vetting: Vetting
    preferences: str = ""
    """House rules of the user, a prior of every analyst."""
    contracts: tuple[str, ...] = ()
    """What the train tasks fix about their answers."""
    step: int = 0
    epoch: int = 1
    budget: int = 4
    """Edits that an analyst may propose, a merge may leave and an update may apply."""
    minibatch: int = 8
    """Rollouts an analyst sees at once."""
    repeat: int = 1
    """Calls for each minibatch, each with another draw."""
    draw: int = 0
    """Number of the first draw; candidates raced in one step differ in it."""
    room: int = field(default=0)
    """Largest skill in tokens of about four characters; 0: no bound."""

    @property
    def label(self) -> str:
        """Stable prefix of the sample labels of this step's calls."""
        return f"step {self.step}"

    def at(self, **changes: Any) -> Context:
        return replace(self, **changes)

    def random(self, purpose: str) -> random.Random:
        """A generator that depends on the seed, the step and the purpose alone."""
        return random.Random(f"{self.settings.seed}/{self.step}/{purpose}")
