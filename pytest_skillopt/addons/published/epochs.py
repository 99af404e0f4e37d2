"""Optimizer calls between two epochs.

The slow update writes guidance, from a comparison of the epochs, into its own block. The meta skill
is advice about which kinds of edits work, only for the optimizer's prompts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt import TaskRecord
from pytest_skillopt.addons.published.blocks import GUIDANCE, get_block, set_block
from pytest_skillopt.addons.published.forms import Guidance
from pytest_skillopt.addons.published.settings import PublishedSettings
from pytest_skillopt.edits.context import evidence, quote
from pytest_skillopt.edits.vetting import Refusal
from pytest_skillopt.skill.document import SkillError
from pytest_skillopt.skill.edits import Edit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_skillopt.edits.context import Context
    from pytest_skillopt.search.state import TrainingState
    from pytest_skillopt.skill.document import Document

_MOST_ADVICE = 2_000
"""Maximum characters of the meta skill's advice."""
_SAMPLES = 2
_SHOWN = {
    "mixed": ("regressed", "failing under both", "improved", "stable"),
    "changed": ("regressed", "improved"),
    "unchanged": ("failing under both", "stable"),
}
"""Groups of tasks shown by each ``slow_update_pairs``, the most informative first."""
_TRANSCRIPTS = 6
"""Number of tasks of which a rollout is shown, regressions first."""


def slow_update(state: TrainingState, before: Document, context: Context) -> bool:
    """Compare the previous epoch's skill with the current one; return if guidance was accepted.

    Some train tasks are sampled under both and grouped into improved, regressed, failing under both
    and stable. The guidance goes into a protected block and, like every change, through the gate.
    """
    if before == state.incumbent:
        return False
    here = context.at(document=state.incumbent)
    edit = _ask_for_guidance(_measure_pairs(state, before, here), before, here)
    if edit is None:
        return False
    try:
        after = set_block(state.incumbent, GUIDANCE, edit.content)
        candidate = here.vetting.check(state.incumbent, after, edit)
    except SkillError as error:
        candidate = Refusal(edit, str(error))
    if isinstance(candidate, Refusal):
        state.history.refuse([candidate])
        return False
    if state.judged(candidate):
        return False
    _, verdict = state.race([(candidate, [edit])], context.epoch, (), "slow update")
    state.history.decide([edit], verdict)
    return verdict.accepted


def _ask_for_guidance(
    pairs: Mapping[str, tuple[TaskRecord, TaskRecord]], before: Document, context: Context
) -> Edit | None:
    """Ask for guidance, from each task's results under the earlier and the current document.

    Returns None if the policy shows no task, or the answer is unreadable or unchanged.
    """
    groups = group_pairs(pairs, context.settings.of(PublishedSettings).slow_update_pairs)
    listed = [(name, task) for name, tasks in groups.items() for task in tasks]
    if not listed:
        return None
    listing = "\n".join(
        f"- {name.capitalize()}: {task} ({pairs[task][0].rate:.0%} to {pairs[task][1].rate:.0%})"
        for name, task in listed
    )
    shown = [pairs[task][1] for _, task in listed[:_TRANSCRIPTS]]
    guidance = get_block(context.document, GUIDANCE)
    answer = context.ask(
        "slow update",
        "slow_update",
        Guidance,
        ("The document at the end of the previous epoch", quote(before.text)),
        ("The current guidance in the document", quote(guidance)),
        ("Tasks under both", listing),
        ("Rollouts under the current document", evidence(shown, context)),
        label="slow_update",
    )
    text = answer.text.strip() if answer else ""
    if answer is None or text in ("", guidance.strip()):
        return None
    asking = tuple(task for name, task in listed if name in ("regressed", "failing under both"))
    return Edit("append", "", text, answer.reasoning, asking, origin="slow", step=context.step)


def group_pairs(
    pairs: Mapping[str, tuple[TaskRecord, TaskRecord]], policy: str
) -> dict[str, list[str]]:
    """Return the node ids of each group that the policy shows."""
    groups: dict[str, list[str]] = {name: [] for name in _SHOWN[policy]}
    for task, (old, new) in pairs.items():
        name = "failing under both" if new.failed else "stable"
        if new.rate != old.rate:
            name = "improved" if new.rate > old.rate else "regressed"
        if old.n and new.n and name in groups:
            groups[name].append(task)
    return groups


def _measure_pairs(
    state: TrainingState, before: Document, context: Context
) -> dict[str, tuple[TaskRecord, TaskRecord]]:
    count = min(context.settings.of(PublishedSettings).slow_update_samples, len(state.train))
    tasks = context.random("slow update").sample(state.train, count)
    wanted = {task.id: _SAMPLES for task in tasks}
    old, new = state.samples.take_all([(before, wanted), (state.incumbent, wanted)], "train")
    return {t.id: (TaskRecord.of(t, old[t.id]), TaskRecord.of(t, new[t.id])) for t in tasks}


def learn_from_epoch(context: Context) -> None:
    """Ask for lessons from the edits so far, and keep the answer in the memory.

    It becomes part of later prompts, never of the document. An unreadable answer keeps the old
    advice; without edits nothing is asked.
    """
    tried = context.memory.render(40, accepted=True)
    if not tried:
        return
    shown = ("Results of the edits so far", quote(tried))
    answer = context.ask("meta", "meta", Guidance, shown, label="meta")
    if answer is not None and answer.text.strip():
        context.memory.advice = answer.text.strip()[:_MOST_ADVICE]
