"""Projects whose tasks run in a coding agent, real or a stub, against a provider on loopback."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from harness_project import KEY, Project
from model_server import ModelServer
from patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def provider() -> Iterator[ModelServer]:
    """The loopback provider; see ``tests/_support/model_server.py``."""
    with ModelServer() as server:
        yield server


@pytest.fixture
def project(
    pytester: pytest.Pytester, provider: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> Project:
    """A project with a skill and a provider that greets as the skill says."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setattr("pytest_skillopt.model.client.FIRST_DELAY", 0.001)
    monkeypatch.setattr("pytest_skillopt.plugins.agents.run._LOOK_MS", 20)
    monkeypatch.setattr("pytest_skillopt.plugins.agents.run._PATIENCE", PATIENCE)
    return Project(pytester, provider)


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of the sessions that a test starts, to see what they leave."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder
