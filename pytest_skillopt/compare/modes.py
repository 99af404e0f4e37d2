"""The modes that let a rule decide between two versions of a skill.

``--skillopt-compare A B`` is given both versions, and the rule of the settings decides; the others
fill in versions and rule: ``check``, ``try`` and ``drift``. ``aa`` compares a skill with itself.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pytest_skillopt import words
from pytest_skillopt.compare.comparison import GO_ON, Question, answer, take
from pytest_skillopt.compare.gates import HelpsGate, RegressionCheck
from pytest_skillopt.compare.tries import ask_about_a_change
from pytest_skillopt.compare.versions import NONE, Revision, find
from pytest_skillopt.errors import UserError
from pytest_skillopt.rates import noise_floor
from pytest_skillopt.rollouts.sampler import OF_ONE_SKILL, Stop, StopRun
from pytest_skillopt.run.past import NO_RESULT, load_runs
from pytest_skillopt.run.result import Arm
from pytest_skillopt.search.extensions import gate_options, gate_tasks, make_gate
from pytest_skillopt.search.outcome import comparison, task_row
from pytest_skillopt.skill.text import SkillError
from pytest_skillopt.skill.trained import Trained
from pytest_skillopt.skill.version import NO_SKILL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_skillopt import Result, Rollout, Version
    from pytest_skillopt.compare.comparison import Fields
    from pytest_skillopt.mode import Mode
    from pytest_skillopt.report.live import Display
    from pytest_skillopt.run.directory import Home
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import SkillResult, Status
    from pytest_skillopt.tasks.task import SkillTask

    Ask = Callable[[Run, str], Question | SkillResult]
    """Returns the question about a skill, or the result if there is nothing to run."""


def compare(run: Run, display: Display) -> Result:
    """Answer the mode's question about each skill of the suite.

    Raises:
        pytest.UsageError: several skills in a mode of one, or a version that cannot be read.
    """
    mode = COMPARISONS[run.mode.name]
    skills = _only_skill(run, mode.does) if mode.does else run.versions
    display.begin(mode.phase)
    results = [_compare_skill(run, skill, mode.ask) for skill in skills]
    return run.result_of(results)


def _compare_skill(run: Run, skill: str, ask: Ask) -> SkillResult:
    """Answer the question about a skill; errors of its tests spare the other skills."""
    run.sampler.settle()  # else rollouts of the skill before count against this one
    try:
        return _answer(run, skill, ask)
    except StopRun as stop:
        if stop.kind not in OF_ONE_SKILL or len(run.versions) == 1:
            raise
        now = run.versions[skill]
        return run.skill_result(skill, now, now, status="unmeasured", reason=stop.reason)


def _answer(run: Run, skill: str, ask: Ask) -> SkillResult:
    try:
        found = ask(run, skill)
    except (UserError, OSError) as error:
        raise _usage_error(run.mode, error) from None
    return answer(run, skill, found) if isinstance(found, Question) else found


def _usage_error(mode: Mode, error: Exception) -> pytest.UsageError:
    named = f"={mode.argument}" if isinstance(mode.argument, str) else ""
    return pytest.UsageError(f"{mode.flag}{named}: {error}")


def _only_skill(run: Run, does: str) -> list[str]:
    """Return the path of the suite's only skill; ``does`` is the mode's verb for the error."""
    if len(run.versions) != 1:
        raise pytest.UsageError(
            f"{run.mode.flag} {does} one skill, but these tasks use several "
            f"({', '.join(run.versions)}): select those of one with -k or a path"
        )
    return list(run.versions)


def refuse_versions(root: Path, home: Home, mode: Mode) -> None:
    """Refuse unknown versions before a worker is started."""
    named = mode.argument
    try:
        if mode.name == "try" and not (named and (root / named).exists()):
            raise SkillError("there is no such file or folder")
        if mode.name == "check" and named != NONE:
            Revision(root, named)
        for name in named if mode.name == "compare" else ():
            find(root, home, name)
    except SkillError as error:
        raise _usage_error(mode, error) from None


def _ask_about_two(run: Run, skill: str) -> Question:
    """Compare the two versions that the user names by the rule of the settings."""
    first, second = run.mode.argument
    now = run.versions[skill]
    trained = Trained.of(run.settings)
    before, after = (find(run.root, run.home, n)(skill, now, trained) for n in (first, second))
    if before.digest == after.digest:
        same = f"{first} and {second} are the same; --skillopt-aa compares a skill with itself"
        raise SkillError(same)
    gate = make_gate(run.settings.gate, gate_tasks(run.tasks_of(skill)), gate_options(run.settings))
    return Question(before=before, after=after, gate=gate)


def ask_if_worse(run: Run, skill: str) -> Question | SkillResult:
    """Compare a skill with an earlier version; SkillError if git has none."""
    now = run.versions[skill]
    ref = run.mode.argument
    then, moved = _then(run, skill)
    status: Status = "unmeasured"
    if moved:
        run.notes.append(f"{skill} is compared with {moved} at {ref}")
    if then is None:
        why = "there is nothing to compare it with; if it was moved, stage that with git add"
        reason = f"{skill} did not exist at {ref}: {why}"
    elif then.digest == now.digest:
        status = "unchanged"
        reason = f"{skill} is the same as at {ref}: nothing was run"
    else:
        gate = RegressionCheck(gate_tasks(run.tasks_of(skill)), gate_options(run.settings))
        return Question(before=then, after=now, gate=gate, told=_as_val)
    return run.skill_result(skill, now, now, status=status, reason=reason)


def _as_val(found: Fields) -> Fields:
    return {"val": found["suite"]}


def _then(run: Run, skill: str) -> tuple[Version | None, str]:
    """Return the earlier version, None for a new skill, and its path if it had another one."""
    ref = run.mode.argument
    trained = Trained.of(run.settings)
    if ref == NONE:
        return NO_SKILL, ""
    revision = Revision(run.root, ref)
    if then := revision.skill(skill, trained):
        return then, ""
    revision.check_known(skill)
    place = revision.moved(skill)
    return (revision.skill(place, trained), place) if place else (None, "")


_WORDS = {"accepted": "helps", "rejected": "not shown to help"}
"""Words of a verdict, by the status; a run with another status has no verdict."""
_HISTORY = 5
"""Most earlier verdicts that are told, the latest ones; ``show --list`` has all runs."""


def ask_if_it_helps(run: Run, skill: str) -> Question:
    """Compare no skill with the skill on disk, and note what earlier runs have measured.

    The samples are named after the latest run with a verdict: a repeated command takes up what was
    paid for until there is a new verdict, and then draws afresh, since a model may change under its
    name.
    """
    earlier = _earlier_verdicts(run, skill)
    for result, row in earlier[-_HISTORY:]:
        run.notes.append(_measured_before(result, row))
    latest = earlier[-1][0].run if earlier else "first"
    tasks = gate_tasks(run.tasks_of(skill))
    gate = HelpsGate(tasks, gate_options(run.settings), decision=latest)
    return Question(before=NO_SKILL, after=run.versions[skill], gate=gate, told=_without_patch)


def _without_patch(found: Fields) -> Fields:
    return {"patch": ""}


def _earlier_verdicts(run: Run, skill: str) -> list[tuple[Result, SkillResult]]:
    """Return the runs of this mode with a verdict about the skill; note those not readable."""
    found: list[tuple[Result, SkillResult]] = []
    for stored in load_runs(run.home):
        result = stored.result
        if result is None:
            if stored.problem != NO_RESULT:
                run.notes.append(f"{stored.id} is left out of the history: its {stored.problem}")
            continue
        if result.mode != run.mode.name:
            continue
        rows = [row for row in result.skills if row.path == skill and row.status in _WORDS]
        found += [(result, row) for row in rows]
    return found


def _measured_before(result: Result, skill: SkillResult) -> str:
    """Say what an earlier run has measured of a skill."""
    day = result.started[:10]
    model = result.models.get("target", "the tests' own agent")
    said = f"earlier, {day}: {_WORDS[skill.status]} {model}"
    if skill.suite and skill.suite.after:
        without = skill.suite.before.rate
        with_it = skill.suite.after.rate
        said += f": {words.percent(without)} to {words.percent(with_it)} with it"
    return said


def measure_noise(run: Run, skill: str) -> SkillResult:
    """Evaluate a skill twice, in the same version."""
    version = run.versions[skill]
    digest = run.sampler.add_version(skill, version)
    tasks = run.tasks_of(skill)
    rollouts = run.settings.rollouts
    of: defaultdict[tuple[str, str], list[Rollout]] = defaultdict(list)
    for rollout in _both_evaluations(run, digest, tasks):
        of[rollout.request.task, rollout.request.stream].append(rollout)
    rows = [task_row(task, of[task.id, "aa/1"], of[task.id, "aa/2"]) for task in tasks]
    arms = [(row.before, row.after or Arm()) for row in rows]
    counts = [(first.passed + second.passed, first.n + second.n) for first, second in arms]
    floor = noise_floor(counts, rollouts)
    flaky = sum(0 < passed < n for passed, n in counts)
    reason = (
        f"two evaluations of {words.plural(rollouts, 'rollout')} a task differ by "
        f"{100 * floor:.1f} points (one standard deviation) by chance; {flaky} of "
        f"{words.plural(len(rows), 'task')} {'is' if flaky == 1 else 'are'} flaky"
    )
    status: Status = "measured"
    if not any(n for _, n in counts):
        status = "unmeasured"
        reason = f"{skill}: nothing could be measured"
    return run.skill_result(
        skill,
        version,
        version,
        status=status,
        reason=reason,
        suite=comparison(rows),
        noise_floor=floor,
        tasks=rows,
    )


def _both_evaluations(run: Run, version: str, tasks: Sequence[SkillTask]) -> list[Rollout]:
    """Take the rollouts of two evaluations, or as many whole rounds as the caps pay for.

    What a cap ends within a round leaves the rounds before.
    """
    wanted = run.settings.rollouts
    done = 0
    taken: list[Rollout] = []
    while more := run.meter.purse.affordable_rounds(2 * len(tasks), wanted - done):
        requests = []
        for index in range(done, done + more):
            for stream in ("aa/1", "aa/2"):
                requests += [run.sampler.request(task.id, version, stream, index) for task in tasks]
        try:
            taken += take(run, requests)
        except StopRun as stop:
            if stop.kind is not Stop.CAP or not done:
                raise
            run.notes.append(stop.reason)
            break
        done += more
    if done < wanted:
        paid = f"the caps paid for {words.plural(done, 'rollout')} of {wanted} a task"
        run.notes.append(f"{paid}; {GO_ON}")
    return taken


class _Comparing(NamedTuple):
    ask: Ask
    phase: str = "comparison"
    does: str = ""
    """Its verb, if it is about one skill only."""


COMPARISONS = {
    "compare": _Comparing(_ask_about_two, does="compares"),
    "check": _Comparing(ask_if_worse, phase="check"),
    "try": _Comparing(ask_about_a_change, does="changes"),
    "drift": _Comparing(ask_if_it_helps, does="measures"),
    "aa": _Comparing(measure_noise, phase="comparison with itself"),
}
