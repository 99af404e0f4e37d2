"""The declaration of an add-on: ``ADDON = AddOn(...)`` in its ``addon.py``.

This is for what the core must know before a session is configured, or what needs its own types; for
everything else an add-on implements hooks (``hookspecs.py``), like a user's ``conftest.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    import pytest

    from pytest_skillopt.edits.vetting import Refusal
    from pytest_skillopt.gate.engine import SequentialGate
    from pytest_skillopt.model.types import Role
    from pytest_skillopt.modes.plan import Expected
    from pytest_skillopt.options import Mode
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import Result, SkillResult, TaskRow
    from pytest_skillopt.search.extensions import Search
    from pytest_skillopt.settings import AddOnSettings
    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.skill.edits import Edit
    from pytest_skillopt.skill.lint import Severity
    from pytest_skillopt.suite.folders import SkillVersions
    from pytest_skillopt.suite.interrupts import Watchdog
    from pytest_skillopt.suite.rollouts import Rollout
    from pytest_skillopt.suite.runner import ConcurrentRunner
    from pytest_skillopt.suite.tasks import SkillTask

    Check = Callable[[Edit, str], Refusal | None]
    Commands = argparse._SubParsersAction[Any]
    Known = Callable[[str], bool]
    MakeRunner = Callable[
        [pytest.Session, SkillVersions, Callable[[Rollout], None], Watchdog, int, str],
        ConcurrentRunner,
    ]
    Rows = list[list[str]]
    Tasks = Sequence[SkillTask]


class AddOn(NamedTuple):
    """Contribution of an add-on; a field that is not given adds nothing. Tables are by name.

    It is a tuple because a dataclass takes four times as long to define, in many sessions.
    """

    settings: type[AddOnSettings] | None = None
    """Class of its settings; ``Settings.of`` returns their values."""
    modes: Sequence[Mode] = ()
    """Modes, each with its options."""
    marker: Mapping[str, tuple[Callable[[Any], bool], str]] = {}
    """Further arguments of the marker ``skill_task``: a check, and a noun for the error."""
    add_commands: Callable[[Commands], None] = lambda commands: None
    """Adds commands to ``pytest-skillopt``."""
    add_reading_commands: Callable[[Commands], None] = lambda commands: None
    """The same for commands that only read runs: they come first, and start without the others."""

    roles: Mapping[str, Role] = {}
    """Roles of the models that fixtures call, by the fixture."""
    concurrent_runner: MakeRunner | None = None
    """Makes the runner of a worker with more than one slot (``AddOnSettings.slots``) from session,
    versions, a function that delivers a rollout, watchdog, slots and the worker's name."""

    rules: Mapping[str, tuple[Severity, str]] = {}
    """Rules of the lint: severity and meaning."""
    faults: Callable[[Document, Document, Known], Iterable[tuple[str, str]]] = lambda *_: ()
    """Finds faults of these rules in a changed file: rule and excerpt. ``known`` tells if a text of
    the user holds a string."""
    edit_check: Callable[[Tasks, str], Check] | None = None
    """Made once for each training, from all tasks and the skill's text at the start: checks an edit
    and the text that it adds."""
    prompts: Path | None = None
    """Folder with templates of optimizer prompts, ``NAME.md`` each."""

    searches: Mapping[str, Callable[[], Search]] = {}
    """Further values of the setting ``search``, each called when it is chosen."""
    gates: Mapping[str, Callable[[], type[SequentialGate]]] = {}
    """The same for the setting ``gate``."""
    begun: Callable[[Run, Expected], None] = lambda run, plan: None
    """Called when a mode begins."""
    trained: Callable[[Run, SkillResult], SkillResult] = lambda run, result: result
    """Completes the result of each trained skill, accepted or not."""
    accepted: Callable[[Run, SkillResult, Document, Document], SkillResult] = (
        lambda run, result, before, after: result
    )
    """Completes the result of an accepted training before it is written."""

    reports: Mapping[str, Callable[[Result], str]] = {}
    """Reports of a run, by file; the first is named to readers who look for transcripts."""
    properties: Callable[[TaskRow], Sequence[tuple[str, str]]] = lambda row: ()
    """Properties of a task's test case in a JUnit file."""
