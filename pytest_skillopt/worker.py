"""A session with a mode on, as a pytest-xdist worker sees it.

Its models ask the controller before each call, so that one place keeps the rates and the caps of
all workers; replies come from the controller's cache, on disk where this machine sees it.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.model.cache import Replies
from pytest_skillopt.model.types import CacheError
from pytest_skillopt.models import MODELS, Models
from pytest_skillopt.suite.remote import WorkerLoop, link, shared_directory
from pytest_skillopt.suite.selection import describe_tasks, keep_tasks

if TYPE_CHECKING:
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.suite.remote import Link


def join(config: pytest.Config, settings: Settings) -> None:
    """Make this worker serve the controller."""
    wire = link(config)
    config.stash[MODELS] = Models(
        config, settings, throttle=RemoteThrottle(wire), cache=_replies(config, settings, wire)
    )
    selection = _TasksOnly(config)
    config.pluginmanager.register(selection, "skillopt-tasks")
    loop = WorkerLoop(
        config,
        lambda items: describe_tasks(config, settings, items),
        lanes=settings.lanes,
        timeout=settings.timeout,
        others=lambda: selection.others,
    )
    config.pluginmanager.register(loop, "skillopt-worker")


class _TasksOnly:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.others = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.others = keep_tasks(self._config, items)


def _replies(config: pytest.Config, settings: Settings, wire: Link) -> Replies:
    mode: Any = settings.cache
    shared = shared_directory(config)
    if mode != "off" and shared is not None:
        # A broken cache is the controller's to tell; a worker that fails here would only be gone.
        with contextlib.suppress(CacheError):
            return Replies.open(shared, mode)
    return Replies(mode, RemoteCache(wire))


class RemoteThrottle:
    """The controller's ``Limits`` behind the channel."""

    def __init__(self, wire: Link) -> None:
        self._wire = wire

    def ask(self, call: str, wish: dict[str, Any]) -> float:
        return float(self._wire.ask("throttle.ask", self._wire.prefix + call, wish))

    def done(
        self,
        call: str,
        usage: dict[str, Any],
        account: tuple[str, str, str],
        retry_after: float = 0.0,
        fault: str = "",
    ) -> None:
        named = self._wire.prefix + call
        self._wire.ask("throttle.done", named, usage, account, retry_after, fault)

    def note(self, usage: dict[str, Any], account: tuple[str, str, str]) -> None:
        self._wire.ask("throttle.note", usage, account)


class RemoteCache:
    """The controller's cache behind the channel, for a machine that does not see its files."""

    directory = Path("the controller's cache")

    def __init__(self, wire: Link) -> None:
        self._wire = wire

    def get(self, key: str) -> str | None:
        found: str | None = self._wire.ask("cache.get", key)
        return found

    def set(self, key: str, value: str) -> None:
        self._wire.ask("cache.set", key, value)
