"""Optimizer calls at the end of each epoch but the first.

The slow update writes guidance, from a comparison of the epochs, into its own block. The meta skill
is advice about which kinds of edits work, only for the optimizer's prompts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt import TaskRecord
from pytest_skillopt.edits.calls import Form
from pytest_skillopt.edits.context import evidence, quote
from pytest_skillopt.edits.vetting import Refusal
from pytest_skillopt.plugins.published.blocks import GUIDANCE, get_block, set_block, vet_main
from pytest_skillopt.search.history import Basis
from pytest_skillopt.skill.edits import Edit

if TYPE_CHECKING:
    from pytest_skillopt.edits.context import Context, Section
    from pytest_skillopt.search.state import TrainingState
    from pytest_skillopt.skill.version import Version

_MOST_ADVICE = 2_000
"""Maximum characters of the meta skill's advice."""
_MOST_EDITS = 20
"""Maximum accepted edits that are shown; the others are in every prompt."""
_SHOWN = {
    "mixed": ("regressed", "failing under both", "improved", "stable"),
    "changed": ("regressed", "improved"),
    "unchanged": ("failing under both", "stable"),
}
"""Groups of tasks shown by each ``slow_update_pairs``, the most informative first."""
_TRANSCRIPTS = 6
"""Number of tasks of which a rollout is shown, regressions first."""


class Guidance(Form):
    """Text of a slow update, or advice to the editors."""

    text: str


Pairs = dict[str, tuple[TaskRecord, TaskRecord]]
"""Records of a task under the previous epoch's document and the current one, by node id."""


def compare_epochs(state: TrainingState, before: Version, context: Context) -> Pairs:
    """Sample train tasks once under the previous epoch's document and once under the current one.

    These are equal if no edit was accepted; the two samples of a task then show how much it varies.
    With the policies ``changed`` and ``unchanged`` further tasks are sampled until there are
    ``slow_update_samples`` of that kind, as far as the train split and the budget reach.
    """
    own = context.settings
    pairs: Pairs = {}
    tasks = list(state.train)
    context.random("slow update").shuffle(tasks)
    missing = own.slow_update_samples
    while tasks and missing:
        wave = tasks[:missing]
        tasks = tasks[missing:]
        if pairs and 2 * len(wave) > state.purse.affordable():
            break
        wanted = {task.id: 1 for task in wave}
        old, new = state.samples.take_all([(before, wanted), (state.incumbent, wanted)], "train")
        for task in wave:
            pairs[task.id] = TaskRecord.of(task, old[task.id]), TaskRecord.of(task, new[task.id])
        if own.slow_update_pairs == "mixed":
            break
        shown = group_pairs(pairs, own.slow_update_pairs).values()
        missing = own.slow_update_samples - sum(map(len, shown))
    return pairs


def slow_update(state: TrainingState, before: Version, pairs: Pairs, context: Context) -> bool:
    """Ask for guidance from the compared epochs; return if it was accepted.

    It goes into a protected block and, like every change, through the gate.
    """
    here = context.at(version=state.incumbent)
    edit = _ask_for_guidance(pairs, before, here)
    if edit is None:
        return False
    now = state.incumbent
    text = edit.content
    candidate = vet_main(lambda: set_block(now.main, GUIDANCE, text), now, edit, here)
    if isinstance(candidate, Refusal):
        state.history.refuse([candidate])
        return False
    if state.judged(candidate):
        return False
    verdict = state.take_step(candidate, [edit], Basis(context.epoch, ()), "slow update")
    state.history.decide([edit], verdict)
    return verdict.accepted


def _ask_for_guidance(pairs: Pairs, before: Version, context: Context) -> Edit | None:
    """Return None if the policy shows no task, or the answer is unreadable or unchanged."""
    sections, shown = _describe(pairs, before, context)
    if not shown:
        return None
    guidance = get_block(context.version.main, GUIDANCE)
    current = ("The current guidance in the document", quote(guidance))
    answer = context.ask(
        "slow update", "slow_update", Guidance, current, *sections, label="slow_update"
    )
    text = answer.text.strip() if answer else ""
    if answer is None or text in ("", guidance.strip()):
        return None
    asking = tuple(task for task in shown if pairs[task][1].failed)
    return Edit("append", "", text, answer.reasoning, asking, origin="slow", step=context.step)


def _describe(pairs: Pairs, before: Version, context: Context) -> tuple[list[Section], list[str]]:
    """Return the sections of a prompt about compared epochs, and the node ids that it shows."""
    groups = group_pairs(pairs, context.settings.slow_update_pairs)
    listed = [(name, task) for name, tasks in groups.items() for task in tasks]
    if not listed:
        return [], []
    listing = "\n".join(
        f"- {name.capitalize()}: {task} ({pairs[task][0].rate:.0%} to {pairs[task][1].rate:.0%})"
        for name, task in listed
    )
    shown = [pairs[task] for _, task in listed[:_TRANSCRIPTS]]
    moved = [old for old, new in shown if old.rate != new.rate]
    sections = [
        ("The document at the end of the previous epoch", quote(before.main.text)),
        ("Tasks under both", listing),
        ("Rollouts of tasks that changed, under the previous document", evidence(moved, context)),
        ("Rollouts under the current document", evidence([new for _, new in shown], context)),
    ]
    return sections, [task for _, task in listed]


def group_pairs(pairs: Pairs, policy: str) -> dict[str, list[str]]:
    """Return the node ids of each group that the policy shows."""
    groups: dict[str, list[str]] = {name: [] for name in _SHOWN[policy]}
    for task, (old, new) in pairs.items():
        name = "failing under both" if new.failed else "stable"
        if new.rate != old.rate:
            name = "improved" if new.rate > old.rate else "regressed"
        if old.n and new.n and name in groups:
            groups[name].append(task)
    return groups


def learn_from_epoch(before: Version, pairs: Pairs, context: Context) -> None:
    """Ask for advice on edits from the compared epochs and from the edits that won and lost.

    The advice becomes part of later prompts, never of the document. An unreadable answer keeps the
    old advice; without tasks and edits nothing is asked.
    """
    sections, _ = _describe(pairs, before, context)
    if won := context.memory.tried(_MOST_EDITS, accepted=True):
        sections.append(("Accepted edits", quote("\n".join(won))))
    if not sections and not context.memory.tried():
        return
    answer = context.ask("meta", "meta", Guidance, *sections, label="meta")
    if answer is not None and answer.text.strip():
        context.memory.advice = answer.text.strip()[:_MOST_ADVICE]
