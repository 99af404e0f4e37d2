"""One suite over several models and agents: ``--skillopt --skillopt-target=a,b``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.options import given_options

if TYPE_CHECKING:
    from pytest_skillopt import Mode


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Run a session for each target if several are set, and report their tasks side by side."""
    if not given_options(config.option):
        return None
    from pytest_skillopt.mode import Mode
    from pytest_skillopt.settings import Settings

    mode = Mode.from_config(config)
    if mode is None:
        return None
    settings = Settings.from_config(config)
    if "," not in settings.target + settings.harness:
        return None
    _refuse(mode)
    from pytest_skillopt.plugins.matrix.matrix import evaluate_each

    return evaluate_each(config, settings)


def _refuse(mode: Mode) -> None:
    if mode.name != "evaluate":
        raise pytest.UsageError(
            f"{mode.flag} is for one target: set a single model in skillopt_target and a single "
            "agent in skillopt_harness; --skillopt evaluates several, separated by commas"
        )
