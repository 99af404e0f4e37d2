"""Checks of an edit before any sample is spent on it: fit, lint, and what add-ons check."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_skillopt.addons import declared
from pytest_skillopt.skill.diff import added_blocks
from pytest_skillopt.skill.document import SkillError
from pytest_skillopt.skill.edits import apply
from pytest_skillopt.skill.files import Trained
from pytest_skillopt.skill.lint import allowed, lint, refused, stands_in, warned

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.skill.edits import Edit
    from pytest_skillopt.skill.lint import Finding
    from pytest_skillopt.suite.tasks import SkillTask

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
        allow: lint rules that do not apply, with commas between them.
        max_tokens: largest document, in tokens of about four characters; 0: no bound.
        skill: text of the skill at the start.
        present: paths of the files in the skill's folder, if they are known.
        trained: the files that are trained.
        description: True if the description is trained.
        beside: characters of the names and descriptions of the project's other skills.

    Raises:
        SkillError: ``allow`` names a rule that does not exist.
    """

    def __init__(
        self,
        tasks: Sequence[SkillTask],
        *,
        allow: str = "",
        max_tokens: int = 0,
        skill: str = "",
        present: Container[str] | None = None,
        trained: Trained | None = None,
        description: bool = False,
        beside: int = 0,
    ) -> None:
        self._trained, self._description = trained or Trained(), description
        self._checks = [make(tasks, skill) for make in declared("edit_check")]
        self._lint = functools.partial(
            lint,
            allow=allowed(allow),
            max_tokens=max_tokens,
            known=stands_in(*(t.text for t in tasks if t.split in ("train", "both"))),
            present=present,
            description=description,
            beside=beside,
        )

    def try_edit(self, document: Document, edit: Edit) -> Document | Refusal:
        """Apply an edit, or refuse it."""
        if edit.field == "description" and not self._description:
            return Refusal(edit, "the description is not trained (skillopt_train_description)")
        try:
            if edit.file not in document.names:
                self._trained.check(edit.file)
            after = apply(document, edit)
        except SkillError as error:
            return Refusal(edit, str(error))
        if _repeats(document, edit):
            return Refusal(edit, "the document already says this")
        return self.check(document, after, edit)

    def check(self, before: Document, after: Document, edit: Edit) -> Document | Refusal:
        """Check a change of the document, however it was made."""
        if findings := refused(self._lint(before, after)):
            return Refusal(edit, "; ".join(f"{found} ({found.rule})" for found in findings[:3]))
        added = "\n\n".join(
            block
            for name in after.names
            for block in added_blocks(before.file(name).text, after.file(name).text)
        )
        refusals = (check(edit, added) for check in self._checks)
        return next(filter(None, refusals), after)

    def warnings(self, before: Document, after: Document) -> list[Finding]:
        """List allowed parts of a change that its reader should check."""
        return warned(self._lint(before, after))


def _repeats(document: Document, edit: Edit) -> bool:
    """Check if the document already holds an addition word for word."""
    if not edit.adds:
        return False
    added = " ".join(_WORD.findall(edit.content.casefold()))
    return f" {added} " in f" {' '.join(_WORD.findall(document.file(edit.file).body.casefold()))} "
