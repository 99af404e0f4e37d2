"""A pytest-xdist worker of a session with a mode on.

The controller makes the model calls of all workers: there is one client, one cache, one account and
one set of limits, and no worker imports the SDK. See docs/decisions/workers.md.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from pytest_skillopt.model.roles import MODELS, Models
from pytest_skillopt.model.types import Completion, Remote
from pytest_skillopt.suite.remote import WorkerLoop, link
from pytest_skillopt.suite.tasks import describe_tasks, keep_tasks

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_skillopt.model.cache import Replies
    from pytest_skillopt.model.config import ModelConfig, Server
    from pytest_skillopt.model.types import Model, Role
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.suite.remote import Link


def join(config: pytest.Config, settings: Settings) -> None:
    wire = link(config)
    config.stash[MODELS] = RemoteModels(config, settings, wire)
    loop = WorkerLoop(
        config,
        functools.partial(describe_tasks, config, settings),
        lanes=settings.lanes,
        timeout=settings.timeout,
        select=functools.partial(keep_tasks, config),
    )
    config.pluginmanager.register(loop, "skillopt-worker")


class RemoteModels(Models):
    """The controller's models, called through the channel."""

    def __init__(self, config: pytest.Config, settings: Settings, wire: Link) -> None:
        super().__init__(config, settings, throttle=Remote(wire.ask, "throttle"))
        self._wire = wire

    @functools.cached_property
    def replies(self) -> Replies:
        """Replies cached by the controller, for coding agents called from this process."""
        from pytest_skillopt.model.cache import Replies

        return Replies(self.settings.cache, Remote(self._wire.ask, "cache"))

    def build(self, role: Role, server: Server | None = None) -> Model:
        from pytest_skillopt.model.config import model_config

        return RemoteModel(self._wire, model_config(self.settings, role, server), self.target)


class RemoteModel:
    """The controller's model of a role; arguments and replies cross the channel as JSON."""

    def __init__(self, wire: Link, config: ModelConfig, target: str) -> None:
        self._wire, self._target = wire, target
        self.config = config
        self.name, self.fingerprint = config.name, config.fingerprint
        self.simulated = config.simulated

    def complete(self, messages: Sequence[dict[str, Any]], **options: Any) -> Completion:
        asked = self._target, self.config.role, list(messages), options
        reply = self._wire.ask("model.complete", *asked)
        return Completion.from_json(reply)
