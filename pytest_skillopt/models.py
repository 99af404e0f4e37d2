"""The models of this process, one a role, made when first used."""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.model.config import Server, model_config, provider_of, secret_names
from pytest_skillopt.model.limits import Meter, Wish
from pytest_skillopt.model.types import CapReached, Price, Usage
from pytest_skillopt.settings import Settings
from pytest_skillopt.untrusted import protect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_skillopt.model.cache import Replies
    from pytest_skillopt.model.limits import Throttle
    from pytest_skillopt.model.types import Model, Role


_LOOK_UP = 0.2
"""Seconds after which whoever waits looks whether the session has been interrupted."""
_OF_CACHE = ("get", "set", "claim", "free")


class Models:
    """Builds models through the hook ``pytest_skillopt_client`` and keeps them.

    Args:
        throttle: decides about every call; None: nothing is limited.
        cache: answers repeated calls; None: every call is sent.
    """

    def __init__(
        self,
        config: pytest.Config,
        settings: Settings,
        *,
        throttle: Throttle | None = None,
        cache: Replies | None = None,
    ) -> None:
        self._config = config
        self.settings = settings
        self.throttle: Throttle = throttle or Meter()
        self._cache = cache
        self._made: dict[Role, Model] = {}
        self._making = threading.RLock()
        protect(secret_names(settings))

    @classmethod
    def of(cls, config: pytest.Config) -> Models:
        """The models of this session; in an ordinary run without cache, caps or files."""
        if MODELS not in config.stash:
            models = config.stash[MODELS] = cls(config, Settings.from_config(config))
            config.add_cleanup(models.close)
        return config.stash[MODELS]

    @property
    def replies(self) -> Replies | None:
        return self._cache

    @property
    def notes(self) -> Iterable[str]:
        return self._cache.notes if self._cache is not None else ()

    def get(self, role: Role) -> Model:
        """The model of a role; ModelConfigError where the settings name no usable one."""
        with self._making:
            if role not in self._made:
                ask = self._config.hook.pytest_skillopt_client
                self._made[role] = ask(config=self._config, role=role) or self.build(role)
            return self._made[role]

    def probe(self, roles: Iterable[Role], ended: Callable[[], str]) -> None:
        """See whether the built-in clients of some roles are served, all at once.

        Raises:
            ModelConfigError: a provider refuses a model or a key.
            KeyboardInterrupt: ``ended`` says why no answer is wanted any more.
        """
        found = {self.get(role).fingerprint: self.get(role) for role in roles}
        probes = [model.probe for model in found.values() if hasattr(model, "probe")]
        said: SimpleQueue[Exception | None] = SimpleQueue()

        def ask(probe: Callable[[], object]) -> None:
            try:
                probe()
                said.put(None)
            except Exception as error:
                said.put(error)

        for probe in probes:  # in threads that do not keep an interrupted process from ending
            threading.Thread(target=ask, args=(probe,), daemon=True).start()
        left = len(probes)
        while left:
            try:
                error = said.get(timeout=_LOOK_UP)
            except Empty:
                if reason := ended():
                    raise KeyboardInterrupt(reason) from None
                continue
            left -= 1
            if error is not None and not isinstance(error, CapReached):
                raise error

    def close(self) -> None:
        for model in self._made.values():
            if hasattr(model, "close"):
                model.close()
        if self._cache is not None:
            self._cache.close()

    def build(self, role: Role, server: Server | None = None) -> Model:
        """The built-in client of a role: the official SDK against an OpenAI-compatible server, one
        that the project brings or as the settings say."""
        from pytest_skillopt.model.client import ChatModel

        return ChatModel(
            model_config(self.settings, role, server),
            throttle=self.throttle,
            cache=self._cache,
        )


class Services:
    """What the controller does for its workers, by name; ``worker.py`` holds the other end.

    The table is filled when the run is opened, after the workers have come up.
    """

    def __init__(self) -> None:
        self.table: dict[str, Callable[..., Any]] = {}
        self.forget: Callable[[str], None] = lambda prefix: None
        """Gives up the calls of a worker that has ended."""

    def open(self, meter: Meter, models: Models) -> None:
        from pytest_skillopt.model.cache import DiskCache

        def complete(role: Role, messages: Any, options: dict[str, Any]) -> dict[str, Any]:
            return models.get(role).complete(messages, **options).to_json()

        def ask(call: str, wish: dict[str, Any]) -> float:
            return meter.ask(call, Wish(**{**wish, "price": Price(*wish["price"])}))

        cache = models.replies.cache if models.replies is not None else None
        self.table |= {
            "model.complete": complete,
            "throttle.ask": ask,
            "throttle.done": lambda call, used, *more: meter.done(call, Usage(**used), *more),
            "throttle.note": lambda used, account: meter.note(Usage(**used), account),
        }
        if cache is not None:
            self.table |= {f"cache.{name}": getattr(cache, name) for name in _OF_CACHE}

        def forget(prefix: str) -> None:
            meter.forget(prefix)
            if isinstance(cache, DiskCache):
                cache.forget(prefix)

        self.forget = forget


def chat_model(
    config: pytest.Config,
    role: Role,
    *,
    provider: str,
    url: Callable[[], str],
    simulated: bool = False,
) -> Model | None:
    """For the hook ``pytest_skillopt_client``: the built-in client against a project's own server.

    With the session's cache, accounts and caps, which a model of another kind goes without.

    Args:
        provider: what stands before the colon in the role's setting. It also names the server in
            keys of the cache, so that the port may be another one every time.
        url: tells the base URL when the first call of a process is made.
        simulated: no real model answers, as every report then says. It costs nothing, and each
            request has a ``seed`` that is another one for every sample.

    Returns:
        None where the role's setting names another provider.
    """
    models = Models.of(config)
    if provider_of(models.settings, role) != provider:
        return None
    return models.build(role, Server(provider, url, simulated))


MODELS = pytest.StashKey[Models]()
"""Set by the session when a mode is on; else on the first use of a model in a test."""
