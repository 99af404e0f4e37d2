"""Stages of the published search: the built-in ones, plus whole bodies and reminders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.addons.published.blocks import ask_for_causes, with_reminders
from pytest_skillopt.addons.published.merging import aggregate_edits, by_levels
from pytest_skillopt.addons.published.rewrites import merge_bodies, reflect_bodies, rewritten
from pytest_skillopt.addons.published.settings import PublishedSettings
from pytest_skillopt.edits.combine import Patch
from pytest_skillopt.edits.reflect import ask_for_edits
from pytest_skillopt.edits.update import update

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt import TaskRecord
    from pytest_skillopt.edits.context import Context
    from pytest_skillopt.edits.update import Update


def reflect_published(records: Sequence[TaskRecord], context: Context) -> list[Patch]:
    """Reflect, according to ``failure_only``, ``update_mode``, ``skill_aware`` and ``contrasts``.

    With ``skill_aware`` analysts tell a gap in the document from a lapse of the agent. With
    ``contrasts`` one more analyst sees the tasks with the widest spread of scores.
    """
    settings = context.settings.of(PublishedSettings)
    failing = [record for record in records if record.failed]
    passing = [r for r in records if r.n and not r.failed and not settings.failure_only]
    if settings.update_mode == "full_rewrite_minibatch":
        return list(reflect_bodies([*failing, *passing], context))
    wide = sorted((r for r in records if r.contrasts), key=lambda r: -r.spread)
    wide = wide[: settings.contrasts]
    together = context.at(minibatch=max(1, len(wide)))
    ask = ask_for_causes if settings.skill_aware else ask_for_edits
    notes_of_passing = settings.appendix_source == "both"
    return [
        *ask("reflect_failures", failing, context),
        *(ask if notes_of_passing else ask_for_edits)("reflect_successes", passing, context),
        *ask("reflect_contrasts", wide, together),
    ]


def aggregate_published(patches: Sequence[Patch], context: Context) -> Patch:
    """Aggregate the bodies if there are any, else the edits."""
    bodies = [patch for patch in patches if patch.body is not None]
    if not bodies:
        return aggregate_edits(patches, context)
    return by_levels(bodies, context, "merge_rewrites", merge_bodies)


def update_published(patch: Patch, context: Context) -> Update:
    """Update by the setting ``update_mode``, and add reminders last."""
    edits = [p for p in patch.edits if p.origin != "appendix"]
    reminders = [p for p in patch.edits if p.origin == "appendix"]
    whole = (
        edits and context.settings.of(PublishedSettings).update_mode == "rewrite_from_suggestions"
    )
    if patch.body is not None or whole:
        result = rewritten(patch.body, edits, context)
    else:
        result = update(Patch(tuple(edits)), context)
    return with_reminders(result, reminders, context) if reminders else result
