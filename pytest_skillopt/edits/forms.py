"""The forms of the optimizer's answers, in the exact JSON that is asked for."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class _Form(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    reasoning: str = ""


class EditForm(BaseModel):
    """One edit as a model writes it."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    op: Literal["append", "insert_after", "replace", "delete"]
    target: str = ""
    content: str = ""


class Edits(_Form):
    """Proposed edits of the document."""

    edits: list[EditForm]


class Ranking(_Form):
    """Numbers of the chosen edits, best first."""

    selected_indices: list[int]


class Body(_Form):
    """A whole new body of the document."""

    body: str = Field(min_length=1)


class Reminders(_Form):
    """Sentences for the appendix."""

    reminders: list[str]


class Guidance(_Form):
    """Text of a slow update, or advice to the editors."""

    text: str


class EditCount(_Form):
    """How many edits to apply."""

    count: int
