"""Settings of coding agents."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_skillopt.settings import AddOnSettings, setting


@dataclass(frozen=True, slots=True)
class HarnessSettings(AddOnSettings):
    """Settings of the harness add-on."""

    harness: str = setting("", "agent of skill_harness: claude, codex, opencode, ...")
    harness_env: str = setting("", "environment variables to share with the agent", many=",")
    harness_login: bool = setting(False, "run agents under your own sign-in")
    sandbox: str = setting("auto", "sandbox: auto, bwrap, none or a command")
