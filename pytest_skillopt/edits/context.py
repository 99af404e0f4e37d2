"""The context of a stage, and the material of an optimizer call as text.

The material is the document, the evidence, the house rules and the contracts of the tasks. Text
from a test or a model is untrusted data: bounded, cleaned, and quoted between marks that it cannot
forge.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_skillopt.edits.calls import Edits, FormT, PlacedEdits, Question
from pytest_skillopt.edits.records import describe_sampled
from pytest_skillopt.skill.read import read_bounded
from pytest_skillopt.skill.text import SkillError
from pytest_skillopt.skill.version import SKILL_FILE
from pytest_skillopt.untrusted import bound, fence, redact, strip_invisible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.edits.calls import Calls
    from pytest_skillopt.edits.records import Memory, SampledEdit, TaskRecord
    from pytest_skillopt.edits.vetting import Vetting
    from pytest_skillopt.rollouts.rollout import Rollout
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.skill.edits import Edit
    from pytest_skillopt.skill.version import Version
    from pytest_skillopt.tasks.task import SkillTask

Section = tuple[str, str]
"""Title and text of a part of the material."""
UNBOUNDED = 10**6
"""A budget without effect, for a search that samples each edit."""


@dataclass(frozen=True, slots=True)
class Context:
    """The working skill, the step, and the tools of a stage."""

    version: Version
    settings: Settings
    calls: Calls
    memory: Memory
    vetting: Vetting
    preferences: str = ""
    """House rules of the user, shown to every analyst."""
    contracts: tuple[str, ...] = ()
    """Requirements of the train tasks on their answers."""
    sampled: Sequence[SampledEdit] = ()
    """Edits that were sampled, the most telling first; analysts are asked for something else."""
    known: Sequence[Edit] = ()
    """Edits that were proposed before and not given up, the most promising first."""
    step: int = 0
    epoch: int = 1
    budget: int = 4
    """Maximum edits that an analyst proposes, or that a selection keeps."""
    minibatch: int = 8
    """Tasks in one call of an analyst."""
    draw: int = 0
    """Number of the draw; rounds of one step differ in it."""

    @property
    def form(self) -> type[Edits]:
        """Form of an answer with edits."""
        settings = self.settings
        several = self.version.files or settings.train_description
        return PlacedEdits if several else Edits

    @property
    def how_to_answer(self) -> str:
        """Instructions for that form."""
        render = self.calls.prompts.render
        parts = [render("answer_edits")]
        if self.version.files:
            parts.append(render("answer_files", files=", ".join(self.version)))
        if self.settings.train_description:
            parts.append(render("answer_description"))
        if self.sampled:
            parts.append(render("answer_sampled"))
        return "\n\n".join(parts)

    @property
    def label(self) -> str:
        """Stable prefix of the sample labels of this step's calls."""
        return f"step {self.step}"

    def ask(
        self, stage: str, template: str, form: type[FormT], *sections: Section, **values: Any
    ) -> FormT | None:
        """Ask one question; see ``question``. None for a lost or unreadable answer."""
        return self.calls.ask([self.question(stage, template, form, *sections, **values)])[0]

    def question(
        self,
        stage: str,
        template: str,
        form: type[FormT],
        *sections: Section,
        label: str = "",
        **values: Any,
    ) -> Question[FormT]:
        """Make a call with a template as its instructions.

        ``sections`` follow the material of every call; ``label`` is the place in the step, by
        default the template and the draw; ``values`` are those of the placeholders.
        """
        instructions = self.calls.prompts.render(template, **values)
        if issubclass(form, Edits):
            instructions += f"\n\n{self.how_to_answer}"
            if form.more:
                instructions += f"\n\n{self.calls.prompts.render(form.more)}"
        where = label or f"{template}/{self.draw}"
        return Question(
            stage, f"{self.label}/{where}", instructions, material(self, *sections), form
        )

    def at(self, **changes: Any) -> Context:
        return replace(self, **changes)

    def random(self, purpose: str) -> random.Random:
        """Make a generator that depends only on the seed, the step and the purpose."""
        return random.Random(f"{self.settings.seed}/{self.step}/{purpose}")


_LIMIT = 8_000
"""Maximum characters of preferences in a prompt."""
_MOST_BYTES = 1_000_000
"""Maximum bytes of the file that holds them."""
_LONGEST_PATH = 250
"""Maximum characters of preferences that may be the path of that file."""
_FROM_DOCSTRINGS = 12
"""Maximum docstrings that count as contracts."""


def read_preferences(setting: str, root: Path | None = None) -> str:
    """Read the house rules: the setting itself, or the file that it names.

    Raises:
        SkillError: it names a file, or a missing ``.md``, that cannot be read, is too large or is
            not UTF-8.
    """
    text = setting.strip()
    path = (root or Path()) / text
    is_text = "\n" in text or len(text) > _LONGEST_PATH
    if is_text or not (text.endswith(".md") or (text and path.exists())):
        return text[:_LIMIT]
    try:
        return read_bounded(path, _MOST_BYTES).decode("utf-8").strip()[:_LIMIT]
    except (OSError, UnicodeDecodeError, SkillError) as error:
        said = getattr(error, "strerror", None) or error
        raise SkillError(
            f"skillopt_preferences: {path} cannot be read: {said}; name a text file, or write the "
            "rules themselves"
        ) from None


def contracts_of(train: Sequence[SkillTask]) -> tuple[str, ...]:
    """List the requirements of the train tasks on their answers, each once.

    These are the marker's ``contract=`` and the first docstrings.
    """
    stated = dict.fromkeys(task.contract.strip() for task in train)
    docs = dict.fromkeys(task.doc.strip()[:_DOC_CHARS] for task in train)
    return tuple(dict.fromkeys([*filter(None, stated), *[*filter(None, docs)][:_FROM_DOCSTRINGS]]))


_EVIDENCE_CHARS = 48_000
"""Characters of all transcripts of one call; about 12,000 tokens."""
_TRANSCRIPT_CHARS = 12_000
_LEAST_CHARS = 1_200
_MESSAGE_CHARS = 2_000
_DOC_CHARS = 1_000
_REASON_CHARS = 400


def material(context: Context, *sections: Section) -> str:
    """Join the document, the contracts and the memory with the sections of this call."""
    contracts = "\n".join(f"- {' '.join(words.split())}" for words in context.contracts)
    sampled = describe_sampled(context.sampled)
    others = context.memory.render(but={known.edit.key for known in context.sampled})
    parts = [("The document", fence(redact(context.version.main.text)))]
    for name, text in context.version.files.items():
        parts.append((f"The file {name} of the skill", fence(redact(text.text))))
    parts += [
        ("House rules", context.preferences),
        ("What the tasks ask for, and no edit may change", contracts),
        ("Edits that were sampled, and what they did", _quoted(sampled)),
        ("Tried before", _quoted(others)),
        ("Advice from earlier epochs", _quoted(context.memory.advice)),
        *sections,
    ]
    return "\n\n".join(f"# {title}\n\n{text}" for title, text in parts if text.strip())


def _quoted(text: str) -> str:
    """Quote a text, unless it is empty."""
    return quote(text) if text.strip() else ""


def quote(text: str, limit: int = _TRANSCRIPT_CHARS) -> str:
    """Quote untrusted text between marks, without secrets and invisible characters, shortened."""
    clean = strip_invisible(redact(text))
    return fence(bound(clean, limit * 2 // 3, limit // 3))


def evidence(records: Sequence[TaskRecord], context: Context) -> str:
    """Describe tasks, each with its worst rollout, and its best one if that is clearly better.

    Of rollouts that failed in other ways the failure is shown.
    """
    shown = [(record, _choose(record)) for record in records]
    count = sum(len(rollouts) for _, rollouts in shown)
    room = max(_LEAST_CHARS, min(_TRANSCRIPT_CHARS, _EVIDENCE_CHARS // max(1, count)))
    return "\n\n".join(
        _describe_task(number, record, rollouts, room)
        for number, (record, rollouts) in enumerate(shown, start=1)
    )


def numbered(edits: Sequence[Edit]) -> str:
    """List edits, numbered from 0, with their origin, support and reason."""
    return "\n\n".join(_describe_edit(i, edit) for i, edit in enumerate(edits))


def _choose(record: TaskRecord) -> list[Rollout]:
    """Choose the worst rollout and, for a contrast, the best one; of a passing task the best."""
    if not record.n:
        return []
    worst = min(record.rollouts, key=_goodness)
    best = max(record.rollouts, key=_goodness)
    if record.contrasts:
        return [worst, best]
    return [worst if record.failed else best]


def _goodness(rollout: Rollout) -> tuple[bool, float]:
    return rollout.passed, rollout.score or 0.0


def _describe_task(number: int, record: TaskRecord, rollouts: Sequence[Rollout], room: int) -> str:
    lines = [f"## Task {number}: {record.task.id}", ""]
    lines.append(f"Passed {record.passed} of {record.n} rollouts under this document.")
    if record.task.doc:
        lines += ["", f"About: {record.task.doc.strip()[:_DOC_CHARS]}"]
    if record.task.contract:
        lines += ["", f"Fixed by the task: {record.task.contract.strip()[:_DOC_CHARS]}"]
    for rollout in rollouts:
        lines += ["", _describe_rollout(rollout, room)]
    for rollout in record.other_failures(rollouts):
        lines += ["", "### Another rollout that failed", "", *_describe_failure(rollout)]
    return "\n".join(lines)


def _describe_rollout(rollout: Rollout, room: int) -> str:
    lines = [f"### A rollout that {rollout.outcome}", ""]
    if not rollout.passed:
        lines += _describe_failure(rollout)
    elif rollout.score not in (None, 1.0):
        lines += [f"Score: {rollout.score:g}", ""]
    turns = "\n\n".join(f"[{turn.role}]\n{turn.content}" for turn in rollout.transcript)
    if turns:
        lines += ["Transcript:", quote(turns, room)]
    return "\n".join(lines).rstrip()


def _describe_failure(rollout: Rollout) -> list[str]:
    words = (rollout.feedback or rollout.message).strip()
    lines = [f"Score: {rollout.score or 0.0:g}"]
    if words:
        lines += ["How it failed:", quote(words, _MESSAGE_CHARS)]
    if rollout.location:
        lines.append(f"Where: {rollout.location}")
    return [*lines, ""]


def _describe_edit(number: int, edit: Edit) -> str:
    place = f" in {edit.file}" if edit.file != SKILL_FILE else ""
    if edit.field == "description":
        place += " of the description"
    lines = [
        f"## Edit {number}: {edit.op}{place}",
        f"From {edit.origin} analysts, support {edit.support}, "
        f"asked for by {len(edit.tasks)} tasks.",
    ]
    if edit.target:
        lines += ["Target:", quote(edit.target)]
    if edit.content:
        lines += ["Content:", quote(edit.content)]
    for other in edit.also:
        lines += [f"Together with {other.op} in {other.file}:", quote(other.content)]
    if edit.reason:
        lines += ["Reason:", quote(" ".join(edit.reason.split()), _REASON_CHARS)]
    return "\n".join(lines)
