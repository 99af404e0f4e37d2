"""The pytest hooks: options, the marker, and the start of a mode.

A session that does not use the plugin imports the declarations of options, fixtures and hooks;
everything else is imported by the hook that needs it.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt import hookspecs, options
from pytest_skillopt.fixtures import (
    _skillopt_skill,
    _skillopt_skill_agent,
    refuse_windows,
    rollout,
    skill,
    skill_agent,
)
from pytest_skillopt.plugins import enter_session, register_builtin

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["_skillopt_skill", "_skillopt_skill_agent", "rollout", "skill", "skill_agent"]

_MARKER = (
    "skill_task(*, skill=None, split=None, rollouts=None, min_pass_rate=None, group=None, "
    "must_pass=False, trigger=None, contract=None, kind=None, harness=None): a task for the agent "
    "skill that pytest-skillopt evaluates and trains."
)
_MODE_ON = pytest.StashKey[bool]()


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hookspecs)


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    options.pytest_addoption(parser)
    register_builtin(pluginmanager)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, args: list[str]
) -> Generator[None, None, None]:
    """Refuse options that are gone before pytest calls them unknown; check what hooks return."""
    if any(word.startswith("--skillopt") for word in args):
        from pytest_skillopt import hookresults
        from pytest_skillopt.settings import refuse_options

        refuse_options(early_config, args)
        hookresults.register(early_config.pluginmanager)
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    enter_session(config)
    config.addinivalue_line("markers", _MARKER)
    # pytest tells these names only in its warning; before version 9 without those of ``-o``.
    names = {*config._get_unknown_ini_keys()}
    names |= {word.partition("=")[0].strip() for word in config.getoption("override_ini") or ()}
    if ours := list(filter(_sounds_like_ours, names)):
        from pytest_skillopt.settings import refuse_keys

        refuse_keys(config, ours)
    if not options.given_options(config.option):
        return
    from pytest_skillopt.mode import Mode

    if mode := Mode.from_config(config):
        refuse_windows()
        from pytest_skillopt.session import start

        start(config, mode)
        config.stash[_MODE_ON] = True


def _sounds_like_ours(name: str) -> bool:
    """Return whether an unknown ini key begins like ours, such as ``skill_opt_``, ``skilopt_``."""
    import difflib

    letters = "".join(filter(str.isalpha, name.lower())).removeprefix("pytest")
    return difflib.SequenceMatcher(None, letters[:8], "skillopt").ratio() > 0.8


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Refuse ``--looponfail`` here: xdist's loop starts before anything is configured."""
    if not (config.getoption("looponfail", False) and options.given_options(config.option)):
        return
    from pytest_skillopt.mode import Mode

    if Mode.from_config(config):
        raise pytest.UsageError("the modes of skillopt cannot be combined with -f / --looponfail")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test whose marker has a wrong argument; modes check all markers beforehand."""
    if _MODE_ON in item.config.stash:
        return  # in a rollout the request names the skill
    if item.get_closest_marker("skill_task"):
        from pytest_skillopt.tasks.task import marker_arguments

        try:
            marker_arguments(item)
        except pytest.UsageError as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None
    if "_skillopt_skill" in getattr(item, "fixturenames", ()):
        from pytest_skillopt.tasks.task import select_skill

        select_skill(item)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object | None:
    """Run an ``async def`` task if no plugin for asynchronous tests claims it."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    marker = pyfuncitem.get_closest_marker
    if not marker("skill_task") or any(map(marker, ("anyio", "asyncio", "trio"))):
        return None
    import asyncio

    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True
