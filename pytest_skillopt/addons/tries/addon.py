"""Mode ``--skillopt-try``."""

from __future__ import annotations

import pytest

from pytest_skillopt.options import Mode

MODES = (
    Mode(
        name="try",
        help="judge a change made elsewhere: SKILL.md, folder, patch",
        function="pytest_skillopt.addons.tries.measure:try_change",
        doing="trying a change of",
        samples=lambda task, settings: 2 * settings.final_rollouts * (task.split != "test"),
        option={"metavar": "FILE"},
        splits=True,
        answers={
            "accepted": ("Accepted", "good"),
            "rejected": ("Keep the skill as it is", "neutral"),
            "unchanged": ("Keep the skill as it is", "neutral"),
        },
        fails=("rejected", "unmeasured"),
    ),
)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a change that does not exist before any worker is started."""
    file = config.getoption("skillopt_try", None)
    if file and not (config.rootpath / file).exists():
        raise pytest.UsageError(f"--skillopt-try={file}: there is no such file or folder")
