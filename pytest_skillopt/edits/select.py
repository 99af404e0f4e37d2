"""Select: rank the proposals and keep as many as the edit budget allows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_skillopt.edits.briefing import material, numbered
from pytest_skillopt.edits.calls import Question
from pytest_skillopt.edits.context import UNBOUNDED
from pytest_skillopt.edits.forms import EditCount, Ranking

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.edits.context import Context
    from pytest_skillopt.edits.proposals import Patch, Proposal


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
