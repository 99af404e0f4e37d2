"""The hooks that a user's ``conftest.py`` may implement.

All but the observers are ``firstresult``: the first implementation that returns something else than
None decides, and the built-in behaviour is the last one asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_skillopt.model.types import Model, Role
    from pytest_skillopt.report.result import StepRow
    from pytest_skillopt.suite.rollouts import InfraError


@pytest.hookspec(firstresult=True)
def pytest_skillopt_client(config: pytest.Config, role: Role) -> Model | None:
    """Return the model of a role (``target``, ``optimizer`` or ``judge``).

    Called once a process and role. The model's calls are then not counted against the spending
    caps and not cached, unless it does so itself::

        # conftest.py
        from pytest_skillopt import Completion

        class Canned:
            name, fingerprint, simulated = "canned:1", "1", True

            def complete(self, messages, *, sample, stage="", task="", tools=(),
                         response_format=None):
                return Completion(text="42")

        def pytest_skillopt_client(config, role):
            return Canned() if role == "target" else None
    """


@pytest.hookspec(firstresult=True)
def pytest_skillopt_classify_error(
    config: pytest.Config, exception: BaseException
) -> InfraError | None:
    """Say that an exception in a task is an infrastructure error, not a wrong answer.

    Return None to leave it to the next implementation; in the end it is a failure of the task::

        # conftest.py
        from pytest_skillopt import InfraError

        def pytest_skillopt_classify_error(config, exception):
            if isinstance(exception, ConnectionRefusedError):
                return InfraError("setup", f"the database is down: {exception}")
    """


@pytest.hookspec
def pytest_skillopt_step(config: pytest.Config, step: StepRow) -> None:
    """Observe a finished step of a training::

    # conftest.py
    def pytest_skillopt_step(config, step):
        with open("steps.txt", "a") as file:
            file.write(f"{step.step} {step.verdict}\\n")
    """


@pytest.hookspec(firstresult=True)
def pytest_skillopt_prompt(config: pytest.Config, name: str) -> str | None:
    """Return the template of an optimizer prompt in place of the built-in one.

    ``name`` is that of a file in ``pytest_skillopt/optimizer/prompts`` without ``.md``; the
    placeholders of the built-in text must stay::

        # conftest.py
        def pytest_skillopt_prompt(config, name):
            if name == "preferences":
                return "Write for readers who have never seen an invoice."
    """
