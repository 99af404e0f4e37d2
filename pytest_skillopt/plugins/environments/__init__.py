"""Environments of skillrl and SkillOpt as tests, with one task for each item; rates by kind.

::

    from pytest_skillopt.plugins.environments import tasks_of

    test_qa = tasks_of(MyEnv())
"""

from __future__ import annotations

from collections import defaultdict
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

    from pytest_skillopt import Result
    from pytest_skillopt.plugins.environments.config import prompts_of
    from pytest_skillopt.plugins.environments.environments import reflect_with, tasks_of
    from pytest_skillopt.run.result import Arm

__all__ = ["prompts_of", "reflect_with", "tasks_of"]


def __getattr__(name: str) -> Any:
    """Import a name when it is used: the plugin is loaded in every session."""
    if name not in __all__:
        raise AttributeError(name)
    module = "config" if name == "prompts_of" else "environments"
    return getattr(import_module(f"{__name__}.{module}"), name)


def pytest_skillopt_result(config: pytest.Config, result: Result) -> None:
    """Note the pass rates by ``kind=`` of the marker, if the tasks have any."""
    from pytest_skillopt.report.figures import move

    kinds: dict[str, list[tuple[Arm, Arm | None]]] = defaultdict(list)
    for row in (row for skill in result.skills for row in skill.tasks):
        for mark in row.marks:
            if mark.startswith("kind=") and (row.before.n or (row.after and row.after.n)):
                kinds[mark.removeprefix("kind=")].append((row.before, row.after))
    said = [
        f"{kind} {move(_rate(b for b, _ in arms), _rate(a for _, a in arms))} ({len(arms)})"
        for kind, arms in sorted(kinds.items())
    ]
    if said:
        result.notes.append(f"pass rates by kind of task (tasks): {', '.join(said)}")


def _rate(arms: Iterable[Arm | None]) -> float | None:
    rates = [arm.passed / arm.n for arm in arms if arm is not None and arm.n]
    return sum(rates) / len(rates) if rates else None
