"""Checks of an edit before any sample is spent on it: fit, lint, and what plugins check."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from pytest_skillopt.errors import UserError
from pytest_skillopt.plugins import hooks
from pytest_skillopt.run.result import WarningRow
from pytest_skillopt.skill.edits import apply
from pytest_skillopt.skill.folder import file_names
from pytest_skillopt.skill.lint import Linter, additions, allowed, refused, stands_in, warned
from pytest_skillopt.skill.text import SkillError
from pytest_skillopt.skill.trained import Trained
from pytest_skillopt.skill.version import EMPTY, SKILL_FILE, changes
from pytest_skillopt.tasks.splits import train_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_skillopt.settings import Settings
    from pytest_skillopt.skill.edits import Edit
    from pytest_skillopt.skill.lint import Finding
    from pytest_skillopt.skill.version import Version
    from pytest_skillopt.tasks.task import SkillTask

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refused edit, and the reason."""

    edit: Edit
    why: str
    terms: tuple[str, ...] = ()
    """Words for which it is refused; it may be proposed once more without them."""
    detail: str = ""
    """Further reason, only for the report: the optimizer never sees it."""


class Vetting:
    """The checks, with the tasks and settings that they need.

    Args:
        tasks: all tasks of the suite, hidden ones too; only words that an edit already holds leave
            this object.
        start: the skill at the start; its words are the user's own.
        settings: the settings.
        skill: path of the skill, relative to ``root``.
        root: the root directory; None if the skill is not on disk.

    Raises:
        SkillError: ``skillopt_lint_allow`` names a rule that does not exist.
    """

    def __init__(
        self,
        tasks: Sequence[SkillTask],
        start: Version,
        settings: Settings,
        skill: str = SKILL_FILE,
        root: Path | None = None,
    ) -> None:
        self._trained = Trained.of(settings)
        self._description = settings.train_description
        words = "\n\n".join(text.text for text in start.values())
        self._checks = hooks().pytest_skillopt_check_edit(tasks=tasks, skill=words)
        present = None
        if root is not None and (root / skill).is_file():
            present = frozenset(file_names(root / skill, root))
        linter = Linter(
            allow=allowed(settings.lint_allow),
            max_tokens=settings.max_skill_tokens,
            known=stands_in(*(task.text for task in train_of(tasks))),
            present=present,
            description=self._description,
        )
        self._lint = functools.lru_cache(maxsize=1 << 10)(linter.check)

    def try_edit(self, version: Version, edit: Edit) -> Version | Refusal:
        """Apply an edit, or refuse it."""
        if edit.field == "description" and not self._description:
            return Refusal(edit, "the description is not trained (skillopt_train_description)")
        try:
            if edit.file not in version:
                self._trained.check(edit.file)
            after = apply(version, edit)
        except SkillError as error:
            return Refusal(edit, str(error))
        if _repeats(version, edit):
            return Refusal(edit, "the document already says this")
        return self.check(version, after, edit)

    def check(self, before: Version, after: Version, edit: Edit) -> Version | Refusal:
        """Check a change of the skill, however it was made."""
        if findings := refused(self._lint(before, after)):
            same_rule = groupby(findings[:3], key=attrgetter("rule", "message"))
            return Refusal(edit, "; ".join(_explain(list(group)) for _, group in same_rule))
        changed = changes(before, after).values()
        added = "\n\n".join(additions(old.text, new.text) for old, new in changed)
        for check in self._checks:
            refusal = check(edit, added)
            if isinstance(refusal, Refusal):
                return refusal
            if refusal is not None:
                kind = type(refusal).__name__
                said = f"a check of pytest_skillopt_check_edit returned {kind}"
                raise UserError(f"{said}: a Refusal or None is expected (docs/hooks.md)")
        return after

    def warnings(self, before: Version, after: Version) -> list[WarningRow]:
        """List allowed parts of a change that its reader should check."""
        return [
            WarningRow(rule=found.rule, message=found.message, excerpt=found.excerpt)
            for found in warned(self._lint(before, after))
        ]


def _explain(findings: Sequence[Finding]) -> str:
    """State a rule with all its excerpts."""
    excerpts = ", ".join(dict.fromkeys(f.excerpt for f in findings if f.excerpt))
    return f"{replace(findings[0], excerpt=excerpts)} ({findings[0].rule})"


def _repeats(version: Version, edit: Edit) -> bool:
    """Check if its file already holds an addition word for word."""
    if not edit.adds:
        return False
    added = edit.content
    said = version.get(edit.file, EMPTY).body
    return f" {_words(added)} " in f" {_words(said)} "


def _words(text: str) -> str:
    return " ".join(_WORD.findall(text.casefold()))
