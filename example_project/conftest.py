"""The way in which most tests talk to the agent, and the models that play it here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from invoice_desk.prompts import ask_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_skillopt import Model


def pytest_skillopt_client(config: pytest.Config, role: str) -> Model | None:
    """Serve the models named ``offline:...``, which are simulated (see ``simulation``)."""
    from simulation import serve

    from pytest_skillopt import chat_model

    return chat_model(config, role, provider="offline", url=serve, simulated=True)


@pytest.fixture
def extract(skill_agent: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """Ask for fields of a document as the desk does, and read the answer's JSON object."""

    def ask(document: str, *fields: str, tools: list[Callable[..., Any]] | None = None) -> Any:
        return skill_agent(ask_for(document, *fields), tools=tools).json()

    return ask
