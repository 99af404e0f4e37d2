"""The pytest hooks: options, the marker, and the start of a mode.

A session that does not mention the plugin gets a marker, fixtures and the specifications of hooks;
everything else is imported by the hook that needs it.
"""

from __future__ import annotations

import inspect
import os
import re
from types import CodeType, ModuleType
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.fixtures import _skillopt_skill, rollout, skill, skill_agent
from pytest_skillopt.registry import merged, register_addons, register_fixtures

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["_skillopt_skill", "rollout", "skill", "skill_agent"]

_MARKER = (
    "skill_task(*, skill=None, split=None, rollouts=None, min_pass_rate=None, group=None, "
    "must_pass=False, trigger=None, contract=None, kind=None{}): a task for the agent skill that "
    "pytest-skillopt evaluates and trains."
)

_UNSURE = re.compile(r"--help|--markers|-[a-zA-Z]*h|@")
"""Help is shown, or more words stand in a file."""
_MENTIONED = pytest.StashKey[bool]()
_MODE_ON = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    register_fixtures(pluginmanager)
    config = pluginmanager.get_plugin("pytestconfig")
    assert isinstance(config, pytest.Config)
    if _is_mentioned(config):
        _declare(config, parser)


def _declare(config: pytest.Config, parser: pytest.Parser) -> None:
    config.stash[_MENTIONED] = True
    from pytest_skillopt.options import add_mode_options
    from pytest_skillopt.settings import add_settings

    title = "training of agent skills; options from --skillopt-skill on are ini keys, too"
    group = parser.getgroup("skillopt", title)
    add_mode_options(group)
    add_settings(parser, group)
    register_addons(config.pluginmanager)


def _is_mentioned(config: pytest.Config) -> bool:
    """Return whether a session may need the options: also if help is shown, or if in doubt."""
    if not hasattr(config, "rootpath"):  # registered before pytest has read its configuration
        return True
    words = [*config.invocation_params.args, *os.environ.get("PYTEST_ADDOPTS", "").split()]
    words += config.getini("addopts")
    names = [*vars(config.option)]  # of a worker, from its controller
    names += config._get_unknown_ini_keys()  # none of ours is declared yet
    return any(_UNSURE.match(str(word)) or "skillopt" in str(word) for word in words) or any(
        name.lower().startswith("skillopt") for name in names
    )


def _has_hooks(config: pytest.Config) -> bool:
    """Return whether a conftest file or another plugin implements a hook of this plugin."""
    from pytest_skillopt import hookspecs

    names = [name for name in vars(hookspecs) if name.startswith("pytest_skillopt_")]
    return any(getattr(config.hook, name).get_hookimpls() for name in names)


def _asks_for_options(config: pytest.Config) -> bool:
    """Return whether the code of a conftest file names one of the options."""
    for plugin in config.pluginmanager.get_plugins():
        if isinstance(plugin, ModuleType) and plugin.__name__.rpartition(".")[2] == "conftest":
            functions = filter(callable, vars(plugin).values())
            codes = (getattr(inspect.unwrap(each), "__code__", None) for each in functions)
            if any(map(_names_option, codes)):
                return True
    return False


def _names_option(constant: object) -> bool:
    """Return whether a constant of code is the name of an option or ini key, or holds one."""
    if isinstance(constant, CodeType):
        constant = constant.co_consts
    if isinstance(constant, tuple | frozenset):
        return any(map(_names_option, constant))
    return isinstance(constant, str) and constant.startswith(("skillopt", "--skillopt"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None, None, None]:
    """Declare the other ini keys, and refuse wrong options, before any plugin reads them."""
    if _MENTIONED in early_config.stash:
        _complete_options(early_config, parser, args)
        return (yield)
    value = yield
    if _has_hooks(early_config) or _asks_for_options(early_config):
        _declare(early_config, parser)
        _complete_options(early_config, parser, args)
    return value


def _complete_options(config: pytest.Config, parser: pytest.Parser, args: list[str]) -> None:
    from pytest_skillopt.options import refuse_bare_options
    from pytest_skillopt.settings import (
        add_quiet_keys,
        refuse_key_as_option,
        refuse_removed_options,
    )

    refuse_key_as_option(args)
    refuse_removed_options(args)
    refuse_bare_options(args)
    if not config.known_args_namespace.help:
        add_quiet_keys(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from pytest_skillopt import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    mentioned = _MENTIONED in config.stash
    more = merged(lambda addon: addon.marker) if mentioned else {}
    said = _MARKER.format("".join(f", {name}=None" for name in more))
    config.addinivalue_line("markers", said)
    if not mentioned:
        return
    from pytest_skillopt.options import Mode
    from pytest_skillopt.settings import refuse_unknown_keys

    refuse_unknown_keys(config)
    if mode := Mode.from_config(config):
        from pytest_skillopt.session import start

        start(config, mode)
        config.stash[_MODE_ON] = True


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Refuse ``--looponfail`` here: xdist's loop starts before anything is configured."""
    if not (_MENTIONED in config.stash and config.getoption("looponfail", False)):
        return
    from pytest_skillopt.options import Mode

    if Mode.from_config(config):
        raise pytest.UsageError("the modes of skillopt cannot be combined with -f / --looponfail")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test whose marker has a wrong argument; modes check all markers beforehand."""
    if _MODE_ON in item.config.stash:
        return  # in a rollout the request names the skill
    if item.get_closest_marker("skill_task"):
        from pytest_skillopt.suite.tasks import marker_arguments

        try:
            marker_arguments(item)
        except pytest.UsageError as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None
    if "_skillopt_skill" in getattr(item, "fixturenames", ()):
        from pytest_skillopt.suite.tasks import select_skill

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

    parameters = inspect.signature(pyfuncitem.obj).parameters.values()
    names = [p.name for p in parameters if p.default is p.empty]
    arguments = {name: pyfuncitem.funcargs[name] for name in names if name in pyfuncitem.funcargs}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True
