"""The replaceable parts of a training: the search, its stages, and the gate.

The stages are plain callables; ``Stages.hooked`` puts the implementations of a user's hooks in
their place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pytest_skillopt.edits.aggregate import aggregate
from pytest_skillopt.edits.combine import select
from pytest_skillopt.edits.reflect import reflect
from pytest_skillopt.edits.update import update
from pytest_skillopt.gate.data import GateOptions, GateTask
from pytest_skillopt.gate.sequential import DefaultGate
from pytest_skillopt.plugins import hooks, merged
from pytest_skillopt.search.budget import most_of_search

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    import pytest

    from pytest_skillopt.edits.combine import Patch
    from pytest_skillopt.edits.context import Context
    from pytest_skillopt.edits.records import TaskRecord
    from pytest_skillopt.edits.update import Update
    from pytest_skillopt.gate.engine import SequentialGate
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.tasks.task import SkillTask


class RunsSearch(Protocol):
    """A search over one training's state."""

    def run(self) -> str:
        """Search to the end and say why it ended; StopRun if something else ends it."""
        ...


@dataclass(frozen=True, slots=True)
class Search:
    """A search: by default that of the package, else one that a plugin brings.

    Args:
        most: from the tasks to rollouts and optimizer calls at most; by default those of the
            default search.
        make: makes it over a ``search.state.TrainingState``; None for the default search.
        stages: returns the ``Stages`` that it takes.
        rule: decides in it and in its final comparison; in place of the default one, which leaves
            the decisions within a search to the gate of the settings.
        prompts: folder with its templates of optimizer prompts, ``NAME.md`` each.
    """

    most: Callable[[Sequence[SkillTask], Settings], tuple[int, int]] = most_of_search
    make: Callable[..., RunsSearch] | None = None
    stages: Callable[[], Stages] = lambda: Stages()
    rule: type[SequentialGate] = DefaultGate
    prompts: Path | None = None

    @property
    def asks_the_gate(self) -> bool:
        """Whether the gate of the settings decides on its candidates."""
        return self.make is not None and self.rule is DefaultGate


def search_of(settings: Settings) -> Search:
    """Return the search of the settings; ValueError if there is none of this name."""
    known: dict[str, Callable[[], Search]]
    known = {"trials": Search, **merged(hooks().pytest_skillopt_searches())}
    if settings.search not in known:
        raise ValueError(
            f"there is no search {settings.search!r}; the searches are {', '.join(known)}"
        )
    return known[settings.search]()


def notes_on_search(settings: Settings) -> Iterator[str]:
    """List the settings that have no effect in the search that is chosen."""
    idle = [
        known.name
        for known, value in settings.fields()
        if value != known.default and known.metadata["search"] not in ("", settings.search)
    ]
    if idle:
        yield f"skillopt_published: only --skillopt-search=batch follows {', '.join(idle)}"


def gate_tasks(tasks: Iterable[SkillTask]) -> list[GateTask]:
    """Describe tasks to a gate."""
    return [GateTask(task.id, task.must_pass, task.trigger) for task in tasks]


def gate_options(settings: Settings) -> GateOptions:
    """Select the settings that a gate follows."""
    return GateOptions(
        metric=settings.metric,
        rollouts=settings.rollouts,
        alpha=settings.gate_alpha,
        most=settings.final_rollouts,
        max_error_rate=settings.max_error_rate,
    )


def rule_of(gate: str) -> type[SequentialGate]:
    """Return the rule of a gate by its name, a value of the setting; ValueError if it is none."""
    gates: dict[str, Callable[[], type[SequentialGate]]]
    gates = {DefaultGate.name: lambda: DefaultGate, **merged(hooks().pytest_skillopt_rules())}
    if gate not in gates:
        raise ValueError(f"there is no gate {gate!r}; the gates are {', '.join(gates)}")
    return gates[gate]()


def make_gate(
    name: str,
    tasks: Sequence[GateTask],
    options: GateOptions | None = None,
    *,
    decision: int | str = 1,
) -> SequentialGate:
    """Make a gate by its name, a value of the setting ``gate``.

    Args:
        name: the gate's name.
        tasks: its tasks.
        options: its options; None for the defaults.
        decision: names the fresh streams of this decision.

    Raises:
        ValueError: an unknown name, or a task that is there twice.
    """
    return rule_of(name)(tasks, options, decision=decision)


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of a step after the rollouts, in their order; each can be replaced."""

    reflect: Callable[[Sequence[TaskRecord], Context], Sequence[Patch]] = reflect
    aggregate: Callable[[Sequence[Patch], Context], Patch] = aggregate
    select: Callable[[Patch, Context], Patch] = select
    update: Callable[[Patch, Context], Update] = update
    prompt: Callable[[str], str | None] = lambda name: None
    """Returns the template of a prompt by its name; None leaves it to the built-in one."""

    @classmethod
    def of(cls, settings: Settings) -> Stages:
        """Return the stages of the search that the settings choose."""
        return search_of(settings).stages()

    @classmethod
    def hooked(cls, config: pytest.Config, settings: Settings) -> Stages:
        """Return these stages, each behind its hook if anybody implements that."""
        builtin = cls.of(settings)

        def stage(name: str, *names: str) -> Callable[..., Any]:
            hook = getattr(config.hook, f"pytest_skillopt_{name}")
            own: Callable[..., Any] = getattr(builtin, name)
            if not hook.get_hookimpls():
                return own

            def ask(*values: Any) -> Any:
                found = hook(config=config, **dict(zip(names, values, strict=True)))
                return own(*values) if found is None else found

            return ask

        return cls(
            reflect=stage("reflect", "records", "context"),
            aggregate=stage("aggregate", "patches", "context"),
            select=stage("select", "patch", "context"),
            update=stage("update", "patch", "context"),
            prompt=lambda name: config.hook.pytest_skillopt_prompt(config=config, name=name),
        )
