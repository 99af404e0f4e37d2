"""The models of this process, one per role, made when first used."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.model.config import (
    Server,
    check_prices,
    model_config,
    protect_requests,
    provider_of,
)
from pytest_skillopt.model.limits import Meter
from pytest_skillopt.model.types import CapReached, ModelConfigError
from pytest_skillopt.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_skillopt.model.cache import Replies
    from pytest_skillopt.model.limits import Throttle
    from pytest_skillopt.model.types import Model, Role


_LOOK_UP = 0.2
"""Interval in seconds at which a wait checks whether the session was interrupted."""


class Models:
    """Build models through the hook ``pytest_skillopt_client`` and keep them.

    Args:
        throttle: decides about every call; None: no limits.
        replies: answers repeated calls; None: every call is sent.
    """

    def __init__(
        self,
        config: pytest.Config,
        settings: Settings,
        *,
        throttle: Throttle | None = None,
        replies: Replies | None = None,
    ) -> None:
        self._config = config
        self.settings = settings
        self.throttle: Throttle = throttle or Meter()
        self._replies = replies
        self._made: dict[Role, Model] = {}
        self._making = threading.RLock()
        protect_requests(settings)

    @classmethod
    def of(cls, config: pytest.Config) -> Models:
        """Return the models of this session; in an ordinary run without cache, caps or files."""
        if MODELS not in config.stash:
            # Somebody waits for the test, and nothing is lost with it: no long waits.
            settings = replace(Settings.from_config(config), call_retries=2, longest_pause=10.0)
            models = config.stash[MODELS] = cls(config, settings)
            config.add_cleanup(models.close)
        return config.stash[MODELS]

    @property
    def replies(self) -> Replies | None:
        return self._replies

    @property
    def notes(self) -> Iterable[str]:
        return self._replies.notes if self._replies is not None else ()

    def get(self, role: Role) -> Model:
        """Return the model of a role; raise ModelConfigError if the settings name no usable one."""
        with self._making:
            if role not in self._made:
                ask = self._config.hook.pytest_skillopt_client
                self._made[role] = ask(config=self._config, role=role) or self.build(role)
            return self._made[role]

    def capped(self, role: Role, replies: Replies) -> Model:
        """Return the model of a role for a command; from now on caps and stored replies hold.

        Raises:
            ModelConfigError: the settings name no usable one, or no price under a cap in money.
        """
        self.throttle = Meter(self.settings)
        self._replies = replies
        model = self.get(role)
        if self.settings.max_cost and hasattr(model, "config"):
            check_prices([model.config])
        return model

    def probe(self, roles: Iterable[Role], ended: Callable[[], str]) -> None:
        """Check concurrently that the built-in clients of some roles get an answer.

        Raises:
            ModelConfigError: a provider refuses a model or a key.
            KeyboardInterrupt: ``ended`` returned the reason why the session ends.
        """
        probes = self._probes(roles)
        errors: list[Exception] = []

        def ask(probe: Callable[[], object]) -> None:
            try:
                probe()
            except CapReached:
                pass
            except Exception as error:
                errors.append(error)

        # Daemon threads do not keep an interrupted process alive.
        threads = [threading.Thread(target=ask, args=(p,), daemon=True) for p in probes]
        for thread in threads:
            thread.start()
        while not errors and (alive := [thread for thread in threads if thread.is_alive()]):
            if reason := ended():
                raise KeyboardInterrupt(reason)
            alive[0].join(_LOOK_UP)
        if errors:
            raise errors[0]

    def _probes(self, roles: Iterable[Role]) -> list[Callable[[], object]]:
        """Return the checks of the models; ModelConfigError if one answers no messages."""
        found = {self.get(role).fingerprint: self.get(role) for role in roles}
        for model in found.values():
            if refusal := getattr(model, "no_chat", ""):
                # Before another model is asked, which may cost.
                raise ModelConfigError(refusal)
        return [model.probe for model in found.values() if hasattr(model, "probe")]

    def close(self) -> None:
        for model in self._made.values():
            if hasattr(model, "close"):
                model.close()
        if self._replies is not None:
            self._replies.close()

    def build(self, role: Role, server: Server | None = None) -> Model:
        """Build the client of a role: the official SDK against an OpenAI-compatible server.

        Args:
            role: the role.
            server: the project's own server; None: the server of the settings.
        """
        from pytest_skillopt.model.client import ChatModel

        return ChatModel(
            model_config(self.settings, role, server),
            throttle=self.throttle,
            replies=self._replies,
        )


def chat_model(
    config: pytest.Config,
    role: Role,
    *,
    provider: str,
    url: Callable[[], str],
    simulated: bool = False,
) -> Model | None:
    """Return the built-in client for a project's own server, for ``pytest_skillopt_client``.

    It has the session's cache, accounts and caps, which a model of another kind lacks.

    Args:
        config: the session's configuration.
        role: ``target``, ``optimizer``, ``judge`` or ``user``.
        provider: the text before the colon in the role's setting. It also names the server in
            keys of the cache, so that the port may change.
        url: returns the base URL; called when a process makes its first call.
        simulated: no real model answers, as every report then says. Calls cost nothing, and the
            ``seed`` of each request differs between samples.

    Returns:
        The client; None if the role's setting names another provider.
    """
    models = Models.of(config)
    if provider_of(models.settings, role) != provider:
        return None
    return models.build(role, Server(provider, url, simulated))


MODELS = pytest.StashKey[Models]()
"""The session's models: set by a mode, otherwise on the first use of a model in a test."""
