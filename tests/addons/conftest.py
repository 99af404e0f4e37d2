"""Workers of the sessions that the tests of add-ons start."""

from __future__ import annotations

import os

import pytest
import warm_sessions


@pytest.fixture(autouse=True)
def warm_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the sessions within this process start workers that need import nothing."""
    if hasattr(os, "fork"):
        monkeypatch.setattr("execnet.gateway_io.Popen2IOMaster", warm_sessions.Worker)
