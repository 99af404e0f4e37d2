"""The hooks that a ``conftest.py``, a plugin or an add-on may implement.

The first result that is not None counts; without one the built-in behaviour applies. Only ``step``,
``opened``, ``notes`` and ``finished`` are called in every implementation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_skillopt import (
        Context,
        Gate,
        GateQuestion,
        InfraError,
        Model,
        Patch,
        Result,
        Role,
        SkillTask,
        StepRow,
        TaskRecord,
        Update,
    )


@pytest.hookspec(firstresult=True)
def pytest_skillopt_client(config: pytest.Config, role: Role) -> Model | None:
    """Return the model of a role (``target``, ``optimizer`` or ``judge``).

    Called once per process and role. The calls of such a model are neither cached nor counted
    against the spending caps, unless it does so itself; ``pytest_skillopt.chat_model`` makes one
    that does, for the project's own server (``example_project/conftest.py``):

        # conftest.py
        from pytest_skillopt import Completion


        class Canned:
            name, fingerprint, simulated = "canned:1", "1", True

            def complete(self, messages, *, sample, **details):
                return Completion(text="42")


        def pytest_skillopt_client(config, role):
            return Canned() if role == "target" else None
    """


@pytest.hookspec(firstresult=True)
def pytest_skillopt_classify_error(
    config: pytest.Config, exception: BaseException
) -> InfraError | None:
    """Classify an exception in a task as an infrastructure error, not a wrong answer.

    Return None to leave it to the next implementation. An exception that none classifies is a
    failure of the task:

        # conftest.py
        import sqlite3
        from pytest_skillopt import InfraError


        def pytest_skillopt_classify_error(config, exception):
            if isinstance(exception, sqlite3.OperationalError):
                return InfraError("setup", f"the database is busy: {exception}")
    """


@pytest.hookspec
def pytest_skillopt_step(config: pytest.Config, step: StepRow) -> None:
    """Observe a finished step of a training.

    ``step`` is the row that the report shows; changing it has no effect:

        # conftest.py
        def pytest_skillopt_step(config, step):
            with open("steps.txt", "a") as file:
                print(step.step, step.verdict, step.reason, file=file)
    """


@pytest.hookspec(firstresult=True)
def pytest_skillopt_prompt(config: pytest.Config, name: str) -> str | None:
    """Return the template of an optimizer prompt in place of the built-in one.

    ``name`` is the name of a file in a folder ``prompts`` of the package without ``.md``. The
    template may use the placeholders of the built-in text, and no others:

        # conftest.py
        def pytest_skillopt_prompt(config, name):
            if name == "reflect_failures":
                return "Propose at most $budget edits, one short sentence each, in French."
    """


@pytest.hookspec(firstresult=True)
def pytest_skillopt_reflect(
    config: pytest.Config, records: Sequence[TaskRecord], context: Context
) -> Sequence[Patch] | None:
    """Propose patches from the rollouts of train tasks (stage 2).

    ``records`` has one entry per task with its rollouts under the working skill; ``context`` holds
    that skill (``.document``), the settings, the memory and the edit budget. The default search
    expects that an edit helps most of the ``tasks`` that it names:

        # conftest.py
        from pytest_skillopt import Edit, Patch


        def pytest_skillopt_reflect(config, records, context):
            failing = tuple(r.task.id for r in records if r.failed)
            rule = "Answer with JSON only."
            edit = Edit("append", content=rule, reason="house rule", tasks=failing)
            return [Patch((edit,))]
    """


@pytest.hookspec(firstresult=True)
def pytest_skillopt_aggregate(
    config: pytest.Config, patches: Sequence[Patch], context: Context
) -> Patch | None:
    """Merge the patches of the analysts into one (stage 3).

    This example joins them without a model call:

        # conftest.py
        from pytest_skillopt import Patch


        def pytest_skillopt_aggregate(config, patches, context):
            return Patch(tuple(p for patch in patches for p in patch.edits))
    """


@pytest.hookspec(firstresult=True)
def pytest_skillopt_select(config: pytest.Config, patch: Patch, context: Context) -> Patch | None:
    """Keep at most ``context.budget`` edits, the best first (stage 4).

    The default search has no budget here: it asks with all edits of a round's replies, and leaves
    out those that are not returned:

        # conftest.py
        from dataclasses import replace


        def pytest_skillopt_select(config, patch, context):
            short = sorted(patch.edits, key=lambda p: len(p.content))
            return replace(patch, edits=tuple(short[: context.budget]))
    """


@pytest.hookspec(firstresult=True)
def pytest_skillopt_update(config: pytest.Config, patch: Patch, context: Context) -> Update | None:
    """Apply the patch to the working skill, ``context.document`` (stage 5).

    The result is an ``Update(document, applied, refused)``. The default search asks about one
    edit at a time, or about all that copy words of a task, and samples the applied edits, which
    have to make the document. This example turns appended text into a bullet:

        # conftest.py
        from dataclasses import replace
        from pytest_skillopt import update


        def bullet(edit):
            if edit.op != "append":
                return edit
            text = "- " + edit.content.removeprefix("- ")
            return replace(edit, content=text)


        def pytest_skillopt_update(config, patch, context):
            bullets = tuple(bullet(edit) for edit in patch.edits)
            return update(replace(patch, edits=bullets), context)
    """


@pytest.hookspec(firstresult=True)
def pytest_skillopt_gate(config: pytest.Config, question: GateQuestion) -> Gate | None:
    """Return the gate of one decision (stage 6): it asks for samples and ends in a verdict.

    ``question`` has the tasks and the options. None leaves the decision to the built-in gate. With
    the default settings, None for the first question means that only the final comparison decides
    (docs/gate.md). The final comparison, before the skill is written, does not call the hook:

        # conftest.py
        from dataclasses import replace
        from pytest_skillopt import open_gate


        def pytest_skillopt_gate(config, question):
            return open_gate(replace(question, name="strict"))
    """


@pytest.hookspec
def pytest_skillopt_opened(config: pytest.Config, tasks: Sequence[SkillTask]) -> str | None:
    """Return notes for the head of a run and its report, one a line.

    Called before anything is paid for:

        # conftest.py
        import os


        def pytest_skillopt_opened(config, tasks):
            return f"{len(tasks)} tasks on {os.environ.get('REGION', 'this machine')}"
    """


@pytest.hookspec
def pytest_skillopt_notes(config: pytest.Config, result: Result) -> str | None:
    """Return a note about a finished run for its report.

    The report is written afterwards:

        # conftest.py
        def pytest_skillopt_notes(config, result):
            slow = result.seconds > 3600
            return "it took more than an hour" if slow else f"it was a {result.mode} run"
    """


@pytest.hookspec
def pytest_skillopt_finished(config: pytest.Config, result: Result, folder: Path) -> None:
    """Act on a finished run, whose report has been written into ``folder``.

    For example, keep its status:

        # conftest.py
        def pytest_skillopt_finished(config, result, folder):
            (folder / "status.txt").write_text(result.status)
    """


@pytest.hookspec(firstresult=True)
def pytest_skillopt_agent(item: pytest.Item, skill: str) -> str | None:
    """Name the agents that a test runs, with their versions, such as ``codex 0.163.0, mine 2``.

    ``skill`` is the path of its skill file, relative to the root directory. The versions are part
    of a task's identity, so that an update of an agent is never mixed into a run, and the target
    model counts as used:

        # conftest.py
        def pytest_skillopt_agent(item):
            return "greeter 1.2" if "greeter" in item.fixturenames else None
    """
