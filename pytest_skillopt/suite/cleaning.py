"""What a rollout must not carry out of its process: secrets, and accidents of the process.

Secrets would reach the journal, the reports and the optimizer. Addresses of objects and numbers of
pytest's temporary folders differ in every run; with them in an assertion's text, the optimizer
would be asked, and paid for, the same question anew each time.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_skillopt.untrusted import redact, secret_variables

if TYPE_CHECKING:
    from pytest_skillopt.suite.rollouts import Rollout

_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,16}\b")
_FOLDER = re.compile(r"(?<=[/\\]pytest-of-)([^/\\\s]+)([/\\])pytest-\d+(?:[/\\]popen-gw\d+)?")


def cleaned(rollout: Rollout) -> Rollout:
    """The rollout without secrets and without what is different in every process."""
    environ = secret_variables(os.environ)

    def clean(text: str) -> str:
        return _same_in_every_process(redact(text, environ)) if text else ""

    error = rollout.error
    return replace(
        rollout,
        message=clean(rollout.message),
        feedback=clean(rollout.feedback),
        output=clean(rollout.output),
        transcript=tuple(replace(m, content=clean(m.content)) for m in rollout.transcript),
        error=replace(error, message=clean(error.message)) if error else None,
    )


def _same_in_every_process(text: str) -> str:
    if "0x" in text:
        text = _ADDRESS.sub("0x...", text)
    if "pytest-of-" in text:
        text = _FOLDER.sub(r"\1\2pytest-N", text)
    return text
