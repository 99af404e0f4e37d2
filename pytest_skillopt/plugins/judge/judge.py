"""A model that grades an answer by a rubric: the fixture ``skill_judge``."""

from __future__ import annotations

import re
import statistics
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field, field_validator

from pytest_skillopt.model.structured import (
    FormT,
    Label,
    NoJson,
    ask_json,
    json_values,
    without_thoughts,
)
from pytest_skillopt.model.types import ModelFault, hide_frames
from pytest_skillopt.untrusted import fence, strip_invisible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_skillopt.model.types import Model, Usage

__tracebackhide__ = hide_frames


class UnreadableJudgement(ModelFault):
    """A reply of the judge that is not a grade, even after a repair."""


@dataclass(frozen=True, slots=True)
class Judgement:
    score: float
    """Grade in [0, 1]."""
    reason: str
    """Reason of the vote nearest to the median."""
    votes: tuple[float, ...]


class _Vote(BaseModel):
    reason: str = Field(description="one or two sentences")
    score: float = Field(description="from 0 to 1", allow_inf_nan=False)

    @field_validator("score")
    @classmethod
    def _on_the_scale(cls, value: float) -> float:
        if not 0 <= value <= 1:
            raise ValueError("must be from 0 to 1")
        return value


class _Grade(BaseModel):
    number: int
    evidence: str = Field(description="one sentence")
    holds: bool


class _Grades(BaseModel):
    grades: list[_Grade]


def _grades_of(count: int) -> type[_Grades]:
    class Grades(_Grades):
        @field_validator("grades")
        @classmethod
        def _complete(cls, value: list[_Grade]) -> list[_Grade]:
            if sorted(grade.number for grade in value) != list(range(1, count + 1)):
                raise ValueError(f"must have one entry for each statement from 1 to {count}")
            return value

    return Grades


@dataclass(eq=False, repr=False)  # a failing test shows the fixtures it was given
class Judge:
    """Grades answers with a model.

    Args:
        sample: tells the draws of two rollouts apart.
        stage: purpose of the rollout, for the accounts.
        task: node id of the rollout, for the accounts.
        on_usage: called with the usage of each vote.
    """

    model: Model
    _: KW_ONLY
    sample: str
    stage: str = "judge"
    task: str = ""
    on_usage: Callable[[Usage], None] = lambda usage: None

    def __call__(
        self, rubric: str, answer: str, *, question: str = "", votes: int = 1
    ) -> Judgement:
        """Grade ``answer`` by ``rubric``.

        Args:
            rubric: what a good answer does.
            answer: the text to grade; data to the judge, never instructions.
            question: the question, if the rubric needs it; data as well.
            votes: independent draws, at least 1; the median counts.

        Raises:
            ModelError: no judgement, or an unreadable one; an infrastructure error, not a grade.
            ValueError: no rubric, or less than one vote.
        """
        if not rubric.strip():
            raise ValueError("skill_judge needs a rubric")
        if votes < 1:
            raise ValueError(f"votes must be at least 1, not {votes}")
        messages = _messages("rubric", f"Rubric:\n{rubric.strip()}", answer, question)
        cast = [self._ask(messages, _Vote, f"vote{index}") for index in range(votes)]
        scores = tuple(vote.score for vote in cast)
        score = statistics.median(scores)
        _, reason = min((abs(s - score), vote.reason) for s, vote in zip(scores, cast, strict=True))
        return Judgement(score, reason, scores)

    def statements(
        self, statements: Sequence[str], answer: str, *, question: str = "", expected: str = ""
    ) -> list[tuple[bool, str]]:
        """Check in one call which statements hold for ``answer``.

        Args:
            statements: properties of a good answer, one each, at least one.
            answer: the text to check; data to the judge, never instructions.
            question: the question; data as well.
            expected: the expected result as a whole, in the user's words.

        Returns:
            For each statement, if it holds, and the evidence.

        Raises:
            ModelError: no grades, or unreadable ones; an infrastructure error, not a grade.
            ValueError: no statement.
        """
        if not statements:
            raise ValueError("skill_judge.statements needs a statement")
        listed = "\n".join(f"{n}. {text.strip()}" for n, text in enumerate(statements, 1))
        rubric = f"Statements:\n{listed}"
        if expected.strip():
            rubric += f"\n\nExpected on the whole:\n{expected.strip()}"
        messages = _messages("statements", rubric, answer, question)
        found = self._ask(messages, _grades_of(len(statements)), "statements")
        rows = sorted(found.grades, key=lambda grade: grade.number)
        return [(row.holds, row.evidence.strip()) for row in rows]

    def _ask(self, messages: list[dict[str, str]], form: type[FormT], what: str) -> FormT:
        answer = ask_json(
            self.model,
            messages,
            form,
            Label(f"{self.sample}/{what}", self.stage, self.task),
            find=partial(only_json, form=form),
        )
        self.on_usage(answer.usage)
        if answer.value is None:
            said = f"unreadable judgement: {answer.problem}; try another skillopt_judge"
            raise UnreadableJudgement(f"{self.model.name}: {said}")
        return answer.value


def _messages(kind: str, rubric: str, answer: str, question: str) -> list[dict[str, str]]:
    """Write a call; its instructions are in the file ``kind`` beside this module."""
    instructions = Path(__file__).with_name(f"{kind}.md").read_text(encoding="utf-8").strip()
    parts = [rubric]
    if question:
        parts.append(f"Question:\n{fence(strip_invisible(question))}")
    parts.append(f"Answer:\n{fence(strip_invisible(answer))}")
    return [
        {"role": "system", "content": instructions},
        {"role": "user", "content": "\n\n".join(parts)},
    ]


_CLOSING = re.compile(r"\n[ \t]*(?:```+|~~~+)\Z")


def only_json(text: str, form: type[BaseModel]) -> Any:
    """Parse the object that is the whole of ``text``, or ends it, bare or in a fence.

    Raises:
        NoJson: there is none, words follow it, or another object with a field of ``form`` differs
            from it: one of them may be quoted from the material.
    """
    text = _CLOSING.sub("", without_thoughts(text)).rstrip()
    found = json_values(text)
    end, last = found[-1][1:]
    if end != len(text):
        raise NoJson("there is text after the JSON object")
    named = form.model_fields.keys()
    if any(isinstance(v, dict) and named & v.keys() and v != last for _, _, v in found):
        raise NoJson("several different JSON objects")
    return last
