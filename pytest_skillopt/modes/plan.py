"""``--collect-only``: what a mode would do, and the most it could cost; no model is called."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.modes.skills import skills_of, split_tasks
from pytest_skillopt.report import words
from pytest_skillopt.run.directory import Home
from pytest_skillopt.search.searches import notes_on_search
from pytest_skillopt.suite.selection import describe_tasks, keep_tasks
from pytest_skillopt.suite.splits import BOTH, SPLITS, SplitError
from pytest_skillopt.untrusted import no_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_skillopt.mode import Mode
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.suite.tasks import SkillTask


class Plan:
    """Takes the place of the controller when pytest only collects."""

    def __init__(self, config: pytest.Config, mode: Mode, settings: Settings) -> None:
        self._config = config
        self._mode = mode
        self._settings = settings
        self._lines: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        others = keep_tasks(self._config, items)
        tasks = describe_tasks(self._config, self._settings, items)
        try:
            tasks, notes = split_tasks(tasks, self._settings.split, self._mode)
        except SplitError as error:
            raise pytest.UsageError(str(error)) from None
        home = Home(self._config.rootpath / self._settings.dir)
        self._lines = list(plan_lines(tasks, self._mode, self._settings, home, notes, others))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("skillopt plan")
        for line in self._lines:
            terminalreporter.write_line(no_command(line))


def plan_lines(
    tasks: Sequence[SkillTask],
    mode: Mode,
    settings: Settings,
    home: Home,
    notes: Sequence[str],
    others: int,
) -> Iterator[str]:
    """What would be measured and the upper bounds, one line each."""
    if not tasks:
        yield "no test is marked skill_task: nothing would be done"
        return
    for skill in skills_of(tasks):
        group = [task for task in tasks if task.skill == skill]
        splits = Counter(task.split for task in group)
        named = ", ".join(f"{splits[name]} {name}" for name in (*SPLITS, BOTH) if splits[name])
        yield f"{skill}: {words.plural(len(group), 'task')}" + (f" ({named})" if named else "")
        twins = sum(n for n in Counter(task.source for task in group).values() if n > 1)
        if twins:
            yield f"{twins} of them have the content of another: each draws replies of its own"
    if others:
        yield f"deselected, not marked skill_task: {others}"
    yield from notes
    if mode.name == "train":
        yield from notes_on_search(settings)
    from pytest_skillopt.modes.forecast import forecast, known_costs

    yield from forecast(tasks, mode, settings, known_costs(tasks, mode, settings, home))
