"""Write the text of a pull request: first the checked facts, then the run's report.

The report is rendered from a result that may have been forged. As in every report its texts are
made inert: they mention nobody, close no issue, run no quick action and load no image.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from pytest_skillopt.addons.markup import prose
from pytest_skillopt.addons.propose.validate import beside
from pytest_skillopt.registry import addons
from pytest_skillopt.report.words import percent
from pytest_skillopt.skill.document import SKILL_FILE
from pytest_skillopt.untrusted import redact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_skillopt.addons.propose.validate import Checked
    from pytest_skillopt.run.result import Result

MAX_BODY = 60_000
"""Maximum bytes of a request's text; GitHub allows 65,536 characters."""


def compose(skill: Checked, result: Result, run_url: str = "") -> str:
    """Return the whole text of a skill's request, at most :data:`MAX_BODY` bytes.

    ``run_url`` is the address of the CI run with the report, ``""`` outside of CI.
    """
    head = "\n\n".join(_vouched(skill, result.simulated, run_url))
    most = MAX_BODY - len(head.encode()) - 3
    rest = redact("".join(addon.summary(result, most) for addon in addons()))
    return f"{head}\n\n{rest}".rstrip() + "\n"


def title(skill: Checked) -> str:
    """Return the title: the skill and its gain."""
    return f"Train the skill {skill.name}: pass rate {_gain(skill)}"


def marker(skill: Checked) -> str:
    """Return a comment with a hash of the change, by which a declined one is recognised."""
    change = "\0".join((skill.path, skill.before.version, skill.after.version))
    return f"<!-- skillopt-proposal: {hashlib.sha256(change.encode()).hexdigest()[:32]} -->"


def _vouched(skill: Checked, simulated: bool, run_url: str) -> Iterator[str]:
    yield marker(skill)
    files = [f"`{beside(skill.path, name)}`" for name in skill.changed or (SKILL_FILE,)]
    changed = "file that changes is" if len(files) == 1 else "files that change are"
    yield (
        f"The pass rate of the suite rises from {_gain(skill)}: "
        f"{skill.rates.tasks} tasks, {_rollouts(skill)}, recomputed from the counts. "
        f"The only {changed} {', '.join(files)}."
    )
    if skill.warnings:
        yield "Look at this before you merge:"
        yield "\n".join(f"- {prose(str(warning), 400)}" for warning in skill.warnings[:20])
    if simulated:
        yield "**The model was simulated. The figures say nothing about a real one.**"
    if run_url:
        yield f"The full report is among the artifacts of [the run that proposed it]({run_url})."
    yield "Each training rebuilds this branch until somebody else pushes to it."


def _gain(skill: Checked) -> str:
    return f"{percent(float(skill.rates.before))} to {percent(float(skill.rates.after))}"


def _rollouts(skill: Checked) -> str:
    if not skill.from_search:
        return f"{skill.rates.samples} fresh rollouts"
    return (
        f"{skill.rates.samples} rollouts (fresh, except the old version's for "
        f"{skill.from_search} tasks, which are from the search)"
    )
