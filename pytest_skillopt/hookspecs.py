"""The hooks that a user's ``conftest.py`` may implement.

All but the observers are ``firstresult``: the first implementation that returns something else than
None decides, and the built-in behaviour is the last one asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.model.types import Model, Role
    from pytest_skillopt.optimizer.context import Context
    from pytest_skillopt.optimizer.gate import Gate
    from pytest_skillopt.optimizer.proposals import Patch
    from pytest_skillopt.optimizer.records import TaskRecord
    from pytest_skillopt.optimizer.stages import GateQuestion
    from pytest_skillopt.optimizer.update import Update
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


@pytest.hookspec(firstresult=True)
def pytest_skillopt_reflect(
    config: pytest.Config, records: Sequence[TaskRecord], context: Context
) -> Sequence[Patch] | None:
    """Stage 2: from the rollouts of train tasks to proposed patches.

    ``records`` has one entry a task with its rollouts under the working skill; ``context`` holds
    that skill (``.document``), the settings, the memory and the edit budget::

        # conftest.py
        from pytest_skillopt import Edit, Patch, Proposal

        def pytest_skillopt_reflect(config, records, context):
            failing = tuple(r.task.id for r in records if r.failed)
            edit = Edit(op="append", target="", content="Answer with JSON alone.")
            return [Patch((Proposal(edit, reason="house rule", tasks=failing),))]
    """


@pytest.hookspec(firstresult=True)
def pytest_skillopt_aggregate(
    config: pytest.Config, patches: Sequence[Patch], context: Context
) -> Patch | None:
    """Stage 3: merge the patches of the analysts into one::

    # conftest.py
    from pytest_skillopt import Patch

    def pytest_skillopt_aggregate(config, patches, context):
        return Patch(tuple(p for patch in patches for p in patch.proposals))
    """


@pytest.hookspec(firstresult=True)
def pytest_skillopt_select(config: pytest.Config, patch: Patch, context: Context) -> Patch | None:
    """Stage 4: keep at most ``context.budget`` proposals::

    # conftest.py
    from dataclasses import replace

    def pytest_skillopt_select(config, patch, context):
        short = sorted(patch.proposals, key=lambda p: len(p.edit.content))
        return replace(patch, proposals=tuple(short[: context.budget]))
    """


@pytest.hookspec(firstresult=True)
def pytest_skillopt_update(config: pytest.Config, patch: Patch, context: Context) -> Update | None:
    """Stage 5: apply the patch to the working skill::

    # conftest.py
    from pytest_skillopt.optimizer.update import update

    def pytest_skillopt_update(config, patch, context):
        done = update(patch, context)
        print("refused:", len(done.refusals))
        return done
    """


@pytest.hookspec(firstresult=True)
def pytest_skillopt_gate(config: pytest.Config, question: GateQuestion) -> Gate | None:
    """Stage 6: the gate of one decision: asks for draws, is told samples, ends in a verdict.

    ``question`` has the tasks, the options and the length of the current skill's tape::

        # conftest.py
        from dataclasses import replace
        from pytest_skillopt.optimizer.stages import open_gate

        def pytest_skillopt_gate(config, question):
            return open_gate(replace(question, name="confirm"))
    """
