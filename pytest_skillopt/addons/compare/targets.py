"""The comparison of two versions on further targets.

An accepted training asks a target one question, whether the new version is worse there, by the rule
of ``--skillopt-check`` and on samples of that target only. ``--skillopt-compare`` asks the question
of its own gate.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_skillopt.addons import figures
from pytest_skillopt.addons.compare.comparison import compared
from pytest_skillopt.addons.compare.gates import RegressionCheck
from pytest_skillopt.model.config import check_prices
from pytest_skillopt.model.types import ModelConfigError
from pytest_skillopt.modes.opening import probed_roles
from pytest_skillopt.report import words
from pytest_skillopt.run.result import TargetRow
from pytest_skillopt.search.extensions import configured_gate, gate_options, gate_tasks
from pytest_skillopt.suite.sampler import Stop, StopRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt import Document, Gate, Result, SkillTask
    from pytest_skillopt.gate.data import GateTask
    from pytest_skillopt.model.roles import Models
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import SkillResult, Status
    from pytest_skillopt.settings import Settings

_WORDS: dict[str, dict[Status, str]] = {
    "train": {"accepted": "not worse", "rejected": "worse"},
    "compare": {"accepted": "better", "rejected": "not better"},
}


def check_targets(models: Models, tasks: Sequence[SkillTask]) -> str:
    """Check every target before anything is paid for but a tiny call each; name them.

    Raises:
        ModelConfigError: a target cannot be used, or is the same as another one.
    """
    names, settings = models.settings.more_targets, models.settings
    if not any("target" in task.roles for task in tasks):
        raise ModelConfigError("skillopt_verify: no task uses the target model or an agent")
    known = {_address(models): "the target"}
    for name in names:
        other = models.other(name)
        if other.kind and not any(task.agent for task in tasks):
            raise ModelConfigError(f"skillopt_verify: no task runs the agent of {name}")
        model = other.get("target")
        if twin := known.get(_address(other)):
            raise ModelConfigError(f"skillopt_verify: {name} is the same model as {twin}")
        known[_address(other)] = name
        if settings.max_cost and hasattr(model, "config"):
            check_prices([model.config])
        other.probe(probed_roles(["target"], tasks), lambda: "")
    return f"the last comparison is repeated on {', '.join(names)}"


def _address(models: Models) -> str:
    """Return the fingerprint of the target, with what a kind of target adds to it."""
    fingerprint = models.get("target").fingerprint
    whole = f"{fingerprint} {models.kind}".encode()
    return hashlib.sha256(whole).hexdigest() if models.kind else fingerprint


def compare_on_targets(
    run: Run, result: SkillResult, before: Document, after: Document, rule: str
) -> SkillResult:
    """Add a row for each target; with the rule ``none_worse`` refuse what one of them refuses.

    Raises:
        StopRun: the session was interrupted.
    """
    training, names = run.mode.name == "train", run.settings.more_targets
    rows = [] if training else [_row(run, run.roles.get("target", "the target"), result)]
    found = []
    for number, name in enumerate(names):
        found.append(_compared(run, result, name, before, after, len(names) - number))
        rows.append(_row(run, name, found[-1]))
    result = result.model_copy(update={"targets": rows})
    if not training or rule != "none_worse":
        return result
    for status, said in (("rejected", "is worse on"), ("unmeasured", "could not be compared on")):
        for name, one in zip(names, found, strict=True):
            if one.status == status:
                reason = f"better, but it {said} {name} (skillopt_verify_rule): {one.reason}"
                return result.model_copy(update={"status": status, "reason": reason})
    return result


def _compared(
    run: Run, result: SkillResult, target: str, before: Document, after: Document, left: int
) -> SkillResult:
    """Compare on one target, the first of ``left``."""
    run.sampler.targets[target] = _address(run.models.other(target))
    try:
        gate = _gate(run, result.path, target, after.version, left)
        return compared(run, result.path, gate, before, after, target=target)
    except StopRun as stop:
        if stop.kind is Stop.INTERRUPTED:
            raise
        return result.model_copy(
            update={"status": "unmeasured", "reason": stop.reason, "suite": None, "tasks": []}
        )


def _gate(run: Run, skill: str, target: str, candidate: str, left: int) -> Gate:
    """Make the gate of a comparison; its size is in the journal before its first sample."""
    if run.mode.name == "compare":
        return configured_gate(run.settings, gate_tasks(run.tasks_of(skill)))
    tasks = gate_tasks(task for task in run.tasks_of(skill) if task.split != "test")
    about = {"skill": skill, "candidate": candidate, "target": target}
    begun = (e.data for e in run.journal.entries if e.kind == "verify")
    rounds = next((data["rounds"] for data in begun if about.items() <= data.items()), 0)
    if not rounds:
        rounds = max(1, run.settings.final_rollouts // 2)
        if (rollouts := run.sampler.rollouts_left) is not None:  # two looks at both versions
            rounds = min(rounds, max(1, rollouts // (4 * len(tasks) * left)))
        run.journal.write("verify", {**about, "rounds": rounds})
    return last_check(tasks, run.settings, rounds)


def last_check(tasks: Sequence[GateTask], settings: Settings, rounds: int) -> RegressionCheck:
    """Make the check of a target, with ``rounds`` of both versions in each of its two looks."""
    most = max(2 * rounds, settings.final_rollouts)
    return RegressionCheck(tasks, replace(gate_options(settings), k0=rounds, kc=rounds, kmax=most))


def _row(run: Run, target: str, found: SkillResult) -> TargetRow:
    costs = [row.cost for row in found.tasks if row.cost is not None]
    arms = [arm for row in found.tasks for arm in (row.before, row.after) if arm]
    unknown = "cannot tell" if found.suite and found.suite.after else "not measured"
    return TargetRow(
        target=target,
        verdict=_WORDS[run.mode.name].get(found.status, unknown),
        reason=found.reason,
        suite=found.suite,
        rollouts=sum(arm.n + arm.errors for arm in arms),
        cost=sum(costs) if costs else None,
    )


def by_target(result: Result) -> list[list[str]]:
    """Lay out the comparison on each target: two rows a target, one for each version."""
    rows = [["target", "version", "pass rate", "95 % interval", "points", "cost", "verdict"]]
    for skill in result.skills:
        about = f"{skill.path}, " if len(result.skills) > 1 else ""
        for row in skill.targets:
            arms = (row.suite.before, row.suite.after) if row.suite else (None, None)
            moved = figures.points(arms[0].rate, arms[1].rate) if arms[0] and arms[1] else ""
            last = [moved, words.money(row.cost), row.verdict]
            name = words.one_line(f"{about}{row.target}")
            for n, (side, rate) in enumerate(zip(figures.sides(result.mode), arms, strict=True)):
                known = [words.percent(rate.rate), figures.interval(rate)] if rate else None
                shown = known or [words.UNKNOWN, ""]
                rows.append(["" if n else name, side, *shown, *([""] * 3 if n else last)])
    return rows
