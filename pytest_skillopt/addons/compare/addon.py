"""Mode ``--skillopt-compare``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.options import Mode

if TYPE_CHECKING:
    import pytest

    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import SkillResult

MODES = (
    Mode(
        name="compare",
        on_targets=True,
        help="compare two skills: files, revisions, run versions, none",
        function="pytest_skillopt.addons.compare.measure:compare",
        doing="comparing",
        samples=lambda task, settings: 2 * settings.final_rollouts,
        option={"nargs": 2, "metavar": ("A", "B")},
        sides=("first", "second"),
    ),
)


def trained(run: Run, result: SkillResult) -> SkillResult:
    """Add the measurements of an earlier comparison with ``none``."""
    from pytest_skillopt.addons.compare.without import with_none

    return with_none(run, result)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse names that stand for no skill before any worker is started."""
    if config.getoption("skillopt_compare", None) and not hasattr(config, "workerinput"):
        from pytest_skillopt.addons.compare.measure import check_names

        check_names(config)
