"""Let a rule decide between two versions of a skill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_skillopt import words
from pytest_skillopt.gate.data import CANDIDATE, INCUMBENT, Verdict
from pytest_skillopt.rollouts.sampler import Stop, StopRun
from pytest_skillopt.run.directory import mode_of
from pytest_skillopt.run.past import earlier_rollouts
from pytest_skillopt.search.outcome import arm_of, comparison, cost_of, task_rows
from pytest_skillopt.search.samples import Evidence, count_in
from pytest_skillopt.skill.version import NO_SKILL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_skillopt import SequentialGate, Version
    from pytest_skillopt.gate.data import Draw
    from pytest_skillopt.rollouts.rollout import Rollout, RolloutRequest
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import Arm, SkillResult, TaskRow

    Fields = Mapping[str, Any]
    """Fields of a ``SkillResult``, by name."""


GO_ON = "repeat the command to go on, after a cap with a higher one"
"""Advice after a comparison that has no verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Two versions of a skill, the rule that decides between them, and the words of the answer."""

    before: Version
    after: Version
    gate: SequentialGate
    told: Callable[[Fields], Fields] = lambda found: {}
    """Returns what the mode tells besides, or in place of what the comparison has found."""


def answer(run: Run, skill: str, question: Question) -> SkillResult:
    """Let the rule of a question decide, and describe what was measured."""
    run.probe()
    sampler = run.sampler
    before = question.before
    after = question.after
    versions = {
        INCUMBENT: sampler.add_version(skill, before),
        CANDIDATE: sampler.add_version(skill, after),
    }

    def taken(draws: Sequence[Draw]) -> list[Rollout]:
        requests = [sampler.request(d.task, versions[d.arm], d.stream, d.index) for d in draws]
        return take(run, requests)

    evidence = Evidence(taken)
    question.gate.purse = run.meter.purse
    verdict = _decide(question.gate, evidence)
    run.journal.write("verdict", {"candidate": versions[CANDIDATE], **verdict.to_json()})
    old = evidence.before
    new = evidence.after
    rows = task_rows(run.tasks_of(skill), old, new, verdict)
    # A gate may skip tasks: compare only those that were measured under both versions.
    both = [row for row in rows if row.before.n and row.after and row.after.n]
    found: dict[str, Any] = {
        "status": verdict.decision,
        "reason": verdict.reason,
        "suite": comparison(both or rows),
        "verdict": verdict.to_json(),
        "tasks": rows,
        "cost": cost_of(old, new) if old and new else None,
    }
    if NO_SKILL not in (before, after):
        found |= with_none(run, skill, rows)
    found |= question.told(found)
    gate = question.gate
    if gate.is_cut:
        found["reason"] += (
            f"; a cap ended the comparison: {run.meter.purse.pays()}, and it takes up to "
            f"{words.number(int(gate.limit))}; {GO_ON}"
        )
    elif found["status"] == "unmeasured" and verdict.e_value is None:
        # A check that has weighed its evidence says itself what is missing.
        found["reason"] += f"; {GO_ON}"
    return run.skill_result(skill, before, after, **found)


def take(run: Run, requests: Sequence[RolloutRequest]) -> list[Rollout]:
    """Take rollouts, and count in the purse of the run what they cost.

    Raises:
        StopRun: a cap or a fault ended the run.
    """
    rollouts = run.sampler.take(requests)
    count_in(run.meter.purse, rollouts)
    return rollouts


def _decide(gate: SequentialGate, evidence: Evidence) -> Verdict:
    """Carry out a decision; it is undecided if a cap ends it: what was measured is kept."""
    try:
        return evidence.decide(gate)
    except StopRun as stop:
        if stop.kind is not Stop.CAP:
            raise
        undecided = f"stopped before it was decided: {stop.reason}"
        return Verdict("unmeasured", undecided, gate=gate.name)


def with_none(run: Run, skill: str, rows: Sequence[TaskRow]) -> Fields:
    """Return the rows with what an earlier run has measured without any skill, and its name."""
    none, measured_by = _without_skill(run, skill)
    tasks = [row.model_copy(update={"none": none.get(row.id)}) for row in rows]
    return {"tasks": tasks, "none_from": measured_by if rows else ""}


def _without_skill(run: Run, skill: str) -> tuple[dict[str, Arm], str]:
    """Return the latest run that compared with ``none``: its results by task, and its name."""
    wanted = (skill, NO_SKILL.digest, run.fingerprint)
    for name, rollouts in earlier_rollouts(run.home, run.tasks_of(skill)):
        found: dict[str, list[Rollout]] = {}
        for rollout in rollouts:
            asked = rollout.request
            if (asked.skill, asked.version, asked.model) == wanted:
                found.setdefault(asked.task, []).append(rollout)
        if found and mode_of(run.home.runs / name) != "train":
            return {task: arm_of(taken) for task, taken in found.items()}, name
    return {}, ""
