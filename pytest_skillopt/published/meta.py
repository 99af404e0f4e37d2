"""The meta skill: advice about which kinds of edits work, for the editors alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.edits.calls import Guidance, Question
from pytest_skillopt.edits.material import material, quote

if TYPE_CHECKING:
    from pytest_skillopt.edits.material import Context

_LIMIT = 2_000
"""Characters of advice kept."""


def learn_from_epoch(context: Context) -> None:
    """Ask what the attempts so far teach, and keep the answer in the memory.

    It is part of the prompts of later steps and runs, and never of the document. An unreadable
    answer leaves the old advice standing; with nothing tried there is nothing to ask.
    """
    tried = context.memory.render(40, accepted=True)
    if not tried:
        return
    answer = context.calls.ask_one(
        Question(
            "meta",
            f"{context.label}/meta",
            context.calls.prompts.render("meta"),
            material(context, ("What became of the edits so far", quote(tried))),
            Guidance,
        )
    )
    if answer is not None and answer.text.strip():
        context.memory.advice = answer.text.strip()[:_LIMIT]
