"""The hooks of a ``conftest.py`` or a plugin; ``docs/hooks.md`` shows each in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from pytest_skillopt import (
        ConcurrentRunner,
        Context,
        Edit,
        InfraError,
        LintRule,
        Mode,
        Model,
        Patch,
        Refusal,
        Result,
        Role,
        Rollout,
        RolloutRunner,
        Search,
        SequentialGate,
        Settings,
        SkillTask,
        StepRow,
        TaskRecord,
        Update,
        Watchdog,
    )


@pytest.hookspec
def pytest_skillopt_settings(config: pytest.Config) -> Mapping[str, Any] | None:
    """Return settings by their names, for those that no option and no ini key sets."""


@pytest.hookspec(firstresult=True)
def pytest_skillopt_client(config: pytest.Config, role: Role) -> Model | None:
    """Return the model of a role (``target``, ``optimizer``, ``judge`` or ``user``)."""


@pytest.hookspec(firstresult=True)
def pytest_skillopt_classify_error(
    config: pytest.Config, exception: BaseException
) -> InfraError | None:
    """Classify an exception in a task as an infrastructure error, not a wrong answer."""


@pytest.hookspec(firstresult=True)
def pytest_skillopt_prompt(config: pytest.Config, name: str) -> str | None:
    """Return the template of an optimizer prompt in place of the built-in one."""


@pytest.hookspec(firstresult=True)
def pytest_skillopt_reflect(
    config: pytest.Config, records: Sequence[TaskRecord], context: Context
) -> Sequence[Patch] | None:
    """Propose patches from the rollouts of train tasks (stage 2)."""


@pytest.hookspec(firstresult=True)
def pytest_skillopt_aggregate(
    config: pytest.Config, patches: Sequence[Patch], context: Context
) -> Patch | None:
    """Merge the patches of the analysts into one (stage 3)."""


@pytest.hookspec(firstresult=True)
def pytest_skillopt_select(config: pytest.Config, patch: Patch, context: Context) -> Patch | None:
    """Keep at most ``context.budget`` edits, the best first (stage 4)."""


@pytest.hookspec(firstresult=True)
def pytest_skillopt_update(config: pytest.Config, patch: Patch, context: Context) -> Update | None:
    """Apply the patch to the working skill, ``context.version`` (stage 5)."""


@pytest.hookspec
def pytest_skillopt_step(config: pytest.Config, step: StepRow) -> None:
    """Observe a finished step of a training."""


@pytest.hookspec
def pytest_skillopt_opened(config: pytest.Config, tasks: Sequence[SkillTask]) -> str | None:
    """Return notes for the head of a run and its report, one a line."""


@pytest.hookspec
def pytest_skillopt_task(item: pytest.Item, skill: str) -> Mapping[str, Any] | None:
    """Return fields of the task that a test is, by the names of ``SkillTask``."""


@pytest.hookspec
def pytest_skillopt_lint_rules() -> Sequence[LintRule] | None:
    """Return further rules on the text that a version of a skill adds."""


@pytest.hookspec
def pytest_skillopt_check_edit(
    tasks: Sequence[SkillTask], skill: str
) -> Callable[[Edit, str], Refusal | None] | None:
    """Return a check of each edit of a training, and of the text that it adds."""


@pytest.hookspec
def pytest_skillopt_searches() -> Mapping[str, Callable[[], Search]] | None:
    """Return further values of ``skillopt_search``: each makes its ``Search`` when it is chosen."""


@pytest.hookspec
def pytest_skillopt_rules() -> Mapping[str, Callable[[], type[SequentialGate]]] | None:
    """Return further values of ``skillopt_gate``: rules by which an edit is accepted."""


@pytest.hookspec
def pytest_skillopt_modes() -> Sequence[Mode] | None:
    """Return further modes. A plugin declares the option of each, ``--skillopt-NAME``."""


@pytest.hookspec(firstresult=True)
def pytest_skillopt_runner(
    runner: RolloutRunner,
    settings: Settings,
    watchdog: Watchdog,
    deliver: Callable[[Rollout], None],
) -> ConcurrentRunner | None:
    """Return a runner in place of a worker's own one, to run several rollouts at once."""


@pytest.hookspec
def pytest_skillopt_result(config: pytest.Config, result: Result) -> None:
    """Complete the result of a finished run before its report is written."""


@pytest.hookspec
def pytest_skillopt_report(config: pytest.Config, result: Result) -> Mapping[str, str] | None:
    """Return further reports of a run: texts by the names of their files in its folder."""


@pytest.hookspec
def pytest_skillopt_finished(config: pytest.Config, result: Result, folder: Path) -> None:
    """Act on a finished run, whose report has been written into ``folder``."""


@pytest.hookspec
def pytest_skillopt_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Add commands to ``pytest-skillopt``: ``handle`` maps the arguments to an exit code."""
