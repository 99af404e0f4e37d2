"""The fixtures of a task.

They work the same in a rollout and in an ordinary run (the skill is the file on disk and nothing is
recorded). Imports happen when a fixture is used. No fixture requests another by a public name, so
that a project may define its own ``skill`` or ``rollout``.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_skillopt.model.agent import Agent
    from pytest_skillopt.model.tools import Tool
    from pytest_skillopt.rollouts.context import Recorder, Skill


@pytest.fixture(scope="session")
def _skillopt_skill(request: pytest.FixtureRequest) -> Skill:
    """Provide the skill under test under a name that no project uses for its own fixture."""
    from pytest_skillopt.rollouts.context import Skill, current
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.skill.read import read_version
    from pytest_skillopt.skill.trained import Trained
    from pytest_skillopt.skill.version import Version
    from pytest_skillopt.tasks.task import selected_skill

    with without_traceback():
        refuse_windows()
    running = current(request.config)
    config = request.config
    if running is not None:
        found = Version.unpack(running.content)
        folder = running.skill_dir
        file = running.request.skill
    else:
        with without_traceback():
            path = selected_skill(request)
            trained = Trained.of(Settings.from_config(config))
            found = read_version(path, config.rootpath, trained)
            folder = path.parent
            file = Path(os.path.relpath(path, config.rootpath)).as_posix()

    main = found.main
    texts = {name: text.text for name, text in found.files.items()}
    return Skill(main.text, main.body, folder, main.name, found.digest, file, texts)


@pytest.fixture(scope="session")
def skill(_skillopt_skill: Skill) -> Skill:
    """Provide the skill under test: .text, .body, .path, .name, .version, .memory."""
    return _skillopt_skill


@pytest.fixture
def rollout(request: pytest.FixtureRequest) -> Recorder:
    """Record a rollout: .index, .seed, .key, .target, .score(x), .feedback(text), .record(), ..."""
    from pytest_skillopt.rollouts.context import recorder

    return recorder(request)


@pytest.fixture(scope="session")
def _skillopt_skill_agent(
    request: pytest.FixtureRequest, _skillopt_skill: Skill
) -> tuple[str, list[Tool]]:
    """Provide the system prompt of ``skill_agent`` and the tool that reads the skill's files."""
    from pytest_skillopt.skill.read import reader

    tools = []
    for read in reader(_skillopt_skill.path, request.config.rootpath):
        # Pydantic is slow to import, and may be missing on another machine.
        from pytest_skillopt.model.tools import make_tool

        tools.append(make_tool(read))
    text = _skillopt_skill.body if tools else _skillopt_skill.text
    return "\n\n".join(filter(None, [_skillopt_skill.memory, text])), tools


@pytest.fixture
def skill_agent(
    request: pytest.FixtureRequest, _skillopt_skill_agent: tuple[str, list[Tool]]
) -> Agent:
    """Call the target model with the skill as system prompt.

    ``skill_agent(prompt)`` returns a ``Reply``. For a skill with files in references/, scripts/ or
    assets/ the system prompt is the body, and the model has a tool that reads those files. A
    memory document that is trained with the skill stands before it.
    """
    from pytest_skillopt.model.agent import Agent
    from pytest_skillopt.model.roles import Models
    from pytest_skillopt.rollouts.context import model_of_test, recorder

    running = recorder(request)
    system, own_tools = _skillopt_skill_agent
    with without_traceback():
        models = Models.of(request.config)
        return Agent(
            model_of_test(running.request, models, "target"),
            system=system,
            sample=running.request.sample,
            stage=running.request.stage,
            task=request.node.nodeid,
            record=running.record,
            on_usage=running.add_usage,
            max_turns=models.settings.max_turns,
            own_tools=own_tools,
        )


def refuse_windows() -> None:
    """Raise UsageError on a system that has no locks, signals and timers of POSIX."""
    if os.name == "nt":
        raise pytest.UsageError("skillopt runs on Linux and macOS; on Windows run it in WSL")


@contextlib.contextmanager
def without_traceback() -> Iterator[None]:
    """Turn a wrong configuration into a failure of the test, without a traceback."""
    from pytest_skillopt.errors import UserError

    try:
        yield
    except (pytest.UsageError, UserError) as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None
