"""Figures and tables of a result in words, the same in every report."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from pytest_skillopt.mode import mode_named
from pytest_skillopt.model.types import Usage
from pytest_skillopt.rollouts.sampler import OWN_AGENT
from pytest_skillopt.run.result import Arm
from pytest_skillopt.skill.version import NO_SKILL
from pytest_skillopt.words import (
    clip,
    in_points,
    money,
    move,
    named,
    number,
    one_line,
    p_value_of_search,
    plural,
    points_between,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_skillopt.run.result import (
        Comparison,
        CostRow,
        EditRow,
        GainRow,
        Rate,
        Result,
        SkillResult,
        TaskRow,
        UsageRow,
    )

CHANGES = {
    "broken": "pass less often than before",
    "undecided": "moved, but it may be chance",
    "likely": "probably pass more often",
    "fixed": "pass more often than before",
    "same": "without a difference beyond chance",
}
"""Changes of a task, in the order of the reports."""
_DIGITS = re.compile(r"(\d+)")


def interval(rate: Rate) -> str:
    """Write the 95 % interval in percent: ``48.0 to 64.9``."""
    return f"{100 * rate.low:.1f} to {100 * rate.high:.1f}"


def gained(gain: GainRow) -> str:
    """Write a gain with its interval: ``+12 points (95 % interval -5 to +29)``."""
    low = round(100 * gain.low)
    high = round(100 * gain.high)
    points = in_points(points_between(gain.before, gain.after, 0))
    return f"{points} (95 % interval {low:+} to {high:+})"


def pass_rate(arm: Arm) -> float | None:
    """Return the share of the measured rollouts that passed; None if none was measured."""
    return arm.passed / arm.n if arm.n else None


def comparisons(skill: SkillResult) -> dict[str, Comparison]:
    """Return the measurements by set of tasks; val only if it differs from the suite.

    Beside an estimate of all tasks, that of the suite is called ``fresh``.
    """
    val = skill.val if skill.val != skill.suite else None
    suite = "fresh" if skill.gain else "suite"
    named = {suite: skill.suite, "val": val, "test": skill.test}
    return {name: value for name, value in named.items() if value is not None}


def version(digest: str) -> str:
    """Shorten a version; ``none`` for no skill."""
    return "none" if digest == NO_SKILL.digest else digest[:10]


def total(rows: Iterable[UsageRow]) -> Usage:
    """Sum over roles and stages; ``cost`` is None if no row has one."""
    return sum((Usage(**row.model_dump(exclude={"role", "stage"})) for row in rows), Usage())


def calls(rows: Sequence[UsageRow]) -> str:
    """Write the numbers of paid calls, of those reported by tests, and of cached calls."""
    own = sum(row.calls for row in rows if row.role == OWN_AGENT)
    reported = f" ({number(own)} of them reported by tests)" if own else ""
    used = total(rows)
    more = f", and {number(used.cached)} more from the cache" if used.cached else ""
    return f"{number(used.calls)}{reported}{more}"


def rollouts(result: Result) -> str:
    """Write the numbers of rollouts and of infrastructure errors."""
    errors = f", {plural(result.errors, 'infrastructure error')}" if result.errors else ""
    return plural(result.rollouts, "rollout") + errors


def unpriced(rows: Iterable[UsageRow]) -> list[str]:
    """List roles with paid calls of unknown price."""
    return sorted({row.role for row in rows if row.calls and row.cost is None})


def cost(rows: Sequence[UsageRow]) -> str:
    """Write the cost, with the roles that it leaves out."""
    missing = unpriced(rows)
    known = total(rows).cost
    if known is None:
        return "not known (no price for the model; see skillopt_prices)" if missing else money(0)
    left_out = f", without the {' and the '.join(missing)} (no price)" if missing else ""
    full = any(row.full_price for row in rows)
    most = ", with cached input at the full price (skillopt_prices = MODEL=IN/OUT/CACHED)"
    return f"{'at most ' * full}{money(known)}{left_out}{most * full}"


def counted(rows: Iterable[TaskRow]) -> str:
    """Count the changed tasks: ``6 fixed, 2 likely, 1 undecided, none broken``."""
    counts = Counter(row.change for row in rows)
    parts = [f"{counts['fixed'] or 'none'} fixed"]
    parts += [f"{counts[change]} {change}" for change in ("likely", "undecided") if counts[change]]
    return ", ".join([*parts, f"{counts['broken'] or 'none'} broken"])


def in_order(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts numbers in names by value: ``[9]`` before ``[10]``."""
    return [(int(p), "") if p.isdecimal() else (-1, p) for p in _DIGITS.split(name)]


def ordered(names: Iterable[str]) -> list[str]:
    """Sort names by ``in_order``."""
    return sorted(names, key=in_order)


def explained(skill: SkillResult, mode: str) -> str:
    """Explain origin and precision of the pass rates, unless these are the result."""
    sentences = ["Intervals: 95 %, over rollouts of the same tasks."] if comparisons(skill) else []
    if not mode_named(mode).noise:
        sentences += _precision(skill, mode)
    return " ".join(sentences)


def _precision(skill: SkillResult, mode: str) -> Iterator[str]:
    if (gain := skill.gain) and gain.is_model:
        search = ""
        e_value = (skill.verdict or {}).get("e_value")
        # A stored verdict may be of others, or of their own gate.
        if e_value and isinstance(e_value, int | float):
            search = f"; {p_value_of_search(e_value)}"
        yield (
            "Estimate: all tasks, from all rollouts of the run, luck allowed for. Fresh: the "
            f"samples of the verdict{search}."
        )
    if skill.from_search:
        tasks = plural(skill.from_search, "task")
        yield f"The rate before of {tasks} is that of the search; all else is fresh."
    if skill.none_from:
        yield f"Without any skill: as run {skill.none_from} has measured it."
    if (suite := skill.suite) and (suite.before.k or 0) > 1 and mode != "train":
        after = suite.after.all_k if suite.after else None
        yield (
            f"All {suite.before.k} of {suite.before.k} rollouts of a task pass (pass^k): "
            f"{move(suite.before.all_k, after)}."
        )
    if skill.cost and skill.cost.tokens_before:
        yield _spending(skill.cost, mode_named(mode).sides)
    if skill.patch:
        yield growth(skill.patch)


def _spending(cost: CostRow, sides: tuple[str, str]) -> str:
    took = _took(cost.tokens_before, cost.dollars_before, cost.seconds_before)
    if cost.tokens_after is None or cost.seconds_after is None:
        return f"A rollout took {took}."
    then = _took(cost.tokens_after, cost.dollars_after, cost.seconds_after)
    more = f"tokens {cost.increase:+.0f} %"
    return f"Cost of a rollout, {sides[0]}: {took}; {sides[1]}: {then} ({more})."


def _took(tokens: float, dollars: float | None, seconds: float) -> str:
    paid = f" ({money(dollars)})" if dollars is not None else ""
    return f"{tokens:,.0f} tokens{paid} and {seconds:.2g} s"


def marks(row: TaskRow) -> list[str]:
    """List the particular properties of a task, in a word or two each."""
    errors = row.before.errors + (row.after.errors if row.after else 0)
    marks = [f"about {row.of}"] if row.of else []
    marks += ["must pass"] if row.must_pass else []
    marks += ["flaky"] if row.flaky else []
    marks += ["skipped"] if row.skipped else []
    arm = row.after or row.before
    marks += [f"skill read in {arm.read} of {arm.n}"] if arm.read is not None and arm.n else []
    return marks + ([plural(errors, "error")] if errors else [])


_HUNK = re.compile(r"^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@", re.MULTILINE)
"""Head of a hunk: the numbers of lines before and after, 1 if there is none."""
ALWAYS, NEVER = "always passed", "never passed"
ENOUGH = 5
"""Least samples of a task from which it is said to tell nothing."""


def all_samples(row: TaskRow) -> tuple[int, int]:
    """Return passed and measured rollouts of a task, in the run and without any skill."""
    arms = [arm for arm in (row.before, row.after) if arm]
    shown = sum(arm.passed for arm in arms), sum(arm.n for arm in arms)
    passed, n = max(shown, (row.passed, row.samples), key=lambda counts: counts[1])
    none = row.none or Arm()
    return passed + none.passed, n + none.n


def shown_rows(skill: SkillResult, mode: str) -> list[TaskRow]:
    """Return the tasks as a report shows them.

    For a training, the version at the start has all its samples; if it was compared with none, all
    samples of the run stand in their place.
    """
    if mode != "train":
        return list(skill.tasks)
    compared = any(row.after is not None for row in skill.tasks)
    return [_of_training(row, compared=compared) for row in skill.tasks]


def _of_training(row: TaskRow, *, compared: bool) -> TaskRow:
    arm = row.start or row.before
    if not compared and row.samples > arm.n:
        arm = arm.model_copy(update={"passed": row.passed, "n": row.samples})
    return row.model_copy(update={"before": arm})


def failure(row: TaskRow) -> str:
    """Return the first line of the message of a failure of a task."""
    arms = [arm for arm in (row.after, row.start, row.before) if arm and arm.sample]
    messages = [arm.sample.message for arm in arms if arm.sample and arm.sample.outcome == "failed"]
    return clip(one_line(messages[0].strip().split("\n")[0]), 120) if messages else ""


def candidate_lines(skill: SkillResult) -> list[EditRow]:
    """List the edits of the new version, or of the best candidate if the search tells of them."""
    if skill.status == "accepted":
        return [row for row in skill.edits if row.status == "accepted"]
    fates = ("rejected", "dropped")
    return [row for row in skill.edits if row.status in fates and row.chance is not None]


def growth(patch: str) -> str:
    """Say how much longer a unified diff makes the skill."""
    lines = 0
    for old, new in _HUNK.findall(patch):
        lines += int(new or 1) - int(old or 1)
    if not lines:
        return "The skill stays as long."
    return f"The skill gets {plural(abs(lines), 'line')} {'longer' if lines > 0 else 'shorter'}."


def uninformative(skill: SkillResult) -> list[tuple[TaskRow, str]]:
    """List tasks that tell nothing about the skill, with the reason, from all their samples."""
    found = []
    for row in skill.tasks:
        none = row.before if skill.before == NO_SKILL.digest else row.none
        passed, n = all_samples(row)
        if n < ENOUGH:
            continue
        if passed in (0, n):
            found.append((row, ALWAYS if passed else NEVER))
        elif none and none.n:
            arms = [arm for arm in (row.before, row.after) if arm and arm.n and arm is not none]
            if arms and all(arm.passed * none.n <= none.passed * arm.n for arm in arms):
                found.append((row, "passed as often without the skill"))
    return found


def uninformative_listed(skill: SkillResult) -> str:
    """Name the tasks of ``uninformative``; empty if there is no comparison or no such task."""
    by_reason: dict[str, list[str]] = {}
    for row, why in uninformative(skill):
        by_reason.setdefault(why, []).append(row.id)
    compared = any(row.none or row.after for row in skill.tasks)
    reasons = "; ".join(f"{why} ({some(names)})" for why, names in by_reason.items())
    return f"Tasks that told nothing: {reasons}." if reasons and compared else ""


def some(names: Sequence[str]) -> str:
    """List the first names, and the number of the others."""
    return named(clip(one_line(name), 120) for name in ordered(names))
