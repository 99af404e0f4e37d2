"""The settings of coding agents."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_skillopt.settings import setting


@dataclass(frozen=True, slots=True)
class HarnessSettings:
    """Which agent runs, and what it is given."""

    harness: str = setting("", "agent of skill_harness: claude, codex, opencode, ...")
    harness_env: str = setting("", "variables that an agent is given", many=",")
    sandbox: str = setting("auto", "confines an agent: auto, bwrap, none or a command")
