"""``pytest --skillopt-compare A B``: does B do better than A?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.gate.gates import make_gate
from pytest_skillopt.modes.comparing import compared, decide, gate_options, gate_tasks
from pytest_skillopt.modes.revisions import RevisionError, named_skill

if TYPE_CHECKING:
    from pytest_skillopt.modes.display import Display
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import Result


def compare(run: Run, display: Display) -> Result:
    """Put two versions of the suite's one skill through the gate.

    Raises:
        pytest.UsageError: the suite has several skills, or a name that means nothing.
        StopRun: a cap, a fatal fault, or an interrupt.
    """
    if len(run.documents) != 1:
        named = ", ".join(run.documents)
        raise pytest.UsageError(
            f"--skillopt-compare is about one skill and these tasks are about several ({named}): "
            "choose some of them with -k or a path"
        )
    display.begin("comparison")
    (skill,) = run.documents
    first, second = run.mode.pair
    try:
        before = named_skill(run.root, run.home, skill, first)
        after = named_skill(run.root, run.home, skill, second)
    except RevisionError as error:
        raise pytest.UsageError(f"--skillopt-compare: {error}") from None
    if before.version == after.version:
        raise pytest.UsageError(
            f"--skillopt-compare: {first} and {second} are the same; "
            "--skillopt-aa compares a skill with itself"
        )
    tasks = run.tasks_of(skill)
    decided = decide(
        run,
        make_gate(run.settings.gate, gate_tasks(tasks), gate_options(run)),
        run.sampler.add_version(skill, before.data),
        run.sampler.add_version(skill, after.data),
    )
    result = compared(skill, before, after, decided, tasks)
    return run.result(result.status, result.reason, [result])
