"""Reflect: analysts read rollouts and propose edits, separately for failures and successes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_skillopt.edits.combine import Patch
from pytest_skillopt.edits.context import evidence
from pytest_skillopt.edits.records import MOST_SAMPLED
from pytest_skillopt.skill.edits import with_links

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_skillopt.edits.calls import Edits, FormT
    from pytest_skillopt.edits.context import Context
    from pytest_skillopt.edits.records import TaskRecord
    from pytest_skillopt.skill.edits import Edit, Origin


def reflect(records: Sequence[TaskRecord], context: Context) -> list[Patch]:
    """Return one patch for each analyst that proposed edits.

    Failing tasks go to analysts of failures, in minibatches that share a pattern of failure; tasks
    that always pass go to analysts of successes.
    """
    failing = [record for record in records if record.failed]
    passing = [record for record in records if record.n and not record.failed]
    return [
        *ask_for_edits("reflect_failures", failing, context),
        *ask_for_edits("reflect_successes", passing, context),
    ]


def minibatches(
    records: Sequence[TaskRecord], size: int, context: Context, purpose: str
) -> list[list[TaskRecord]]:
    """Group at most ``size`` tasks each: tasks with equal patterns of failure, contrasts first.

    A pattern that fills a minibatch gets one by itself; rarer ones share minibatches. The order
    within a pattern is shuffled by seed and step.
    """
    shuffled = list(records)
    context.random(purpose).shuffle(shuffled)
    alike: dict[str, list[TaskRecord]] = {}
    for record in sorted(shuffled, key=_informative):
        alike.setdefault(record.signature, []).append(record)
    batches: list[list[TaskRecord]] = []
    shared: list[list[TaskRecord]] = []
    for group in sorted(alike.values(), key=lambda group: (-len(group), group[0].signature)):
        for chunk in (group[i : i + size] for i in range(0, len(group), size)):
            room = next((batch for batch in shared if len(batch) + len(chunk) <= size), None)
            if len(chunk) == size:
                batches.append(chunk)
            elif room is None:
                shared.append(chunk)
            else:
                room += chunk
    return batches + shared


def _informative(record: TaskRecord) -> float:
    """Return a sort key that puts tasks with mixed samples first, then those with a wide spread."""
    return abs(record.rate - 0.5) if record.mixed else 1.0 - record.spread * record.contrasts / 2


def ask_for_edits(
    template: str,
    records: Sequence[TaskRecord],
    context: Context,
    form: type[Edits] | None = None,
    **more: Any,
) -> Iterator[Patch]:
    """Ask analysts by a template; yield one patch for each that proposed edits.

    ``form`` is that of the answers; ``more`` goes to the ``read`` of its edits.
    """
    for batch, answer in ask_analysts(template, form or context.form, records, context):
        about = {
            "reason": answer.reasoning,
            "tasks": ids(batch),
            "step": context.step,
            "origin": _origin(batch),
            **more,
        }
        edits = [replace(edit, support=1, **about) for edit in _chosen_again(answer, context)]
        edits += [edit.read(**about) for edit in answer.edits[: context.budget]]
        if edits := with_links(edits, context.version):
            yield Patch(tuple(edits), answer.reasoning)


def ask_analysts(
    template: str, form: type[FormT], records: Sequence[TaskRecord], context: Context
) -> list[tuple[list[TaskRecord], FormT]]:
    """Ask an analyst about each minibatch; return the answered ones with their answers."""
    name = f"{template}/{context.draw}"
    batches = minibatches(records, context.minibatch, context, name)
    questions = []
    for number, batch in enumerate(batches):
        section = ("Rollouts", evidence(batch, context))
        label = f"{name}/{number}"
        question = context.question(
            "reflect", template, form, section, label=label, budget=context.budget
        )
        questions.append(question)
    answers = zip(batches, context.calls.ask(questions), strict=True)
    return [(batch, answer) for batch, answer in answers if answer is not None]


def _chosen_again(answer: Edits, context: Context) -> list[Edit]:
    """Return the edits under test whose numbers an analyst has given."""
    listed = dict(enumerate(context.sampled[:MOST_SAMPLED], start=1))
    return [listed[number].edit for number in dict.fromkeys(answer.again) if number in listed]


def ids(batch: Sequence[TaskRecord]) -> tuple[str, ...]:
    return tuple(record.task.id for record in batch)


def _origin(batch: Sequence[TaskRecord]) -> Origin:
    if not any(record.failed for record in batch):
        return "success"
    return "contrast" if all(record.contrasts for record in batch) else "failure"
