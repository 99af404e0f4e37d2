"""Forms of the optimizer's answers, besides edits."""

from __future__ import annotations

from pydantic import Field

from pytest_skillopt.edits.calls import Form


class Ranking(Form):
    """Numbers of the chosen edits, best first."""

    selected_indices: list[int]


class Body(Form):
    """A whole new body of the document."""

    body: str = Field(min_length=1)


class Reminders(Form):
    """Sentences for the appendix."""

    reminders: list[str]


class Guidance(Form):
    """Text of a slow update, or advice to the editors."""

    text: str


class EditCount(Form):
    """Number of edits to apply."""

    count: int
