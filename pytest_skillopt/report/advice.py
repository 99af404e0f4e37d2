"""Advice on a result: the first sentences of every report."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_skillopt import words
from pytest_skillopt.mode import mode_named
from pytest_skillopt.options import with_setting
from pytest_skillopt.report import figures
from pytest_skillopt.tasks.splits import without_test
from pytest_skillopt.words import full_stop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_skillopt.mode import Mode, Tone
    from pytest_skillopt.run.result import Comparison, GainRow, NeedRow, Result, SkillResult

_PROBABLE = 0.5
"""Probability that an edit helps from which more samples of it are worth their price."""
_NAMED = 3
"""Most tasks that are named with their failure."""
_SIMULATED = "A simulated model took part: the figures say nothing about how a real one behaves."


@dataclass(frozen=True, slots=True)
class Advice:
    """An answer to "shall I merge this?"."""

    answer: str
    """A few words."""
    sentence: str
    """The measurement, or the reason that there is none."""
    tone: Tone
    cautions: tuple[str, ...] = ()
    """Reasons to doubt the figures."""
    todo: tuple[str, ...] = ()
    """Why nothing was written, and how the next attempt may succeed."""
    command: str = ""
    """Command of the next attempt; empty if none is better than another."""


def advise(result: Result, skill: SkillResult) -> Advice:
    """Judge the result of one skill."""
    cautions = tuple(_cautions(result, skill))
    answer, tone = _answer(result, skill, doubtful=bool(cautions))
    if result.mode != "train":
        return Advice(answer, _sentence(result, skill), tone, cautions)
    if skill.status != "accepted":
        cautions = ()  # nothing is claimed
    sentence = " ".join(_of_training(result, skill))
    todo = tuple(_why_and_what_next(skill))
    return Advice(answer, sentence, tone, cautions, todo, _next_attempt(result, skill))


def headline(result: Result) -> Advice:
    """Judge the run: its only skill, or all of them together."""
    if len(result.skills) == 1:
        return advise(result, result.skills[0])
    if not result.skills:
        sentence = full_stop(result.reason)
        if result.status == "interrupted":
            return Advice("Stopped early", sentence, "careful")
        if result.status == "unmeasured":
            return Advice("Not measured", sentence, "careful")
        answers = mode_named(result.mode).answers
        answer, tone = answers.get(result.status, ("Measured", "neutral"))
        return Advice(answer, sentence, tone)
    each = [advise(result, skill) for skill in result.skills]
    worst = max(each, key=lambda a: ("neutral", "good", "careful", "bad").index(a.tone))
    cautions = (_SIMULATED,) if result.simulated else ()
    sentence = "; ".join(
        f"{skill.path}: {advice.answer[0].lower()}{advice.answer[1:]}"
        for skill, advice in zip(result.skills, each, strict=True)
    )
    # A figure is that of one skill only.
    answer = "Measured" if result.status == "measured" else worst.answer
    return Advice(answer, full_stop(sentence), worst.tone, cautions)


def _answer(result: Result, skill: SkillResult, *, doubtful: bool) -> tuple[str, Tone]:
    mode = mode_named(result.mode)
    if skill.status not in mode.answers:
        unmeasured = skill.status in ("unmeasured", "interrupted")
        return ("Not measured", "careful") if unmeasured else (_figure(result, skill), "neutral")
    answer, tone = mode.answers[skill.status]
    if result.resume and skill.status == "unchanged":
        return f"{answer} yet", tone
    if doubtful and tone == "good":
        return answer.replace("ready to merge", "but look closer before merging"), "careful"
    return answer, tone


def _figure(result: Result, skill: SkillResult) -> str:
    """Name the main figure of a measurement."""
    measured = skill.suite or skill.val
    if mode_named(result.mode).noise and skill.noise_floor is not None:
        return f"Noise of {100 * skill.noise_floor:.1f} points"
    if measured is None:
        return "Measured"
    if measured.after is not None:
        return f"Difference of {_points(measured)} points"
    return f"Pass rate {words.percent(measured.before.rate)}"


def _of_training(result: Result, skill: SkillResult) -> Iterator[str]:
    """Yield sentences on the pass rate of all tasks, the gain, and why nothing was written."""
    gain = skill.gain
    measured = skill.suite
    if skill.status == "accepted" and gain:
        yield (
            f"With the new skill {_of(gain.tasks)} about {words.rounded(gain.after)} of the time, "
            f"before about {words.rounded(gain.before)}: {figures.gained(gain)}."
        )
        yield full_stop(figures.counted(without_test(skill.tasks)))
    elif skill.status == "accepted":
        yield _sentence(result, skill)
    elif gain:
        yield (
            f"{_of(gain.tasks).capitalize()} about {words.rounded(gain.before)} of the time. The "
            f"best candidate changes that by about {figures.gained(gain)}."
        )
    elif measured:
        yield (
            f"{_of(measured.before.tasks, train=not skill.shared_train_val).capitalize()} "
            f"{words.rounded(measured.before.rate)} of the time "
            f"(95 % interval {figures.interval(measured.before)})."
        )
    else:
        yield full_stop(skill.reason)


def _of(tasks: int, *, train: bool = False) -> str:
    kind = "train " * train
    return f"the {kind}task passes" if tasks == 1 else f"the {tasks} {kind}tasks pass"


def _why_and_what_next(skill: SkillResult) -> Iterator[str]:
    """Yield why nothing was written, and what would help the next attempt, with figures."""
    if skill.status == "accepted":
        return
    if skill.gain or skill.suite:
        yield f"Why not: {full_stop(skill.reason)}"
    if skill.ended:
        yield f"Why the search ended: {full_stop(skill.ended)}"
    if todo := _what_to_do(skill):
        yield f"What to do: {todo}"
    never = [row for row, why in figures.uninformative(skill) if why == figures.NEVER]
    for row in never[:_NAMED]:
        _, n = figures.all_samples(row)
        why = figures.failure(row)
        yield f"Never passed under any version, {n} times: {row.id}" + (f" ({why})" if why else "")
    if never:
        more = f"{words.number(len(never) - _NAMED)} more never passed. "
        look = "Look whether they can be passed at all: the test may ask what no line can teach."
        yield (more if len(never) > _NAMED else "") + look


def _what_to_do(skill: SkillResult) -> str:
    """Say what would help the next attempt, if that is known."""
    if skill.gain and not _probably_helps(skill):
        how = "a higher cap, which lets the search go on," if skill.cap else "another seed"
        return (
            "by all samples together no edit of the candidate is likelier to help than not; find "
            f"others with {how} or another skillopt_optimizer."
        )
    if skill.gain and skill.need:
        return _what_decides(skill.gain, skill.need)
    if skill.suite and skill.suite.before.rate == 1:
        return "there is nothing to learn from these tasks; add some that the skill still fails."
    if skill.cap and not skill.suite:
        return (
            "so much pays for a first look at the tasks only; the cap of the next attempt pays for "
            "a search, too."
        )
    return ""


def _probably_helps(skill: SkillResult) -> bool:
    chances = [row.chance for row in figures.candidate_lines(skill) if row.chance is not None]
    return max(chances, default=1.0) >= _PROBABLE


def _what_decides(gain: GainRow, need: NeedRow) -> str:
    """Say how many rollouts or tasks would decide about a candidate."""
    points = words.points_between(gain.before, gain.after, 0).removeprefix("+")
    points = words.in_points(points)
    if need.tasks:
        return (
            f"these {gain.tasks} tasks are too few to tell a gain of {points} "
            f"from an accident of wording, however often they are sampled: have {need.tasks} of "
            "this kind."
        )
    shows = (
        f"a gain of {points} shows in four of five comparisons with "
        f"{words.number(2 * need.pairs)} fresh rollouts; this one had "
        f"{words.number(2 * gain.pairs)}"
    )
    if need.pairs <= gain.pairs:
        return f"{shows}, and was not refused for their number; try another seed."
    # Not that it allows so many: its search takes what it finds worth taking first.
    return (
        f"{shows}. The command of the next attempt allows more, and the more its search wins, the "
        "fewer it takes."
    )


def _next_attempt(result: Result, skill: SkillResult) -> str:
    """Return the command of the next attempt at a skill that was not improved."""
    if result.resume or skill.status not in ("rejected", "unchanged"):
        return ""
    need = skill.need if _probably_helps(skill) else None
    if (need and need.tasks) or not (skill.gain or skill.cap):
        return ""
    option = skill.cap or f"skillopt_seed={result.settings.get('seed', 0) + 1}"
    if need:
        option = need.option
    return shlex.join(with_setting(result.command, option))


def _sentence(result: Result, skill: SkillResult) -> str:
    measured = skill.suite or skill.val
    reason = full_stop(skill.reason)
    if measured is None or measured.after is None:
        return reason
    mode = mode_named(result.mode)
    if skill.status == "accepted" and (mode.name == "train" or not mode.answers):
        fresh = mode.name == "train" and not skill.from_search
        where = "on fresh samples of" if fresh else "on"
        counted = figures.counted(without_test(skill.tasks))
        return f"{_change(measured, where)} {full_stop(counted)}"
    without = result.mode == "train" or mode.noise or words.percent(measured.after.rate) in reason
    return reason if without else f"{_change(measured, 'on')} {reason}"


def _change(measured: Comparison, where: str) -> str:
    before = measured.before
    after = measured.after
    assert after is not None
    points = _points(measured)
    if float(points) == 0:
        return f"The suite's pass rate stayed at {words.percent(after.rate)}."
    verb = "rose" if after.rate > before.rate else "fell"
    return (
        f"The suite's pass rate {verb} from {words.percent(before.rate)} to "
        f"{words.percent(after.rate)} ({points} points) "
        f"{where} {words.plural(after.tasks, 'task')}."
    )


def _points(measured: Comparison) -> str:
    assert measured.after is not None
    return words.points_between(measured.before.rate, measured.after.rate)


def _cautions(result: Result, skill: SkillResult) -> Iterator[str]:
    mode = mode_named(result.mode)
    # A rejection that fails the session names them in its reason.
    if skill.status != "rejected" or "rejected" not in mode.fails:
        yield from _on_broken_tasks(skill)
    if result.simulated:
        yield _SIMULATED
    yield from _on_decision(skill, mode)
    if skill.test is not None:
        yield from _on_test_split(skill.test)
    if skill.warnings:
        rules = ", ".join(dict.fromkeys(warning.rule for warning in skill.warnings))
        yield f"The edits add text to look at, shown below ({rules})."
    if mode.judges_tasks and skill.status == "measured":
        yield from _on_unmeasured_tasks(skill)
    wanted = result.settings.get("write", True)
    if mode.name == "train" and skill.status == "accepted" and wanted and not skill.written:
        yield f"{skill.path} was not written; the edit is kept as a patch."


def _on_decision(skill: SkillResult, mode: Mode) -> Iterator[str]:
    if _is_untested(skill):
        yield "The gate was off: no edit was tested before it was kept."
    if skill.shared_train_val and mode.name == "train":
        yield (
            "Too few tasks for splits: the gain is measured on the very tasks that the edits came "
            "from, so expect less on new ones."
        )


def _on_unmeasured_tasks(skill: SkillResult) -> Iterator[str]:
    unknown = sum(not row.before.n and not row.skipped for row in skill.tasks)
    if unknown:
        tasks = words.plural(len(skill.tasks), "task")
        yield f"{unknown} of {tasks} were not measured: a cap ended the run."


def _is_untested(skill: SkillResult) -> bool:
    """Return whether edits were kept without a test."""
    if skill.verdict is not None and not skill.verdict.get("validated", True):
        return True
    return any(step.gate == "off" and step.verdict == "accepted" for step in skill.steps)


def _on_broken_tasks(skill: SkillResult) -> Iterator[str]:
    broken = {task.id: task.split for task in skill.tasks if task.change == "broken"}
    if not broken:
        return
    unseen = list(broken.values()).count("test")
    some = f", {unseen} of the test split" if unseen else ""
    tasks = words.plural(len(broken), "task").capitalize()
    yield f"{tasks} broken{some}: {figures.some(list(broken))}."


def _on_test_split(test: Comparison) -> Iterator[str]:
    if test.after is None:
        return
    before = test.before.rate
    after = test.after.rate
    if after < before:
        moved = f"fell from {words.percent(before)} to"
    elif after == before < 1:
        moved = "stayed at"
    else:
        return
    rate = words.percent(after)
    yield f"On the test split, which no edit has seen, the pass rate {moved} {rate}."
