"""The hooks that a ``conftest.py``, a plugin or an add-on may implement.

A hook that is ``firstresult`` decides something: the first implementation that returns something
else than None counts, and if none does, the built-in behaviour. All others are told something.
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
        Skill,
        SkillTask,
        StepRow,
        TaskRecord,
        Update,
    )


@pytest.hookspec(firstresult=True)
def pytest_skillopt_client(config: pytest.Config, role: Role) -> Model | None:
    """Return the model of a role (``target``, ``optimizer`` or ``judge``).

    Called once a process and role. The calls of such a model are neither cached nor counted against
    the spending caps, unless it does so itself; ``pytest_skillopt.chat_model`` makes one that does,
    for a server of the project's own (``example_project/conftest.py``)::

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
    """Say that an exception in a task is an infrastructure error, not a wrong answer.

    Return None to leave it to the next implementation; in the end it is a failure of the task::

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

    ``step`` is the row that the report shows; nothing can be changed here::

        # conftest.py
        def pytest_skillopt_step(config, step):
            with open("steps.txt", "a") as file:
                print(step.step, step.verdict, step.reason, file=file)
    """


@pytest.hookspec(firstresult=True)
def pytest_skillopt_prompt(config: pytest.Config, name: str) -> str | None:
    """Return the template of an optimizer prompt in place of the built-in one.

    ``name`` is that of a file in ``pytest_skillopt/edits/prompts`` without ``.md``; the
    placeholders of the built-in text may be used, and no others::

        # conftest.py
        def pytest_skillopt_prompt(config, name):
            if name == "reflect_failures":
                return "Propose at most $budget edits, one short sentence each, in French."
    """


@pytest.hookspec(firstresult=True)
def pytest_skillopt_reflect(
    config: pytest.Config, records: Sequence[TaskRecord], context: Context
) -> Sequence[Patch] | None:
    """Stage 2: from the rollouts of train tasks to proposed patches.

    ``records`` has one entry a task with its rollouts under the working skill; ``context`` holds
    that skill (``.document``), the settings, the memory and the edit budget. In the search
    ``trials`` an edit is tried on the ``tasks`` that it names::

        # conftest.py
        from pytest_skillopt import Edit, Patch

        def pytest_skillopt_reflect(config, records, context):
            failing = tuple(r.task.id for r in records if r.failed)
            rule = "Answer with JSON alone."
            edit = Edit("append", content=rule, reason="house rule", tasks=failing)
            return [Patch((edit,))]
    """


@pytest.hookspec(firstresult=True)
def pytest_skillopt_aggregate(
    config: pytest.Config, patches: Sequence[Patch], context: Context
) -> Patch | None:
    """Stage 3: merge the patches of the analysts into one.

    This one joins them without a model call::

        # conftest.py
        from pytest_skillopt import Patch

        def pytest_skillopt_aggregate(config, patches, context):
            return Patch(tuple(p for patch in patches for p in patch.edits))
    """


@pytest.hookspec(firstresult=True)
def pytest_skillopt_select(config: pytest.Config, patch: Patch, context: Context) -> Patch | None:
    """Stage 4: keep at most ``context.budget`` edits, the best first.

    The search ``trials`` has no budget here: it asks with all edits that wait, tries them in the
    order of the answer, and keeps what is left out for a later round::

        # conftest.py
        from dataclasses import replace

        def pytest_skillopt_select(config, patch, context):
            short = sorted(patch.edits, key=lambda p: len(p.content))
            return replace(patch, edits=tuple(short[: context.budget]))
    """


@pytest.hookspec(firstresult=True)
def pytest_skillopt_update(config: pytest.Config, patch: Patch, context: Context) -> Update | None:
    """Stage 5: apply the patch to the working skill, ``context.document``.

    The document of the answer is what counts, ``Update(document, applied, refused)``, however it
    was made. The search ``trials`` asks about one edit at a time and tries what the document
    changes; several changed places are one edit. This one makes a bullet of what is appended::

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
    """Stage 6: the gate of one decision: asks for draws, is told samples, ends in a verdict.

    ``question`` has the tasks, the options and the length of the current skill's tape. None leaves
    the decision to the built-in gate. Under a small cap the hook is asked once before the training
    begins: where it answers None, there may be no gate on the way (docs/gate.md). The final
    comparison before the skill is written is not asked for here::

        # conftest.py
        from dataclasses import replace
        from pytest_skillopt import open_gate

        def pytest_skillopt_gate(config, question):
            return open_gate(replace(question, name="strict"))
    """


@pytest.hookspec
def pytest_skillopt_opened(config: pytest.Config, tasks: Sequence[SkillTask]) -> str | None:
    """Return a note for the head of a run and its report, before anything is paid for::

    # conftest.py
    import os

    def pytest_skillopt_opened(config, tasks):
        return f"{len(tasks)} tasks on {os.environ.get('REGION', 'this machine')}"
    """


@pytest.hookspec
def pytest_skillopt_notes(config: pytest.Config, result: Result) -> str | None:
    """Return a note about a run that has ended, for its report, which is written after it::

    # conftest.py
    def pytest_skillopt_notes(config, result):
        slow = result.seconds > 3600
        return "it took more than an hour" if slow else f"it was a {result.mode} run"
    """


@pytest.hookspec
def pytest_skillopt_finished(config: pytest.Config, result: Result, folder: Path) -> None:
    """Leave something of a run. Its report is written, into ``folder``::

    # conftest.py
    def pytest_skillopt_finished(config, result, folder):
        (folder / "status.txt").write_text(result.status)
    """


@pytest.hookspec(firstresult=True)
def pytest_skillopt_agent(item: pytest.Item, source: str, skill: str) -> str | None:
    """Name the agents that a test runs, with their versions, such as ``codex 0.163.0, mine 2``.

    ``source`` is the test's source, ``skill`` the path of its skill file, relative to the root
    directory. The versions are part of what identifies a task, so that an update is never mixed
    into a run, and the target counts as used::

        # conftest.py
        def pytest_skillopt_agent(item, source):
            return "greeter 1.2" if "greeter(" in source else None
    """


@pytest.hookspec(firstresult=True)
def pytest_skillopt_proxy_url(config: pytest.Config, skill: Skill) -> str | None:
    """Return what ``skill.proxy_url`` gives: the base URL of a server that calls the target model::

    # conftest.py
    def pytest_skillopt_proxy_url(config, skill):
        return "http://127.0.0.1:8080"
    """
