"""Journals as a training would leave them, of any size."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from pytest_skillopt.model.types import Usage
from pytest_skillopt.rollouts.rollout import InfraError, Message, Rollout, RolloutRequest
from pytest_skillopt.run.journal import Journal
from pytest_skillopt.run.result import EditRow, StepRow

if TYPE_CHECKING:
    from pathlib import Path

START, NEXT, OTHER = "a" * 64, "b" * 64, "c" * 64


def write_journal(
    run: Path,
    *,
    tasks: int = 3,
    rollouts: int = 12,
    text: str = "plain",
    gated: bool = True,
    other: str = "",
) -> Journal:
    """Make ``run`` a training that has come to its second step; returns the open journal.

    Args:
        text: stands wherever a test or a model could have written.
        gated: the gate was asked in the second step.
        other: a second skill, whose training has come to its first step.
    """
    run.mkdir(parents=True, exist_ok=True)
    journal = Journal(run / "journal.jsonl")
    names = [f"tests/test_it.py::test_it[{i}-{text}]" for i in range(tasks)]
    skills = {"SKILL.md": START} | ({other: OTHER} if other else {})
    journal.write("run", {"mode": "train", "skills": skills, "settings": {}})
    journal.write(
        "plan",
        {
            "tasks": [[name, ("train", "val", "test")[i % 3]] for i, name in enumerate(names)],
            "typical": 2 * rollouts,
            "most": 4 * rollouts,
            "caps": {"max_calls": 500, "max_cost": 2.5, "max_time": 0},
            "models": {"target": "openai:worker", "optimizer": "openai:thinker"},
        },
    )
    luck = random.Random(0)
    for number in range(rollouts):
        task = names[number % tasks]
        version = START if number < rollouts // 2 else NEXT
        request = RolloutRequest(task, "source", "SKILL.md", version, "m", "train", number // tasks)
        passed = luck.random() < (0.3 if version == START else 0.8)
        rollout = Rollout(
            request,
            "passed" if passed else "failed",
            1.0 if passed else 0.0,
            "" if passed else f"AssertionError: {text}",
            transcript=(Message("user", text), Message("assistant", f"reply {number}: {text}")),
            usage=Usage(calls=1, input_tokens=100, output_tokens=10, cost=0.001),
            duration=0.5,
            worker=f"gw{number % 4}",
        )
        journal.write("rollout", rollout.to_json(), key=request.key)
    lost = Rollout(request, "error", error=InfraError("provider", f"HTTP 500: {text}"))
    journal.write("error", lost.to_json())
    edit = EditRow(op="append", content=f"- {text}", reason=text, step=1, tasks=names[:1])
    first = {"skill": "SKILL.md"}
    journal.write("edit", first | edit.model_dump() | {"status": "waiting"})
    given_up = EditRow(op="append", content=f"- no {text}", step=1, status="given up", why=text)
    journal.write("edit", first | given_up.model_dump())
    second = StepRow(step=2, train=0.8, edits=1)
    if gated:
        second = second.model_copy(update={"before": 0.4, "after": 0.9, "verdict": "accepted"})
    for step in (
        StepRow(step=1, train=0.3, reason=f"2 edits tried: {text}"),
        second,
    ):
        journal.write("step", first | step.model_dump())
    if other:
        request = RolloutRequest(names[0], "source", other, OTHER, "m", "train", 0)
        journal.write("rollout", Rollout(request, "failed").to_json(), key=request.key)
        journal.write("edit", {"skill": other} | edit.model_dump())
        journal.write("step", {"skill": other} | StepRow(step=1, train=0.5).model_dump())
    return journal
