"""Sessions that pytest ends before a test runs."""

from __future__ import annotations

import pytest


def assert_refused(session: pytest.RunResult, *said: str) -> None:
    """Expect a usage error whose lines match these patterns."""
    assert session.ret == pytest.ExitCode.USAGE_ERROR
    session.stderr.fnmatch_lines(said)
