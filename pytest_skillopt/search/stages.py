"""The stages of a step as plain callables, so that each can be replaced by a few lines.

The built-in behaviour is the default of each; the plugin puts the user's hooks in their place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_skillopt.edits.aggregate import aggregate
from pytest_skillopt.edits.reflect import reflect
from pytest_skillopt.edits.select import select
from pytest_skillopt.edits.update import update
from pytest_skillopt.gate.gates import make_gate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_skillopt.edits.context import Context
    from pytest_skillopt.edits.proposals import Patch
    from pytest_skillopt.edits.records import TaskRecord
    from pytest_skillopt.edits.update import Update
    from pytest_skillopt.gate.gate import Gate
    from pytest_skillopt.gate.gate_options import GateOptions, GateTask


@dataclass(frozen=True, slots=True)
class GateQuestion:
    """One decision: on which tasks, by which rule, with what known before."""

    name: str
    tasks: tuple[GateTask, ...]
    options: GateOptions
    tape: Mapping[str, int]
    """Length of the incumbent's tape by task."""
    decision: str
    """Names the fresh streams of this decision."""
    decisions_before: int = 0


def open_gate(question: GateQuestion) -> Gate:
    """The built-in gate of that name."""
    return make_gate(
        question.name,
        question.tasks,
        question.options,
        tape=question.tape,
        decision=question.decision,
        decisions_before=question.decisions_before,
    )


@dataclass(frozen=True, slots=True)
class Stages:
    """Rollout is the sampler's; these are the other five, in their order."""

    reflect: Callable[[Sequence[TaskRecord], Context], Sequence[Patch]] = reflect
    aggregate: Callable[[Sequence[Patch], Context], Patch] = aggregate
    select: Callable[[Patch, Context], Patch] = select
    update: Callable[[Patch, Context], Update] = update
    gate: Callable[[GateQuestion], Gate | None] = lambda question: None
    """None leaves the decision to the built-in gate."""
