"""Two versions of a skill against each other: what check, compare and A/A have in common."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.gate.data import TAPE, GateTask, Verdict
from pytest_skillopt.gate.engine import run_gate
from pytest_skillopt.gate.power import smallest_gain
from pytest_skillopt.gate.statistics import noise_floor
from pytest_skillopt.modes.skills import RevisionError, named_skill
from pytest_skillopt.report import words
from pytest_skillopt.run.directory import JOURNAL, mode_of
from pytest_skillopt.run.journal import entries_of
from pytest_skillopt.run.result import SkillResult
from pytest_skillopt.search.outcome import arm_of, comparison, task_row
from pytest_skillopt.search.samples import sample_of
from pytest_skillopt.search.stages import configured_gate
from pytest_skillopt.skill.diff import unified
from pytest_skillopt.skill.document import NO_SKILL
from pytest_skillopt.suite.rollouts import Rollout
from pytest_skillopt.suite.sampler import StopRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_skillopt.gate.data import Draw, Sample
    from pytest_skillopt.gate.engine import Gate
    from pytest_skillopt.report.live import Display
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import Arm, Result, Status
    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.suite.rollouts import RolloutRequest
    from pytest_skillopt.suite.tasks import SkillTask


def gate_tasks(tasks: Iterable[SkillTask]) -> list[GateTask]:
    return [GateTask(task.id, task.must_pass) for task in tasks]


def compared(
    run: Run,
    skill: str,
    gate: Gate,
    before: Document,
    after: Document,
    stored: Mapping[str, Sequence[tuple[bool, float]]] = {},
) -> SkillResult:
    """Carry a decision about a skill out; at a cap it is not decided.

    ``stored`` holds (passed, score) of samples that open the tape of the one before, by task.
    """
    incumbent = run.sampler.add_version(skill, before.data)
    candidate = run.sampler.add_version(skill, after.packed)
    versions = {"incumbent": incumbent, "candidate": candidate}
    rollouts: dict[str, dict[str, list[Rollout]]] = {"incumbent": {}, "candidate": {}}

    def take(draws: Sequence[Draw]) -> list[Sample]:
        requests = {
            draw: run.sampler.request(draw.task, versions[draw.arm], draw.stream, draw.index)
            for draw in draws
        }
        recalled = {draw: found for draw in draws if (found := recall(draw, requests[draw]))}
        fresh = [request for draw, request in requests.items() if draw not in recalled]
        sampled = iter(run.sampler.take(fresh))
        taken = [recalled.get(draw) or next(sampled) for draw in draws]
        for draw, rollout in zip(draws, taken, strict=True):
            rollouts[draw.arm].setdefault(draw.task, []).append(rollout)
        return list(map(sample_of, draws, taken))

    def recall(draw: Draw, request: RolloutRequest) -> Rollout | None:
        known = stored.get(draw.task, ()) if draw.arm == "incumbent" else ()
        if draw.stream != TAPE or draw.index >= len(known):
            return None
        passed, score = known[draw.index]
        return Rollout(request, "passed" if passed else "failed", score=score, worker="baseline")

    try:
        verdict = run_gate(gate, take)
    except StopRun as stop:
        if stop.kind != "cap":
            raise
        verdict = _undecided(gate, stop.reason)
    run.journal.write("verdict", {"candidate": candidate, **verdict.to_json()})
    changes = {task.task: task.change for task in verdict.tasks}
    old, new = rollouts["incumbent"], rollouts["candidate"]
    rows = [
        task_row(task, old.get(task.id, []), new.get(task.id, []), changes.get(task.id, "same"))
        for task in run.tasks_of(skill)
    ]
    # A gate may leave tasks out: a difference is told of those that were measured under both.
    both = [row for row in rows if row.before.n and row.after and row.after.n]
    return SkillResult(
        path=skill,
        name=after.name,
        before=before.version,
        after=after.version,
        status=verdict.decision,
        reason=verdict.reason,
        patch=unified(before, after, skill),
        suite=comparison(both or rows),
        verdict=verdict.to_json(),
        tasks=rows,
    )


def _undecided(gate: Gate, reason: str) -> Verdict:
    """What was measured stays; what a cap left out is no evidence of anything."""
    asked = gate.ask()
    wanting = 0 if isinstance(asked, Verdict) else len(asked)
    return Verdict(
        "unmeasured",
        f"stopped before it was decided: {reason}",
        gate=getattr(gate, "name", type(gate).__name__),
        missing=f"at least {wanting} samples more",
    )


def without_skill(run: Run, skill: str) -> tuple[dict[str, Arm], str]:
    """What the latest comparison with ``none`` has measured without any skill, by task, and its
    name."""
    sources = {task.id: task.source for task in run.tasks_of(skill)}
    same = {"skill": skill, "version": NO_SKILL.version, "model": run.fingerprint}
    for name in reversed(run.home.run_names()):
        if mode_of(run.home.runs / name) not in ("compare", "check"):
            continue
        found: dict[str, list[Rollout]] = {}
        for data in entries_of(run.home.runs / name / JOURNAL, "rollout"):
            asked = data["request"]
            if same.items() <= asked.items() and sources.get(asked["task"]) == asked["source"]:
                found.setdefault(asked["task"], []).append(Rollout.from_json(data))
        if found:
            return {task: arm_of(rollouts) for task, rollouts in found.items()}, name
    return {}, ""


def joined_reasons(results: Sequence[SkillResult]) -> str:
    if len(results) == 1:
        return results[0].reason
    return "; ".join(
        r.reason if r.reason.startswith(r.path) else f"{r.path}: {r.reason}" for r in results
    )


def compare(run: Run, display: Display) -> Result:
    """Put two versions of the suite's one skill through the gate; UsageError where there is none
    such."""
    if len(run.documents) != 1:
        named = ", ".join(run.documents)
        several = f"these tasks are about several ({named}): choose some with -k or a path"
        raise pytest.UsageError(f"--skillopt-compare is about one skill and {several}")
    display.begin("comparison")
    (skill,) = run.documents
    first, second = run.mode.pair
    try:
        before, after = (
            named_skill(run.root, run.home, skill, name, run.documents[skill], run.settings.files)
            for name in (first, second)
        )
    except RevisionError as error:
        raise pytest.UsageError(f"--skillopt-compare: {error}") from None
    if before.version == after.version:
        words = f"{first} and {second} are the same; --skillopt-aa compares a skill with itself"
        raise pytest.UsageError(f"--skillopt-compare: {words}")
    gate = configured_gate(run.settings, gate_tasks(run.tasks_of(skill)))
    result = compared(run, skill, gate, before, after)
    return run.result(result.status, result.reason, [result])


def compare_with_itself(run: Run, display: Display) -> Result:
    """Two evaluations of one version: what differs between them is noise."""
    display.begin("comparison with itself")
    skills = [_measure(run, skill) for skill in run.documents]
    unmeasured = any(skill.status == "unmeasured" for skill in skills)
    status: Status = "unmeasured" if unmeasured else "measured"
    return run.result(status, joined_reasons(skills), skills)


def _measure(run: Run, skill: str) -> SkillResult:
    document = run.documents[skill]
    version = run.sampler.add_version(skill, document.packed)
    tasks = run.tasks_of(skill)
    rollouts = run.settings.rollouts
    taken = run.sampler.take(
        [
            run.sampler.request(task.id, version, stream, index)
            for index in range(rollouts)
            for stream in ("aa/1", "aa/2")
            for task in tasks
        ]
    )
    of = {task.id: [r for r in taken if r.request.task == task.id] for task in tasks}
    rows = []
    for task in tasks:
        first, second = (
            [r for r in of[task.id] if r.request.stream == s] for s in ("aa/1", "aa/2")
        )
        rows.append(task_row(task, first, second))
    counts = [(sum(r.passed for r in f), sum(r.measured for r in f)) for f in of.values()]
    floor = noise_floor(counts, rollouts)
    least = smallest_gain(counts, partial(configured_gate, run.settings))
    flaky = sum(row.flaky for row in rows)
    seen = (
        "the suite leaves no room for a gain that the gate could see"
        if least is None
        else f"the smallest gain that the gate sees four times in five is {100 * least:.1f} points"
    )
    reason = (
        f"two evaluations of {words.plural(rollouts, 'rollout')} a task differ by "
        f"{100 * floor:.1f} points (one standard deviation) from chance alone; {flaky} of "
        f"{words.plural(len(rows), 'task')} {'is' if flaky == 1 else 'are'} flaky; {seen}"
    )
    measured = any(n for _, n in counts)
    return SkillResult(
        path=skill,
        name=document.name,
        before=version,
        after=version,
        status="measured" if measured else "unmeasured",
        reason=reason if measured else f"{skill}: nothing could be measured",
        suite=comparison(rows),
        noise_floor=floor,
        smallest_gain=least,
        tasks=rows,
    )
