"""Reflect: analysts read rollouts and propose edits, failures and successes apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.edits.calls import Body, Edits, FormT, Question, Reminders
from pytest_skillopt.edits.material import evidence, material
from pytest_skillopt.edits.proposals import Patch, Proposal, whole_body
from pytest_skillopt.skill.edits import Edit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_skillopt.edits.material import Context
    from pytest_skillopt.edits.proposals import Origin
    from pytest_skillopt.edits.records import TaskRecord


def reflect(records: Sequence[TaskRecord], context: Context) -> list[Patch]:
    """One patch for each analyst that had something to propose.

    Tasks that fail go to analysts of failures, in minibatches that share a way of failing; tasks
    that always pass to analysts of successes, unless ``failure_only``. With ``skill_aware``, tasks
    that sometimes pass under the same text are lapses and yield reminders.
    """
    if context.settings.update_mode == "full_rewrite_minibatch":
        return _reflect_bodies(records, context)
    failing = [record for record in records if record.failed]
    lapses: list[TaskRecord] = []
    if context.settings.skill_aware:
        lapses = [record for record in failing if record.mixed]
        failing = [record for record in failing if not record.mixed]
    patches = _reflect_edits("reflect_failures", failing, context)
    if not context.settings.failure_only:
        passing = [record for record in records if record.n and not record.failed]
        patches += _reflect_edits("reflect_successes", passing, context)
    return patches + _reflect_lapses(lapses, context)


def minibatches(
    records: Sequence[TaskRecord], size: int, context: Context, purpose: str
) -> list[list[TaskRecord]]:
    """Groups of at most ``size`` tasks, those that fail alike together, contrasts first.

    A way of failing that fills a minibatch has it to itself; rarer ones share what is left. The
    order within a way of failing is shuffled by seed and step.
    """
    shuffled = list(records)
    context.random(purpose).shuffle(shuffled)
    alike: dict[str, list[TaskRecord]] = {}
    for record in sorted(shuffled, key=_informative):
        alike.setdefault(record.signature, []).append(record)
    batches: list[list[TaskRecord]] = []
    rest: list[list[TaskRecord]] = []
    for group in sorted(alike.values(), key=lambda group: (-len(group), group[0].signature)):
        chunks = [group[i : i + size] for i in range(0, len(group), size)]
        batches += [chunk for chunk in chunks if len(chunk) == size]
        rest += [chunk for chunk in chunks if len(chunk) < size]
    return batches + _pack(rest, size)


def _pack(groups: Iterable[list[TaskRecord]], size: int) -> list[list[TaskRecord]]:
    packed: list[list[TaskRecord]] = []
    for group in groups:
        room = next((batch for batch in packed if len(batch) + len(group) <= size), None)
        if room is None:
            packed.append(list(group))
        else:
            room.extend(group)
    return packed


def _informative(record: TaskRecord) -> float:
    """Smaller for tasks whose samples disagree: a contrast tells the most."""
    return abs(record.rate - 0.5) if record.mixed else 1.0


def _reflect_edits(template: str, records: Sequence[TaskRecord], context: Context) -> list[Patch]:
    batches = _drawn(records, context, template)
    patches = []
    for batch, answer in _ask(template, Edits, batches, context, ending="answer_edits"):
        if answer.edits:
            edits = [Edit(e.op, e.target, e.content) for e in answer.edits[: context.budget]]
            patches.append(_patch(edits, answer.reasoning, batch, context))
    return patches


def _reflect_lapses(records: Sequence[TaskRecord], context: Context) -> list[Patch]:
    batches = _drawn(records, context, "lapses")
    patches = []
    for batch, answer in _ask("reflect_lapses", Reminders, batches, context):
        if answer.reminders:
            edits = [Edit("append", "", line) for line in answer.reminders[: context.budget]]
            patches.append(_patch(edits, answer.reasoning, batch, context, origin="appendix"))
    return patches


def _reflect_bodies(records: Sequence[TaskRecord], context: Context) -> list[Patch]:
    ordered = [record for record in records if record.failed]
    if not context.settings.failure_only:
        ordered += [record for record in records if record.n and not record.failed]
    batches = _drawn(ordered, context, "bodies")
    return [
        Patch(
            (whole_body(answer.reasoning, [r.task.id for r in batch], context.step),),
            answer.reasoning,
            body=answer.body,
        )
        for batch, answer in _ask("reflect_rewrite", Body, batches, context)
    ]


def _ask(
    template: str,
    form: type[FormT],
    batches: Sequence[tuple[int, int, list[TaskRecord]]],
    context: Context,
    *,
    ending: str = "",
) -> list[tuple[list[TaskRecord], FormT]]:
    """Put every minibatch before an analyst; those that were answered, with the answers.

    Args:
        ending: another template, that goes below the first.
    """
    instructions = context.calls.prompts.render(template, budget=context.budget)
    if ending:
        instructions += f"\n\n{context.calls.prompts.render(ending)}"
    answers = context.calls.ask(
        [
            Question(
                "reflect",
                f"{context.label}/{template}/{draw}/{number}",
                instructions,
                material(context, ("Rollouts", evidence(batch, context))),
                form,
            )
            for draw, number, batch in batches
        ]
    )
    return [
        (batch, answer)
        for (_, _, batch), answer in zip(batches, answers, strict=True)
        if answer is not None
    ]


def _drawn(
    records: Sequence[TaskRecord], context: Context, purpose: str
) -> list[tuple[int, int, list[TaskRecord]]]:
    """The minibatches of every draw, with the draw's number and their own."""
    return [
        (draw, number, batch)
        for draw in range(context.draw, context.draw + context.repeat)
        for number, batch in enumerate(
            minibatches(records, context.minibatch, context, f"{purpose}/{draw}")
        )
    ]


def _patch(
    edits: Iterable[Edit],
    reasoning: str,
    batch: Sequence[TaskRecord],
    context: Context,
    *,
    origin: Origin | None = None,
) -> Patch:
    asking = tuple(record.task.id for record in batch)
    kind = origin or _origin(batch)
    return Patch(
        tuple(Proposal(e, reasoning, asking, origin=kind, step=context.step) for e in edits),
        reasoning,
    )


def _origin(batch: Sequence[TaskRecord]) -> Origin:
    if not any(record.failed for record in batch):
        return "success"
    return "contrast" if all(record.mixed for record in batch) else "failure"
