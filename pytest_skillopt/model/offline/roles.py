"""Which role a request is for. A client does not say: the form it asks for does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.model.offline import target

if TYPE_CHECKING:
    from pytest_skillopt.model.offline.chat import Reply, Request


def respond(request: Request) -> Reply:
    """Answer as an optimizer, a judge or the agent."""
    return target.answer(request)
