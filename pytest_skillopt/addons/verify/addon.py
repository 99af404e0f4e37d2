"""Add-on ``skillopt_verify``: train on one model, and compare the result on others as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.addons.verify.settings import VerifySettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_skillopt import Document, SkillTask
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import SkillResult


SETTINGS = VerifySettings


def pytest_skillopt_opened(config: pytest.Config, tasks: Sequence[SkillTask]) -> str | None:
    """Check that every target can be used; name them at the head of the run."""
    from pytest_skillopt.model.roles import Models
    from pytest_skillopt.options import Mode

    mode, models = Mode.from_config(config), Models.of(config)
    if not mode or not mode.on_targets or not models.settings.more_targets:
        return None
    from pytest_skillopt.addons.verify.measure import check_targets

    return check_targets(models, tasks)


def compared(run: Run, result: SkillResult, before: Document, after: Document) -> SkillResult:
    """Compare the two versions on every further target."""
    if not run.settings.more_targets:
        return result
    from pytest_skillopt.addons.verify.measure import compare_on_targets

    return compare_on_targets(run, result, before, after)
