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


@pytest.fixture(autouse=True)
def no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """All servers are on loopback and without TLS: no client need read the machine's certificates,
    which takes longer than the start of a session."""
    monkeypatch.setenv("SSL_CERT_DIR", os.path.dirname(__file__))
