"""What warm workers need of pytest-xdist and execnet."""

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
"""Seconds between two tries."""


def names() -> dict[type, str]:
    """By class, what is used of xdist in the controller."""
    from xdist.dsession import DSession
    from xdist.workermanage import WorkerController

    return {
        WorkerController: "notify_inproc shutdown workerinput gateway",
        DSession: "_max_worker_restart _clone_node worker_runtest_protocol_complete",
    }


def ensure_worker(config: pytest.Config) -> None:
    """Have xdist start one worker where none is asked for, as ``-n 1`` would: lanes live in
    workers. UsageError where xdist is switched off or has changed."""
    if not config.pluginmanager.hasplugin("xdist"):
        raise pytest.UsageError("skillopt_lanes needs pytest-xdist, which is switched off here")
    probe(names(), ("pytest-xdist",))
    if config.option.dist == "no" or not config.option.tx:
        config.option.dist, config.option.tx = "load", ["popen"]


def wake_controller(node: Any) -> None:
    """Make xdist's loop ask its scheduler, from any thread, by an event that it passes on
    unread."""
    node.notify_inproc("runtest_protocol_complete", node=node, item_index=None, duration=0.0)


def wrap_shutdown(node: Any, around: Callable[[Callable[[], None]], None]) -> None:
    """Have ``around(shutdown)`` called where xdist tells a worker to shut down."""
    node.shutdown = functools.partial(around, node.shutdown)


def adopt_restarts(config: pytest.Config, tell: Callable[[str], None]) -> None:
    """Lift xdist's bound of restarted workers, and survive a worker that cannot be restarted.

    The bound guards against workers that never come up, which the caller counts itself. A server
    that an operator restarts is waited for; ``tell`` is told when a worker stays away.
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
    tell(f"{node.gateway.id} cannot be started again ({error}), the others go on without it")
    return None


def worker_input(config: pytest.Config) -> dict[str, Any]:
    return cast("dict[str, Any]", cast("Any", config).workerinput)
