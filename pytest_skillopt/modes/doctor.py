"""``pytest-skillopt doctor``: what a training needs, looked at before it costs anything.

The plan that ``--collect-only`` prints, and beside it the settings, the skills, and one tiny call
of each model.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.mode import MODES
from pytest_skillopt.model.limits import Meter
from pytest_skillopt.model.types import CapReached, ModelConfigError, ModelError
from pytest_skillopt.models import MODELS, Models
from pytest_skillopt.modes.opening import probed_roles, wanted_roles
from pytest_skillopt.modes.skills import read_documents, skills_of
from pytest_skillopt.report import words
from pytest_skillopt.skill.document import SkillError
from pytest_skillopt.skill.scan import check_command
from pytest_skillopt.untrusted import shown

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from typing import Any

    from pytest_skillopt.model.types import Role
    from pytest_skillopt.modes.plan import Plan


def add_command(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "doctor",
        help="look at settings, skill and suite, and ask each model once, before a training",
    )
    parser.add_argument(
        "arguments", nargs="*", metavar="PYTEST", help="what pytest would be given; after --"
    )
    parser.set_defaults(handle=lambda args: _examine(args.arguments))


def _examine(arguments: list[str]) -> int:
    chosen = any(argument.partition("=")[0] in MODES.values() for argument in arguments)
    mode = [] if chosen else ["--skillopt-train"]
    doctor = Doctor()
    quiet = ["--collect-only", "-qq", "-p", "no:cacheprovider"]
    # This command has loaded the package before pytest could rewrite its assertions.
    quiet += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    code = pytest.main([*mode, *quiet, *arguments], plugins=[doctor])
    return int(code) or doctor.faults > 0


class Doctor:
    """A plugin beside the plan. Each finding is a line that begins with ``ok`` or ``FAULT``."""

    def __init__(self) -> None:
        self.faults = 0

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, config: pytest.Config
    ) -> None:
        plan: Plan | None = config.pluginmanager.get_plugin("skillopt-plan")
        if plan is None or not plan.tasks:
            return
        terminalreporter.section("skillopt doctor")
        noted = config.hook.pytest_skillopt_opened(config=config, tasks=plan.tasks)
        for fault, said in [
            *_skills(config, plan),
            *((False, said) for said in filter(None, noted)),
            *_models(config, plan),
        ]:
            self.faults += fault
            colour = {"red": True} if fault else {"green": True}
            terminalreporter.write("FAULT  " if fault else "ok     ", **colour)
            terminalreporter.write_line(shown(said))


def _skills(config: pytest.Config, plan: Plan) -> Iterator[tuple[bool, str]]:
    """Whether something is at fault, and what."""
    yield False, f"settings: {config.inipath or 'no configuration file'}"
    for skill in skills_of(plan.tasks):
        tasks = [task for task in plan.tasks if task.skill == skill]
        try:
            document = read_documents(config.rootpath, tasks, plan.settings)[skill]
            if plan.settings.scan:
                check_command(plan.settings.scan, config.rootpath)
        except SkillError as error:
            yield True, f"skill: {error}"
        else:
            size = words.plural(len(document.text), "character")
            yield False, f"skill: {skill}, {size}, version {words.version(document.version)}"
            yield from ((False, f"skill: {skill}: {said}") for said in document.warnings)


def _models(config: pytest.Config, plan: Plan) -> Iterator[tuple[bool, str]]:
    settings = plan.settings
    models = config.stash[MODELS] = Models(config, settings, throttle=Meter(settings))
    try:
        roles = wanted_roles(plan.mode, plan.tasks)
        asked = probed_roles(roles, plan.tasks)
        for role in roles:
            fault, said = (_asked if role in asked else _knocked)(models, role)
            yield fault, f"{role}: {said}"
    finally:
        models.close()


def _asked(models: Models, role: Role) -> tuple[bool, str]:
    """One tiny call."""
    began = time.monotonic()
    try:
        model = models.get(role)
        if not hasattr(model, "probe") or model.simulated:
            return False, f"{model.name}, which costs nothing to ask, was not asked"
        fault = model.probe()
    except (ModelConfigError, CapReached) as error:
        return True, str(error)
    took = words.duration(time.monotonic() - began)
    return bool(fault), f"no answer: {fault}" if fault else f"{model.name} answers after {took}"


def _knocked(models: Models, role: Role) -> tuple[bool, str]:
    """A look whether the server is there, for an agent that speaks to it in its own protocol."""
    try:
        model = models.get(role)
        fault = model.knock() if hasattr(model, "knock") else ""
    except ModelError as error:
        return True, str(error)
    said = "its server is there, and the agent asks it in its own protocol"
    return bool(fault), f"no answer: {fault}" if fault else f"{model.name}: {said}"
