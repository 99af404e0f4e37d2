"""Aggregate and select: many patches become one, and as many edits as the budget allows stay."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_skillopt.edits.calls import Body, EditCount, Edits, Question, Ranking
from pytest_skillopt.edits.material import UNBOUNDED, material, numbered, quote
from pytest_skillopt.edits.proposals import Patch, Proposal, deduplicate
from pytest_skillopt.skill.edits import Edit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.edits.material import Context

_SUCCESS = ("success",)
_WORD = re.compile(r"\w+")


def aggregate(patches: Sequence[Patch], context: Context) -> Patch:
    """Merge the analysts' patches into one.

    Exact and near duplicates become one edit without a call. Edits from failures and from successes
    are merged apart, in batches, level by level; a last merge puts the failures first. What fits
    into the edit budget needs no call at all. Where a merge call fails, its batch is put together
    without duplicates instead, and the note of the patch says so.
    """
    bodies = [patch for patch in patches if patch.body is not None]
    if bodies:
        return _merge_bodies(bodies, context)
    reminders = [p for patch in patches for p in patch.proposals if p.origin == "appendix"]
    from_failures = _merge_levels(_apart(patches, failures=True), context, "failures")
    from_successes = _merge_levels(_apart(patches, failures=False), context, "successes")
    groups = [patch for patch in (from_failures, from_successes) if patch]
    merged = _merge_batch(groups, context, "final") if len(groups) == 2 else _only(groups)
    ordered = sorted(merged.proposals, key=lambda p: p.origin in _SUCCESS)
    return replace(
        merged,
        proposals=(*ordered, *deduplicate(reminders)),
        note=_notes([*groups, merged]),
        reasoning=merged.reasoning or " ".join(p.reasoning for p in patches)[:2_000],
    )


def _apart(patches: Sequence[Patch], *, failures: bool) -> list[Patch]:
    kept = []
    for patch in patches:
        own = tuple(
            p
            for p in patch.proposals
            if p.origin != "appendix" and (p.origin not in _SUCCESS) == failures
        )
        if own:
            kept.append(replace(patch, proposals=own))
    return kept


def _merge_levels(patches: Sequence[Patch], context: Context, group: str) -> Patch:
    """Merge in batches until one patch is left."""
    size = context.settings.merge_batch_size
    level = 0
    merged = list(patches)
    while len(merged) > 1:
        level += 1
        batches = [merged[i : i + size] for i in range(0, len(merged), size)]
        merged = _merge_batches(batches, context, f"{group}/{level}")
    return _only(merged)


def _only(patches: Sequence[Patch]) -> Patch:
    if not patches:
        return Patch()
    (patch,) = patches
    return replace(patch, proposals=tuple(deduplicate(patch.proposals)))


def _merge_batch(batch: Sequence[Patch], context: Context, name: str) -> Patch:
    return _merge_batches([batch], context, name)[0]


def _merge_batches(batches: Sequence[Sequence[Patch]], context: Context, name: str) -> list[Patch]:
    """One patch a batch; the calls of a level run at once."""
    united = [deduplicate(p for patch in batch for p in patch.proposals) for batch in batches]
    need = [i for i, proposals in enumerate(united) if len(proposals) > context.budget]
    answers = context.calls.ask(
        [_question(united[i], context, f"{context.label}/merge/{name}/{i}") for i in need]
    )
    by_batch = dict(zip(need, answers, strict=True))
    return [
        _merged(proposals, by_batch[i], context, batches[i])
        if i in by_batch
        else Patch(tuple(proposals), note=_notes(batches[i]))
        for i, proposals in enumerate(united)
    ]


def _question(proposals: Sequence[Proposal], context: Context, label: str) -> Question[Edits]:
    prompts = context.calls.prompts
    task = prompts.render("merge", budget=context.budget)
    return Question(
        "aggregate",
        label,
        f"{task}\n\n{prompts.render('answer_edits')}",
        material(context, ("Proposed edits", numbered(proposals))),
        Edits,
    )


def _merged(
    proposals: Sequence[Proposal], answer: Edits | None, context: Context, batch: Sequence[Patch]
) -> Patch:
    if answer is None or not answer.edits:
        note = f"a merge of {len(proposals)} edits failed; they were put together without it"
        return Patch(tuple(proposals), note=_notes([*batch, Patch(note=note)]))
    edits = [Edit(e.op, e.target, e.content) for e in answer.edits[: context.budget]]
    return Patch(
        tuple(_descended(edit, answer.reasoning, proposals) for edit in edits),
        answer.reasoning,
        note=_notes(batch),
    )


def _descended(edit: Edit, reasoning: str, sources: Sequence[Proposal]) -> Proposal:
    """A merged edit inherits tasks and support from the proposals whose words it carries.

    The form of an answer has no place for its sources, so they are found by the words in common:
    the most similar proposal and every one nearly as similar.
    """
    words = [_overlap(edit, source.edit) for source in sources]
    best = max(words)
    parents = [s for s, w in zip(sources, words, strict=True) if w >= max(0.3, 0.8 * best)]
    if not parents:
        parents = [sources[words.index(best)]]
    failing = [p for p in parents if p.origin not in _SUCCESS]
    return Proposal(
        edit,
        reasoning,
        tuple(dict.fromkeys(task for parent in parents for task in parent.tasks)),
        sum(parent.support for parent in parents),
        (failing or parents)[0].origin,
        max(parent.level for parent in parents) + 1,
        parents[0].step,
    )


def _overlap(one: Edit, other: Edit) -> float:
    """Share of the words in common (Jaccard), in [0, 1]."""
    a, b = (set(_WORD.findall(f"{e.target} {e.content}".casefold())) for e in (one, other))
    return len(a & b) / len(a | b) if a | b else 1.0


def _merge_bodies(patches: Sequence[Patch], context: Context) -> Patch:
    """Merge whole bodies in batches, level by level; a failed merge keeps the first body."""
    size = context.settings.merge_batch_size
    level = 0
    merged = list(patches)
    while len(merged) > 1:
        level += 1
        batches = [merged[i : i + size] for i in range(0, len(merged), size)]
        answers = context.calls.ask(
            [_body_question(b, context, f"{level}/{i}") for i, b in enumerate(batches)]
        )
        merged = [_merged_body(b, a) for b, a in zip(batches, answers, strict=True)]
    return merged[0]


def _body_question(batch: Sequence[Patch], context: Context, name: str) -> Question[Body]:
    bodies = "\n\n".join(
        f"## Body {i} (from {len(_asking(patch))} tasks)\n\n" + quote(patch.body or "", 60_000)
        for i, patch in enumerate(batch)
    )
    return Question(
        "aggregate",
        f"{context.label}/merge_rewrites/{name}",
        context.calls.prompts.render("merge_rewrites"),
        material(context, ("Proposed bodies", bodies)),
        Body,
    )


def _asking(patch: Patch) -> set[str]:
    return {task for proposal in patch.proposals for task in proposal.tasks}


def _merged_body(batch: Sequence[Patch], answer: Body | None) -> Patch:
    if len(batch) == 1:
        return batch[0]
    proposals = tuple(deduplicate(p for patch in batch for p in patch.proposals))
    if answer is None:
        note = f"a merge of {len(batch)} bodies failed; the first was kept"
        return Patch(proposals, body=batch[0].body, note=_notes([*batch, Patch(note=note)]))
    return Patch(proposals, answer.reasoning, body=answer.body, note=_notes(batch))


def _notes(patches: Sequence[Patch]) -> str:
    return "; ".join(dict.fromkeys(patch.note for patch in patches if patch.note))


def select(patch: Patch, context: Context) -> Patch:
    """Keep the best proposals, at most the budget; no call where they fit into it anyway.

    Reminders of the appendix do not count: they have a bound of their own.
    """
    if patch.body is not None:
        return patch
    reminders = [p for p in patch.proposals if p.origin == "appendix"]
    edits = [p for p in patch.proposals if p.origin != "appendix"]
    budget = _budget(edits, context)
    kept = edits if len(edits) <= budget else _rank(edits, budget, context)
    return replace(patch, proposals=(*kept, *reminders))


def by_support(proposals: Sequence[Proposal]) -> list[Proposal]:
    """Failure-derived first, then by support and by the number of tasks that asked."""
    return sorted(proposals, key=lambda p: (p.origin == "success", -p.support, -len(p.tasks)))


def _budget(edits: Sequence[Proposal], context: Context) -> int:
    """The schedule's value, or what the optimizer says; an unreadable answer is the schedule's."""
    asked_for = context.settings.autonomous_budget and context.budget < UNBOUNDED
    if not asked_for or len(edits) < 2:
        return context.budget
    answer = context.calls.ask_one(
        Question(
            "select",
            f"{context.label}/budget/{context.draw}",
            context.calls.prompts.render("budget", limit=len(edits)),
            material(context, ("Proposed edits", numbered(edits))),
            EditCount,
        )
    )
    return context.budget if answer is None else min(max(answer.count, 1), len(edits))


def _rank(edits: Sequence[Proposal], budget: int, context: Context) -> list[Proposal]:
    answer = context.calls.ask_one(
        Question(
            "select",
            f"{context.label}/rank/{context.draw}",
            context.calls.prompts.render("rank", budget=budget),
            material(context, ("Proposed edits", numbered(edits))),
            Ranking,
        )
    )
    chosen = dict.fromkeys(answer.selected_indices if answer else ())
    kept = [edits[i] for i in chosen if 0 <= i < len(edits)]
    return kept[:budget] or by_support(edits)[:budget]
