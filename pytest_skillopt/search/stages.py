"""The stages of a step as plain callables, so that each can be replaced by a few lines.

The built-in behaviour is the default of each; the plugin puts the user's hooks in their place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_skillopt.edits.combine import aggregate, select
from pytest_skillopt.edits.reflect import reflect
from pytest_skillopt.edits.update import update
from pytest_skillopt.gate.data import GateOptions, GateTask
from pytest_skillopt.gate.gates import gate_class
from pytest_skillopt.search.registry import added_search

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_skillopt.edits.material import Context
    from pytest_skillopt.edits.patches import Patch
    from pytest_skillopt.edits.records import TaskRecord
    from pytest_skillopt.edits.update import Update
    from pytest_skillopt.gate.engine import Gate
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.suite.tasks import SkillTask


@dataclass(frozen=True, slots=True)
class GateQuestion:
    """One decision: on which tasks, by which rule, with what known before."""

    name: str
    tasks: tuple[GateTask, ...]
    options: GateOptions
    tape: Mapping[str, int] = field(default_factory=dict)
    """Length of the incumbent's tape by task."""
    decision: str = "1"
    """Names the fresh streams of this decision."""
    decisions_before: int = 0


def gate_tasks(tasks: Iterable[SkillTask]) -> list[GateTask]:
    """What a gate has to know of tasks."""
    return [GateTask(task.id, task.must_pass, task.trigger) for task in tasks]


def gate_options(settings: Settings) -> GateOptions:
    """The gate's share of the settings."""
    return GateOptions(
        metric=settings.metric,
        rollouts=settings.rollouts,
        alpha=settings.gate_alpha,
        k0=settings.gate_k0,
        kc=settings.gate_kc,
        kmax=settings.gate_kmax,
        margin=settings.gate_margin,
        alpha_run=settings.gate_alpha_run,
        veto=settings.gate_veto,
        most=settings.final_rollouts,
        max_error_rate=settings.max_error_rate,
    )


def configured_gate(settings: Settings, tasks: Sequence[GateTask]) -> Gate:
    """The gate of the settings for one decision on these tasks."""
    return make_gate(settings.gate, tasks, gate_options(settings))


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


def make_gate(
    name: str, tasks: Sequence[GateTask], options: GateOptions | None = None, **known: Any
) -> Gate:
    """A gate by its name, a value of the setting ``gate``.

    Args:
        known: ``tape``, ``decision`` and ``decisions_before`` of ``SequentialGate``.

    Raises:
        ValueError: an unknown name, or a task that is there twice.
    """
    return gate_class(name)(tasks, options, **known)


@dataclass(frozen=True, slots=True)
class Stages:
    """Rollout is the sampler's; these are the other five, in their order."""

    reflect: Callable[[Sequence[TaskRecord], Context], Sequence[Patch]] = reflect
    aggregate: Callable[[Sequence[Patch], Context], Patch] = aggregate
    select: Callable[[Patch, Context], Patch] = select
    update: Callable[[Patch, Context], Update] = update
    gate: Callable[[GateQuestion], Gate | None] = lambda question: None
    """None leaves the decision to the built-in gate."""


def builtin_stages(settings: Settings) -> Stages:
    """Those of the search that the settings ask for."""
    search = added_search(settings)
    return search.stages() if search else Stages()
