"""Mode ``--skillopt-check``; ``skillopt_verify``: compare on other models as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.addons.regression.settings import VerifySettings
from pytest_skillopt.options import Mode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt import Document, SkillTask
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import SkillResult


SETTINGS = VerifySettings
MODES = (
    Mode(
        name="check",
        help="fail if SKILL.md is credibly worse than at revision REF",
        function="pytest_skillopt.addons.regression.measure:check",
        doing="checking",
        samples=lambda task, settings: 2 * settings.gate_kmax,
        rounds=lambda settings: settings.gate_k0,
        option={"nargs": "?", "metavar": "REF", "const": "HEAD"},
        more={
            "--skillopt-check-strict": (
                "with --skillopt-check: also fail on too little evidence",
                {"action": "store_true"},
            ),
        },
        answers={
            "accepted": ("No regression found", "good"),
            "unchanged": ("No regression found", "good"),
            "rejected": ("Do not merge", "bad"),
        },
        fails=("rejected",),
    ),
)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a revision that does not exist before any worker is started."""
    ref = config.getoption("skillopt_check", None)
    if not ref or config.option.collectonly or hasattr(config, "workerinput"):
        return
    from pytest_skillopt.addons.revisions import RevisionError, at_revision

    try:
        at_revision(config.rootpath, "the project", ref)  # any path: only the revision matters
    except RevisionError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_skillopt_opened(config: pytest.Config, tasks: Sequence[SkillTask]) -> str | None:
    """Check that every target can be used; name them at the head of the run."""
    from pytest_skillopt.model.roles import Models

    mode, models = Mode.from_config(config), Models.of(config)
    if not mode or not mode.on_targets or not models.settings.more_targets:
        return None
    from pytest_skillopt.addons.regression.targets import check_targets

    return check_targets(models, tasks)


def compared(run: Run, result: SkillResult, before: Document, after: Document) -> SkillResult:
    """Compare the two versions on every further target."""
    if not run.settings.more_targets:
        return result
    from pytest_skillopt.addons.regression.targets import compare_on_targets

    return compare_on_targets(run, result, before, after)
