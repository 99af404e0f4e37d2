"""The words of a request: what we vouch for first, then the report of the run, rendered anew.

The result it is rendered from may have been tampered with. As in every report whatever it holds is
made inert: it mentions nobody, closes no issue, runs no quick action and loads no image.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from pytest_skillopt.addons.propose.validate import beside
from pytest_skillopt.report.markdown import code, prose, pull_request_body
from pytest_skillopt.report.words import percent
from pytest_skillopt.skill.document import SKILL_FILE
from pytest_skillopt.untrusted import redact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_skillopt.addons.propose.validate import Checked
    from pytest_skillopt.run.result import Result

MAX_BODY = 60_000
"""Bytes of a request's text; GitHub takes 65,536 characters."""


def compose(skill: Checked, result: Result, run_url: str = "") -> str:
    """The whole text of a skill's request, at most :data:`MAX_BODY` bytes.

    ``run_url`` leads to the CI run that holds the report and is ``""`` outside of CI.
    """
    head = "\n\n".join(_vouched(skill, result.simulated, run_url))
    rest = redact(pull_request_body(result, MAX_BODY - len(head.encode()) - 3))
    return f"{head}\n\n{rest.rstrip()}\n"


def title(skill: Checked) -> str:
    """One line: the skill and what it gains."""
    return f"Train the skill {skill.name}: pass rate {_gain(skill)}"


def marker(skill: Checked) -> str:
    """A comment that names this very change, so that a declined one is recognised."""
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
    if skill.scanned:
        yield f"The scanner {code(skill.scanned)} let it pass."
    if simulated:
        yield "**A simulated model was measured. The figures say nothing about a real one.**"
    if run_url:
        yield f"The full report is among the artifacts of [the run that proposed it]({run_url})."
    yield "Rebuilt by every training until somebody pushes to the branch."


def _gain(skill: Checked) -> str:
    return f"{percent(float(skill.rates.before))} to {percent(float(skill.rates.after))}"


def _rollouts(skill: Checked) -> str:
    if not skill.from_search:
        return f"{skill.rates.samples} fresh rollouts"
    return (
        f"{skill.rates.samples} rollouts (fresh, but for those before of {skill.from_search} "
        "tasks, which are of the search)"
    )
