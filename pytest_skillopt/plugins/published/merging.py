"""Merge patches by calls of the optimizer, and select the best edits within the budget."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_skillopt.edits.calls import Form
from pytest_skillopt.edits.combine import Patch, by_support, deduplicate, notes
from pytest_skillopt.edits.context import numbered
from pytest_skillopt.skill.edits import with_links

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_skillopt.edits.calls import Edits, FormT
    from pytest_skillopt.edits.context import Context, Section
    from pytest_skillopt.skill.edits import Edit


class Ranking(Form):
    """Numbers of the chosen edits, best first."""

    selected_indices: list[int]


class EditCount(Form):
    """Number of edits to apply."""

    count: int


def aggregate_edits(patches: Sequence[Patch], context: Context) -> Patch:
    """Merge the analysts' patches into one.

    Exact and near duplicates become one edit without a call. Edits from failures and edits from
    successes are merged separately, in batches, level by level; a last merge puts the failures
    first. No merge is bounded: the selection keeps to the budget. If a merge call fails, its batch
    is concatenated without duplicates, and the note of the patch says so.
    """
    reminders = [e for patch in patches for e in patch.edits if e.origin == "appendix"]
    groups = []
    for name, successes in (("failures", False), ("successes", True)):
        if own := _from(patches, successes):
            groups.append(by_levels(own, context, f"merge/{name}", _merge_edits))
    merged = groups[0] if groups else Patch()
    if len(groups) > 1:
        (merged,) = _merge_edits([groups], context, "merge/final")
    ordered = sorted(deduplicate(merged.edits), key=lambda e: e.origin == "success")
    return replace(
        merged,
        edits=(*ordered, *deduplicate(reminders)),
        note=notes([*groups, merged]),
        reasoning=merged.reasoning or " ".join(p.reasoning for p in patches)[:2_000],
    )


def _from(patches: Sequence[Patch], successes: bool) -> list[Patch]:
    def belong(edit: Edit) -> bool:
        return edit.origin != "appendix" and (edit.origin == "success") == successes

    own = (replace(patch, edits=tuple(filter(belong, patch.edits))) for patch in patches)
    return [patch for patch in own if patch.edits]


def by_levels(
    patches: Sequence[Patch],
    context: Context,
    name: str,
    merge: Callable[[Sequence[Sequence[Patch]], Context, str], list[Patch]],
) -> Patch:
    """Merge in batches until one patch is left; the calls of a level run concurrently."""
    size = context.settings.merge_batch_size
    level = 0
    merged = list(patches)
    while len(merged) > 1:
        level += 1
        batches = [merged[i : i + size] for i in range(0, len(merged), size)]
        merged = merge(batches, context, f"{name}/{level}")
    return merged[0]


def ask_to_merge(
    batches: Mapping[int, Section],
    context: Context,
    template: str,
    form: type[FormT],
    name: str,
    **values: Any,
) -> dict[int, FormT | None]:
    """Ask for a merge of each batch, by the numbers of the batches."""
    questions = [
        context.question("aggregate", template, form, shown, label=f"{name}/{i}", **values)
        for i, shown in batches.items()
    ]
    return dict(zip(batches, context.calls.ask(questions), strict=True))


def _edits(patches: Sequence[Patch]) -> list[Edit]:
    """List the edits of patches, with equal and nearly equal ones united."""
    return deduplicate(edit for patch in patches for edit in patch.edits)


def _merge_edits(batches: Sequence[Sequence[Patch]], context: Context, name: str) -> list[Patch]:
    """Merge each batch by a call, unless only one patch or one edit is in it."""
    united = [_edits(batch) for batch in batches]
    shown = {
        i: ("Proposed edits", numbered(edits))
        for i, edits in enumerate(united)
        if len(edits) > 1 < len(batches[i])
    }
    answers = ask_to_merge(shown, context, "merge", context.form, name)
    merged = []
    for i, edits in enumerate(united):
        if i in answers:
            merged.append(_merged(edits, answers[i], context, batches[i]))
        else:
            merged.append(Patch(tuple(edits), note=notes(batches[i])))
    return merged


def _merged(
    sources: Sequence[Edit], answer: Edits | None, context: Context, batch: Sequence[Patch]
) -> Patch:
    if answer is None or not answer.edits:
        note = f"a merge of {len(sources)} edits failed; they were concatenated instead"
        return Patch(tuple(sources), note=notes([*batch, Patch(note=note)]))
    read = (form.read(reason=answer.reasoning) for form in answer.edits)
    edits = with_links(read, context.version)
    return Patch(
        tuple(_inherit(edit, sources) for edit in edits), answer.reasoning, note=notes(batch)
    )


def _inherit(edit: Edit, sources: Sequence[Edit]) -> Edit:
    """Give a merged edit the tasks and support of its sources.

    The form of an answer does not name the sources, so they are found by common words: the most
    similar edit and all nearly as similar.
    """
    words = [_overlap(edit, source) for source in sources]
    least = max(0.3, 0.8 * max(words))
    parents = [s for s, w in zip(sources, words, strict=True) if w >= least]
    parents = parents or [sources[words.index(max(words))]]
    tasks = dict.fromkeys(task for parent in parents for task in parent.tasks)
    support = sum(parent.support for parent in parents)
    first = min(parents, key=lambda parent: parent.origin == "success")
    return replace(
        edit, tasks=tuple(tasks), support=support, origin=first.origin, step=parents[0].step
    )


def _overlap(one: Edit, other: Edit) -> float:
    """Return the share of words of either that both have, in [0, 1]."""
    first = _words(one)
    second = _words(other)
    return len(first & second) / max(1, len(first | second))


def _words(edit: Edit) -> set[str]:
    return set(re.findall(r"\w+", f"{edit.target} {edit.content}".casefold()))


def select_published(patch: Patch, context: Context) -> Patch:
    """Keep the best edits, at most the budget; make no call if all of them fit.

    Reminders of the appendix do not count: they have their own bound.
    """
    if patch.body is not None:
        return patch
    reminders = [e for e in patch.edits if e.origin == "appendix"]
    edits = [e for e in patch.edits if e.origin != "appendix"]
    budget = _budget(edits, context)
    if not budget:
        edits = []
    elif len(edits) > budget:
        edits = _rank(edits, budget, context)
    return replace(patch, edits=(*edits, *reminders))


def _budget(edits: Sequence[Edit], context: Context) -> int:
    """Return the scheduled budget or, with ``autonomous_budget``, a readable optimizer's choice."""
    chosen = context.settings.autonomous_budget
    if not chosen or len(edits) < 2:
        return context.budget
    shown = ("Proposed edits", numbered(edits))
    answer = context.ask("select", "budget", EditCount, shown, limit=len(edits))
    return context.budget if answer is None else min(max(answer.count, 0), len(edits))


def _rank(edits: Sequence[Edit], budget: int, context: Context) -> list[Edit]:
    shown = ("Proposed edits", numbered(edits))
    answer = context.ask("select", "rank", Ranking, shown, budget=budget)
    indices = answer.selected_indices if answer else ()
    chosen = dict.fromkeys(indices)
    kept = [edits[i] for i in chosen if 0 <= i < len(edits)]
    return kept[:budget] or by_support(edits)[:budget]
