"""The folder in which a coding agent proposes edits of a skill, and the edits that come of it.

Whatever is read back is data of a model: it passes the vetting of every edit, and a folder with
anything but changed texts is refused by name.
"""

from __future__ import annotations

import contextlib
import difflib
import itertools
import json
import re
import shlex
import stat
import string
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_skillopt import TaskRecord
from pytest_skillopt.addons.harness.settings import MOST_ROLLOUTS
from pytest_skillopt.addons.harness.tree import Tree
from pytest_skillopt.edits.combine import Patch
from pytest_skillopt.edits.context import evidence, material
from pytest_skillopt.edits.update import edit_between
from pytest_skillopt.edits.vetting import Refusal
from pytest_skillopt.model.types import Completion, ModelFault
from pytest_skillopt.run.journal import JournaledModel
from pytest_skillopt.search.budget import OutOfBudget
from pytest_skillopt.skill.document import SKILL_FILE, Document, SkillError, split_lines, to_lf
from pytest_skillopt.skill.edits import Edit
from pytest_skillopt.skill.files import MAX_SKILL_BYTES, Trained, is_outside
from pytest_skillopt.suite.folders import TemporaryFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_skillopt.edits.context import Context
    from pytest_skillopt.model.types import Model, Usage

SOCKET = ".ask"
"""Socket in the folder through which ``rollout`` asks."""
_MOST_EDITS = 20
"""Most edits that are made of one proposal."""
_MOST_LINES = 2_000
"""Most lines that it may add to a file: the comparison takes quadratic time."""
_WHY = 1_000
"""Maximum characters of the agent's last message that are kept."""
_BLOCKS = re.compile(r"\n(?=[-*+] )|\n{2,}")


class Folder:
    """The folder of one run: the skill, the failures, and a command that asks for a rollout.

    ``root`` is empty; ``others`` are the files of the skill that are not trained, by path.
    """

    def __init__(
        self,
        root: Path,
        records: Sequence[TaskRecord],
        context: Context,
        others: Mapping[str, bytes],
    ) -> None:
        self.root = root
        self.asked: list[tuple[int, dict[str, str]]] = []
        """Task number and changed files of each rollout."""
        self._records, self._context = records, context
        now = context.document
        inside = {name: data for name, data in now.files if not is_outside(name)}
        self._given = {**others, **inside, SKILL_FILE: now.data}
        files: dict[str, bytes] = {f"skill/{name}": data for name, data in self._given.items()}
        files["about.md"] = material(context).encode()
        for number, record in enumerate(records, 1):
            files[f"failures/{number}.md"] = evidence([record], context).encode()
        script = Path(__file__).with_name("rollout.in").read_text(encoding="utf-8")
        command = script.format(python=shlex.quote(sys.executable), socket=SOCKET)
        files["rollout"] = command.encode()
        for name, data in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)
        (root / "rollout").chmod(0o755)

    @property
    def prompt(self) -> str:
        """Instructions for the agent."""
        template = Path(__file__).with_name("proposal.md").read_text(encoding="utf-8")
        trained = (name for name in self._context.document.names if name in self._given)
        names = ", ".join(f"skill/{name}" for name in trained)
        values = {"tasks": len(self._records), "rollouts": MOST_ROLLOUTS, "files": names}
        return string.Template(template).substitute(values).strip()

    def read(self) -> Document:
        """Return the skill as it is in the folder.

        Raises:
            SkillError: something else than a trained text was changed, or it cannot be read.
        """
        after = self._context.document
        try:
            with contextlib.closing(Tree(self.root)) as tree:
                entries = tree.entries("skill", room=4 * MAX_SKILL_BYTES)
        except OSError as error:
            raise SkillError(f"the folder skill cannot be read: {error}") from None
        for name in sorted(entries.keys() | self._given.keys()):
            entry = entries.get(name)
            if entry is None:
                raise SkillError(f"{name} was removed")
            if stat.S_ISDIR(entry.mode) and name not in self._given:
                continue
            if not stat.S_ISREG(entry.mode):
                raise SkillError(f"{name} is not a regular file")
            if entry.data is None:
                raise SkillError(f"{name} is too large or cannot be read")
            if entry.data != (given := self._given.get(name)):
                if entry.data.count(b"\n") > (given or b"").count(b"\n") + _MOST_LINES:
                    raise SkillError(f"{name} has more than {_MOST_LINES} new lines")
                if name not in after.names:
                    Trained.of(self._context.settings).check(name)
                after = after.with_file(name, Document.from_bytes(entry.data))
        return after

    def answer(self, asked: str) -> str:
        """Run a task once with the skill as it is in the folder; return what came of it.

        Raises:
            StopRun: a cap, a fault or an interrupt ends the run.
        """
        context, number = self._context, int(asked) if asked.isdecimal() else 0
        if not 0 < number <= len(self._records):
            return "Say ./rollout N, where failures/N.md is the task."
        if len(self.asked) >= MOST_ROLLOUTS or context.sample is None:
            return "Not run: no rollouts are left."
        try:
            document = self.read()
        except SkillError as error:
            return f"Not run: {error}."
        checked = context.vetting.check(context.document, document, Edit("replace"))
        if isinstance(checked, Refusal):
            return f"Not run, the checks refuse the skill: {checked.why}."
        task = self._records[number - 1].task
        try:
            rollout = context.sample(document, task.id)
        except OutOfBudget:
            return "Not run: no rollouts are left."
        self.asked.append((number, _texts(context.document, document)))
        if not rollout.measured:
            return "The task could not be measured."
        return evidence([TaskRecord(task, (rollout,))], context)

    def result(self, why: str) -> dict[str, Any]:
        """Return what the run came to, as JSON that the journal keeps."""
        found: dict[str, Any] = {"why": why[-_WHY:], "asked": self.asked}
        try:
            found["files"] = _texts(self._context.document, self.read())
        except SkillError as error:
            return found | {"refused": str(error)[:300]}
        with (
            contextlib.suppress(OSError, ValueError, RecursionError),
            contextlib.closing(Tree(self.root)) as tree,
        ):
            found["tasks"] = json.loads(tree.read("tasks.json", MAX_SKILL_BYTES))
        return found


def proposed(
    records: Sequence[TaskRecord],
    context: Context,
    agent: Callable[[Folder], tuple[str, Usage]],
    *,
    name: str,
    others: Mapping[str, bytes],
) -> tuple[list[Patch], str]:
    """Have an agent propose edits, once in a run, however often that is continued.

    Args:
        records: failing train tasks with their rollouts.
        context: of the search.
        agent: works in the folder; returns its last message and its usage.
        name: of the agent, with its version.
        others: as in ``Folder``.

    Returns:
        Its edits, if there are any, and a note if it failed or its change was refused.

    Raises:
        StopRun: a cap, a fatal fault or an interrupt ends the run.
    """
    new: list[Folder] = []

    def make() -> Completion:
        made = TemporaryFolder("skillopt-proposer-")
        try:
            new.append(Folder(made.path, records, context, others))
            why, usage = agent(new[0])
            return Completion(json.dumps(new[0].result(why)), usage=usage)
        finally:
            made.remove()

    def once(model: Model) -> Completion:
        if not isinstance(model, JournaledModel):
            return make()
        return model.once(asked, make, sample=f"{context.label}/agent", stage="agent")

    seen = [rollout.request.key for record in records for rollout in record.rollouts]
    asked = json.dumps([name, context.document.version, context.label, seen])
    try:
        text = context.calls.count(once)
    except ModelFault as fault:
        return [], f"{name} proposed nothing: {fault}"
    found = json.loads(text)
    refused = found.get("refused")
    if not new and context.sample is not None:  # The samples of the journal count like new ones.
        for number, files in found["asked"]:
            context.sample(_with(context.document, files), records[number - 1].task.id)
    try:
        after = _with(context.document, found.get("files", {}))
    except SkillError as error:
        refused = error
    if refused:
        return [], f"the change of {name} was refused: {refused}"
    edits = [
        replace(
            edit,
            reason=found["why"],
            tasks=_tasks_of(edit, found.get("tasks"), records),
            step=context.step,
        )
        for edit in itertools.islice(edits_between(context.document, after), _MOST_EDITS)
    ]
    return ([Patch(tuple(edits), found["why"])] if edits else []), ""


def edits_between(before: Document, after: Document) -> Iterator[Edit]:
    """Yield an edit for each changed place; of added text one for each paragraph or list item.

    A change that no edit may make, as in the frontmatter, is left out.
    """
    for name in after.names:
        if name not in before.names:
            yield Edit("append", content=after.file(name).text, file=name)
            continue
        then, now = before.file(name), after.file(name)
        old, new = split_lines(to_lf(then.text)), split_lines(to_lf(now.text))
        matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
        for tag, i1, i2, j1, j2 in matcher.get_opcodes():
            changed = "".join([*old[:i1], *new[j1:j2], *old[i2:]])
            if tag == "equal" or not (edit := edit_between(then, then.with_text(changed))):
                continue
            parts = _blocks(edit.content) if edit.adds else [edit.content]
            yield from (replace(edit, content=part, file=name) for part in parts)


def _blocks(text: str) -> list[str]:
    """Split text into paragraphs and bullets; a heading stays with the block below it."""
    if "```" in text or "~~~" in text or "<!--" in text:
        return [text]
    blocks: list[str] = []
    for block in filter(str.strip, _BLOCKS.split(text)):
        if blocks and blocks[-1].startswith("#") and "\n" not in blocks[-1]:
            blocks[-1] += f"\n\n{block}"
        else:
            blocks.append(block)
    return blocks


def _tasks_of(edit: Edit, told: Any, records: Sequence[TaskRecord]) -> tuple[str, ...]:
    """Return the tasks that the agent names for an edit's text, or else all."""
    numbers: set[Any] = set()
    for words, named in told.items() if isinstance(told, dict) else ():
        if words.strip() and words.strip() in (edit.content or edit.target):
            numbers |= {n for n in named if type(n) is int} if isinstance(named, list) else set()
    ids = [record.task.id for record in records]
    return tuple(name for n, name in enumerate(ids, 1) if n in numbers) or tuple(ids)


def _texts(before: Document, after: Document) -> dict[str, str]:
    known = {name: before.file(name).data for name in before.names}
    texts = {name: after.file(name).data for name in after.names}
    return {name: data.decode() for name, data in texts.items() if known.get(name) != data}


def _with(document: Document, files: Mapping[str, str]) -> Document:
    for name, text in files.items():
        document = document.with_file(name, Document.from_bytes(text.encode()))
    return document
