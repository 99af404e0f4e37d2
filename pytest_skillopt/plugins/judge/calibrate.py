"""Measure how far a judge agrees with people: ``pytest-skillopt judge calibrate labelled.jsonl``.

Each line of the file is an object with ``answer``, ``rubric``, ``label`` (true, false, or a number
in [0, 1]; at least 0.5 means true) and, if the rubric needs it, ``question``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, Field, ValidationError

from pytest_skillopt.cli import tell
from pytest_skillopt.errors import UsageError, UserError
from pytest_skillopt.model.types import ModelError
from pytest_skillopt.plugins.judge.judge import Judge, UnreadableJudgement
from pytest_skillopt.rates import interval
from pytest_skillopt.words import percent, plural

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_skillopt.model.types import Model

FEW = 30
"""Number of labels below which the interval is too wide to be useful."""


class Label(BaseModel):
    """A labelled answer."""

    answer: str = Field(pattern=r"\S")
    rubric: str = Field(pattern=r"\S")
    label: float = Field(ge=0, le=1)
    question: str | None = None


def read_labels(path: Path) -> list[Label]:
    """Read the labelled answers of a file of JSON lines.

    Raises:
        UserError: the file or a line cannot be read, or there is no answer.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: {error}") from None
    rows: list[Label] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            rows.append(Label.model_validate_json(line))
        except ValidationError:
            raise UserError(
                f"{path}:{number}: an object with the texts 'answer' and 'rubric' and a 'label' of "
                "true, false or a number from 0 to 1 is expected"
            ) from None
    if not rows:
        raise UserError(f"{path}: there is no labelled answer")
    return rows


def calibrate(model: Model, path: Path) -> int:
    """Grade each labelled answer once, and print the agreement.

    An answer whose grade cannot be read, or does not come, is named and left out.

    Raises:
        UserError: see :func:`read_labels`; no grade could be read.
        ModelError: the first call of the judge failed.
    """
    rows = read_labels(path)
    tell(f"{plural(len(rows), 'call')} of {model.name}, one for each label")
    judge = Judge(model, sample="calibrate")
    pairs: list[tuple[bool, bool]] = []
    for row in rows:
        try:
            grade = judge(row.rubric, row.answer, question=row.question or "")
        except ModelError as error:
            # After the first grade, which is paid for, those that there are count.
            if error.fatal or not (pairs or isinstance(error, UnreadableJudgement)):
                raise
            tell(f"  left out: {row.answer[:70]!r}: {error}")
            continue
        says = grade.score >= 0.5
        people = row.label >= 0.5
        pairs.append((says, people))
        if says != people:
            tell(f"  differs: {row.answer[:70]!r}: {grade.reason[:120]}")
    if not pairs:
        raise UserError(f"{model.name}: no grade could be read")
    low, high = interval([(judge == people, 1) for judge, people in pairs])
    agreement = f"agreement {percent(agreed(pairs))} ({percent(low)} to {percent(high)})"
    beyond = f"on {plural(len(pairs), 'label')}, kappa {kappa(pairs):.2f}"
    judge_only = f"only the judge says yes {plural(pairs.count((True, False)), 'time')}"
    people_only = f"only people {plural(pairs.count((False, True)), 'time')}"
    tell(f"{agreement} {beyond}; {judge_only}, {people_only}")
    if len(pairs) < FEW:
        tell(f"this is too few labels for a reliable figure: have at least {FEW}")
    return 0


def agreed(pairs: Sequence[tuple[bool, bool]]) -> float:
    """Return the share of labels that the judge agrees with, in [0, 1].

    Args:
        pairs: whether the judge says yes, and people do, for each label; at least one.
    """
    return sum(judge == people for judge, people in pairs) / len(pairs)


def kappa(pairs: Sequence[tuple[bool, bool]]) -> float:
    """Return the agreement beyond chance, in [-1, 1] (Cohen, 1960); 0 if it is undefined."""
    judge, people = (sum(said) / len(pairs) for said in zip(*pairs, strict=True))
    chance = judge * people + (1 - judge) * (1 - people)
    return 0.0 if chance == 1 else (agreed(pairs) - chance) / (1 - chance)
