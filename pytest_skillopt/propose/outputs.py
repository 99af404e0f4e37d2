"""What a job tells GitHub Actions: its outputs and its summary."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_skillopt.report.result import Result

MAX_SUMMARY = 1000 * 1024
"""Bytes; GitHub drops the summary of a step that is larger than 1 MiB."""


def training_outputs(result: Result) -> dict[str, str]:
    """``accepted``, ``pass-rate-before`` and ``pass-rate-after`` of a run.

    Pass rates are of the whole suite in [0, 1], of the first skill that was bettered, else of the
    first that was measured; empty where nothing was measured.
    """
    accepted = [skill for skill in result.skills if skill.status == "accepted"]
    measured = [skill for skill in accepted or result.skills if skill.suite]
    suite = measured[0].suite if measured else None
    after = suite.after if suite else None
    return {
        "accepted": "true" if accepted else "false",
        "pass-rate-before": f"{suite.before.rate:.4f}" if suite else "",
        "pass-rate-after": f"{after.rate:.4f}" if after else "",
    }


def write_outputs(values: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> bool:
    """Append to ``$GITHUB_OUTPUT``; whether there is one."""
    path = environ.get("GITHUB_OUTPUT")
    if not path:
        return False
    with Path(path).open("a", encoding="utf-8") as file:
        for name, value in values.items():
            # A delimiter that no value can hold: a line of one would set another output.
            end = f"end-{secrets.token_hex(16)}"
            file.write(f"{name}<<{end}\n{value}\n{end}\n")
    return True


def write_summary(text: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Append to ``$GITHUB_STEP_SUMMARY``, cut to what GitHub shows; whether there is one."""
    path = environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return False
    with Path(path).open("ab") as file:
        file.write(text.encode()[:MAX_SUMMARY].decode("utf-8", "ignore").encode() + b"\n")
    return True
