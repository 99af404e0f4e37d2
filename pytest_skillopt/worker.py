"""A pytest-xdist worker of a session with a mode on.

The controller makes the model calls of all workers: there is one client, one cache, one account and
one set of limits, and no worker imports the SDK. See docs/decisions/workers.md.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from pytest_skillopt.model.roles import MODELS, Models
from pytest_skillopt.model.types import Completion, Remote
from pytest_skillopt.suite.worker_loop import WorkerLoop, link

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_skillopt.model.cache import Replies
    from pytest_skillopt.model.config import ModelConfig, Server
    from pytest_skillopt.model.types import Model, Role
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.suite.worker_loop import Link


def join(config: pytest.Config, settings: Settings) -> None:
    config.stash[MODELS] = RemoteModels(config, settings)
    config.pluginmanager.register(WorkerLoop(config, settings), "skillopt-worker")


class RemoteModels(Models):
    """The controller's models, called through the channel."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._link = link(config)
        super().__init__(config, settings, throttle=Remote(self._link.ask, "throttle"))

    @functools.cached_property
    def replies(self) -> Replies:
        """Replies cached by the controller, for coding agents called from this process."""
        from pytest_skillopt.model.cache import Replies

        return Replies(self.settings.cache, Remote(self._link.ask, "cache"))

    def build(self, role: Role, server: Server | None = None) -> Model:
        from pytest_skillopt.model.config import model_config

        return RemoteModel(self._link, model_config(self.settings, role, server), self.target)


class RemoteModel:
    """The controller's model of a role; arguments and replies cross the channel as JSON."""

    def __init__(self, link: Link, config: ModelConfig, target: str) -> None:
        self._link, self._target = link, target
        self.config = config
        self.name, self.fingerprint = config.name, config.fingerprint
        self.simulated = config.simulated

    def complete(self, messages: Sequence[dict[str, Any]], **options: Any) -> Completion:
        asked = self._target, self.config.role, list(messages), options
        reply = self._link.ask("model.complete", *asked)
        return Completion.from_json(reply)
