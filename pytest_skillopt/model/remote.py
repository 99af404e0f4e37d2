"""The models of a worker, whose calls the controller makes.

There is one client, one cache, one account and one set of limits, and no worker imports the SDK; a
client that a plugin makes in a worker shares the limits and the cache. See
docs/decisions/workers.md.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

from pytest_skillopt.model.config import model_config
from pytest_skillopt.model.limits import CallEstimate
from pytest_skillopt.model.roles import Models
from pytest_skillopt.model.types import Completion, Price, Remote, Usage
from pytest_skillopt.untrusted import protect, secrets_in

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from pytest_skillopt.model.cache import Replies
    from pytest_skillopt.model.config import ModelConfig, Server
    from pytest_skillopt.model.limits import Meter
    from pytest_skillopt.model.types import Messages, Model, Role
    from pytest_skillopt.settings import Settings


class RemoteModels(Models):
    """The controller's models; ``ask`` calls one of its ``services``."""

    def __init__(self, config: pytest.Config, settings: Settings, ask: Callable[..., Any]) -> None:
        self._ask = ask
        super().__init__(config, settings, throttle=Remote(ask, "throttle"))

    @functools.cached_property
    def replies(self) -> Replies:
        """Replies cached by the controller, for coding agents called from this process."""
        from pytest_skillopt.model.cache import Replies  # slow, and most workers need none

        return Replies(self.settings.cache, Remote(self._ask, "cache"))

    def build(self, role: Role, server: Server | None = None) -> Model:
        return RemoteModel(self._ask, model_config(self.settings, role, server))


class RemoteModel:
    """The controller's model of a role; arguments and replies cross the channel as JSON."""

    def __init__(self, ask: Callable[..., Any], config: ModelConfig) -> None:
        self._ask = ask
        self.config = config
        self.name = config.name
        self.fingerprint = config.fingerprint
        self.simulated = config.simulated

    def complete(self, messages: Messages, **options: Any) -> Completion:
        # A reply repeats them at most; the environment of the controller may lack them.
        said = secrets_in(json.dumps(messages, ensure_ascii=False))
        asked = self.config.role, list(messages), options, said
        return Completion.from_json(self._ask("model.complete", *asked))


def services(
    meter: Meter, models: Models
) -> tuple[dict[str, Callable[..., Any]], Callable[[str], None]]:
    """Return what a controller does for its workers.

    Returns:
        Functions of the worker's name and JSON values, by name, and one that abandons the calls of
        a worker that has ended.
    """
    from pytest_skillopt.model.cache import DiskCache

    cache = models.replies.cache if models.replies is not None else None

    def forget(worker: str) -> None:
        meter.forget(f"{worker}:")
        if isinstance(cache, DiskCache):
            cache.forget(worker)

    def complete(worker: str, role: Any, messages: Any, options: Any, said: Any) -> Any:
        for secret in said:
            protect(value=secret)
        return models.get(role).complete(messages, **options).to_json()

    def ask(worker: str, call: str, wish: dict[str, Any]) -> Any:
        estimate = CallEstimate(**wish | {"price": Price(*wish["price"])})
        return meter.ask(f"{worker}:{call}", estimate)

    def done(worker: str, call: str, used: dict[str, Any], *more: Any) -> Any:
        return meter.done(f"{worker}:{call}", Usage(**used), *more)

    table: dict[str, Callable[..., Any]] = {
        "model.complete": complete,
        "throttle.ask": ask,
        "throttle.done": done,
        "throttle.check_time": lambda worker: meter.check_time(),
        "throttle.note": lambda worker, used, account: meter.note(Usage(**used), account),
    }
    if isinstance(cache, DiskCache):
        table |= {
            "cache.get": lambda worker, key: cache.get(key),
            "cache.set": lambda worker, key, text: cache.set(key, text),
            "cache.claim": lambda worker, key: cache.claim(key, worker),
            "cache.free": lambda worker, key: cache.free(key),
        }
    return table, forget
