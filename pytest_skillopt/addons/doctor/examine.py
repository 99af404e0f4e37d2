"""Check everything that a training needs before paying for one.

It prints the plan of ``--collect-only``, then checks the settings and the skills and makes one tiny
call to each model.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.addons import figures
from pytest_skillopt.model.limits import Meter
from pytest_skillopt.model.roles import MODELS, Models
from pytest_skillopt.model.types import ModelConfigError, ModelError
from pytest_skillopt.modes.opening import probed_roles, wanted_roles
from pytest_skillopt.modes.skills import notes_on_skills, read_documents, skills_of
from pytest_skillopt.options import modes
from pytest_skillopt.report import words
from pytest_skillopt.skill.document import SkillError
from pytest_skillopt.untrusted import shown

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from pytest_skillopt.addons.doctor.plan import Plan
    from pytest_skillopt.model.types import Model


def examine(args: argparse.Namespace) -> int:
    """Examine what pytest would run; return its exit code, or 1 for a fault."""
    arguments: list[str] = args.arguments
    flags = {mode.flag for mode in modes().values()}
    chosen = any(argument.partition("=")[0] in flags for argument in arguments)
    mode = [] if chosen else ["--skillopt-train"]
    doctor = Doctor()
    quiet = ["--collect-only", "-qq", "-p", "no:cacheprovider"]
    # pytest cannot rewrite assertions of this package, which is already loaded.
    quiet += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    code = pytest.main([*mode, *quiet, *arguments], plugins=[doctor])
    return int(code) or doctor.faults > 0


class Doctor:
    """pytest plugin that prints a line for each finding, beginning with ``ok`` or ``FAULT``."""

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
        for fault, said in [*_skills(config, plan), *_models(config, plan)]:
            self.faults += fault
            terminalreporter.write("FAULT  " if fault else "ok     ", red=fault, green=not fault)
            terminalreporter.write_line(shown(said))


def _skills(config: pytest.Config, plan: Plan) -> Iterator[tuple[bool, str]]:
    """Yield findings about settings and skills: whether it is a fault, and its text."""
    yield False, f"settings: {config.inipath or 'no configuration file'}"
    for skill in skills_of(plan.tasks):
        tasks = [task for task in plan.tasks if task.skill == skill]
        try:
            document = read_documents(config.rootpath, tasks, plan.settings)[skill]
        except SkillError as error:
            yield True, f"skill: {error}"
        else:
            size = words.plural(len(document.text), "character")
            yield False, f"skill: {skill}, {size}, version {figures.version(document.version)}"
            yield from ((False, f"skill: {said}") for said in notes_on_skills({skill: document}))


def _models(config: pytest.Config, plan: Plan) -> Iterator[tuple[bool, str]]:
    """Yield findings about the models, likewise."""
    settings = plan.settings
    config.stash[MODELS] = Models(config, settings, throttle=Meter(settings))
    with contextlib.closing(config.stash[MODELS]) as models:
        roles = wanted_roles(plan.mode, plan.tasks)
        asked = probed_roles(roles, plan.tasks)
        for role in roles:
            try:
                fault, said = (_call if role in asked else _reach_server)(models.get(role))
            except (ModelConfigError, ModelError) as error:
                yield True, f"{role}: {error}"
            else:
                yield bool(fault), f"{role}: no answer: {fault}" if fault else f"{role}: {said}"


def _call(model: Model) -> tuple[str, str]:
    """Make one tiny call; return why it failed, if it did, and how the model answered."""
    if not hasattr(model, "probe") or model.simulated:
        return "", f"{model.name}, which costs nothing, was not called"
    began = time.monotonic()
    fault = model.probe()
    return fault, f"{model.name} answers after {words.duration(time.monotonic() - began)}"


def _reach_server(model: Model) -> tuple[str, str]:
    """Check that the server of a coding agent's model can be reached, without calling the model."""
    said = "its server can be reached; coding agents call it in their own protocol"
    fault = model.ping() if hasattr(model, "ping") else ""
    return fault, f"{model.name}: {getattr(model, 'reached', said)}"
