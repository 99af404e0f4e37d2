"""Option ``--skillopt-evals``: collect the eval files of skills as tests."""

from __future__ import annotations

import pytest

from pytest_skillopt.addon import AddOn
from pytest_skillopt.settings import ini

ADDON = AddOn()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option (see ``docs/no-tests-yet.md``)."""
    text = "collect the evals.json of skills as tests"
    parser.getgroup("skillopt").addoption("--skillopt-evals", action="store_true", help=text)


def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser) -> None:
    """Declare the ini keys, which ``pytest --help`` leaves out."""
    if not early_config.known_args_namespace.help:
        parser.addini("skillopt_evals", "", type="bool", default=False)
        parser.addini("skillopt_evals_pass", "")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Collect eval files if they are requested."""
    if config.getoption("skillopt_evals", None) or ini(config, "evals"):
        from pytest_skillopt.addons.evals.collect import Evals

        config.pluginmanager.register(Evals(config), "skillopt-evals-files")
