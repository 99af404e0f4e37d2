"""The edits that may be tried: what was proposed, and what trials have shown of it so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.edits.patches import say_the_same, unite
from pytest_skillopt.search.trial import Trial

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_skillopt.edits.memory import Memory
    from pytest_skillopt.skill.edits import Edit


class Pool:
    """One trial an edit. One that says the same as another adds to its support."""

    def __init__(self, memory: Memory, tries: int) -> None:
        """Args:
        tries: lost trials in earlier runs after which an edit is not tried in this one.
        """
        self._memory = memory
        self._tries = tries
        self.trials: list[Trial] = []
        self._spent: list[Edit] = []

    def known(self, edit: Edit) -> Trial | None:
        """The trial of an edit that says the same."""
        return next((t for t in self.trials if say_the_same(t.line, edit)), None)

    def is_spent(self, edit: Edit) -> bool:
        """Whether it joined or was given up in this run, or lost often enough in earlier ones."""
        if any(say_the_same(spent, edit) for spent in self._spent):
            return True
        earlier = self._memory.earlier(edit)
        return earlier is not None and earlier.status == "lost" and earlier.times >= self._tries

    def add(self, edit: Edit) -> Trial:
        """Let an edit wait for its trial, or add to the support of one that says the same."""
        trial = self.known(edit)
        if trial is None:
            trial = Trial([edit])
            self.trials.append(trial)
        else:
            trial.lines = (unite([trial.line, edit]),)
        return trial

    def remove(self, lines: Iterable[Edit]) -> None:
        """Edits that are not to be tried again."""
        keys = {line.key for line in lines}
        self._spent += [trial.line for trial in self.trials if trial.line.key in keys]
        self.trials = [trial for trial in self.trials if trial.line.key not in keys]

    def reopen(self, tasks: Iterable[str]) -> None:
        """The working skill has changed for these tasks: what they asked for may help now."""
        for task in tasks:
            for trial in self.trials:
                trial.forget(task)
