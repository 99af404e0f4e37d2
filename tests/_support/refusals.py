"""Sessions and commands that are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Refusal = Callable[..., str]
"""Run a command of ours that is refused; return why."""


def assert_refused(session: pytest.RunResult, *said: str) -> None:
    """Expect a usage error whose lines match these patterns."""
    assert session.ret == pytest.ExitCode.USAGE_ERROR
    session.stderr.fnmatch_lines(said)
