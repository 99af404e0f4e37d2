"""Option ``--skillopt-evals``: collect the eval files of skills as tests."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option (see ``docs/no-tests-yet.md``)."""
    text = "collect the evals.json of skills as tests"
    add = parser.getgroup("skillopt").addoption
    add("--skillopt-evals", action="store_true", default=None, help=text)
    parser.addini("skillopt_evals", "see the option", type="bool", default=None)
    text = "share of the expectations that pass an eval (default: 1)"
    parser.addini("skillopt_evals_pass", text, type="float", default=None)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Collect eval files if they are requested."""
    if config.getoption("skillopt_evals") or config.getini("skillopt_evals"):
        from pytest_skillopt.plugins.formats.collect import Evals

        config.pluginmanager.register(Evals(config), "skillopt-evals-files")
