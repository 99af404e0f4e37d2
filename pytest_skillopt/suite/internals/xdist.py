"""Private interfaces of pytest-xdist and execnet that workers need."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any, cast

import execnet
import pytest

from pytest_skillopt.suite.internals.probe import probe

if TYPE_CHECKING:
    from collections.abc import Callable

_RESTART_TRIES = 5
_RESTART_PAUSE = 1.0
"""Seconds between two attempts."""


def names() -> dict[type, str]:
    """Return the private names of xdist that the controller uses, by class."""
    from xdist.dsession import DSession
    from xdist.workermanage import WorkerController

    return {
        WorkerController: "notify_inproc shutdown workerinput gateway",
        DSession: "_max_worker_restart _clone_node worker_runtest_protocol_complete",
    }


def ensure_worker(config: pytest.Config) -> None:
    """Make xdist start one worker if none is requested, like ``-n 1``, since lanes need one.

    Raises:
        UsageError: xdist is switched off or has changed.
    """
    if not config.pluginmanager.hasplugin("xdist"):
        raise pytest.UsageError("skillopt_lanes needs pytest-xdist, which is switched off here")
    probe(names(), ("pytest-xdist",))
    if config.option.dist == "no" or not config.option.tx:
        config.option.dist, config.option.tx = "load", ["popen"]


def wake_controller(node: Any) -> None:
    """Wake xdist's loop from any thread, so that it asks its scheduler."""
    node.notify_inproc("runtest_protocol_complete", node=node, item_index=None, duration=0.0)


def wrap_shutdown(node: Any, around: Callable[[Callable[[], None]], None]) -> None:
    """Call ``around(shutdown)`` when xdist tells a worker to shut down."""
    node.shutdown = functools.partial(around, node.shutdown)


def adopt_restarts(config: pytest.Config, tell: Callable[[str], None]) -> None:
    """Lift xdist's limit of restarted workers, and survive a worker that cannot be restarted.

    The limit guards against workers that never start, which the caller counts itself. A restart is
    attempted repeatedly, in case its server restarts, too; ``tell`` is called if all attempts fail.
    """
    dsession: Any = config.pluginmanager.get_plugin("dsession")
    if config.getoption("maxworkerrestart", None) is None:
        dsession._max_worker_restart = None
    dsession._clone_node = functools.partial(_clone_patiently, dsession._clone_node, tell)


def _clone_patiently(
    clone: Callable[[Any], Any], tell: Callable[[str], None], node: Any
) -> Any | None:
    error: Exception | None = None
    for _ in range(_RESTART_TRIES):
        try:
            return clone(node)
        except (OSError, EOFError, execnet.HostNotFound) as failed:
            error = failed
            time.sleep(_RESTART_PAUSE)
    tell(f"{node.gateway.id} cannot be started again ({error}); the others go on without it")
    return None


def worker_input(config: pytest.Config) -> dict[str, Any]:
    return cast("dict[str, Any]", cast("Any", config).workerinput)
