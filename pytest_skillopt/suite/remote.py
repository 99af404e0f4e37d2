"""What runs in an xdist worker: it waits for requests and answers each with a rollout.

Nothing here is imported by the controller, and nothing assumes that the two share a file system.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.suite import _compat, processes
from pytest_skillopt.suite.context import shorten
from pytest_skillopt.suite.link import Link
from pytest_skillopt.suite.rollouts import InfraError, Rollout, RolloutRequest
from pytest_skillopt.suite.runner import RolloutRunner, rollouts_only
from pytest_skillopt.suite.versions import SkillVersions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_skillopt.suite.tasks import SkillTask

_LINK = pytest.StashKey[Link]()
_LINGER = 2.0
"""Seconds that a worker which is done waits for threads that a test has left behind."""


def is_warm_worker(config: pytest.Config) -> bool:
    """Whether this is a worker of a controller that runs rollouts."""
    return _compat.worker_channel(config) is not None


def link(config: pytest.Config) -> Link:
    """This worker's connection to the controller, to ask its services."""
    if _LINK not in config.stash:
        worker = _compat.worker_input(config)["workerid"]
        config.stash[_LINK] = Link(_compat.worker_channel(config), worker)
    return config.stash[_LINK]


def sees_files_of_controller(config: pytest.Config) -> bool:
    """Whether a file that the controller wrote for this purpose is there, with its content."""
    path, content = _compat.worker_input(config).get("skillopt_nonce", ("", ""))
    try:
        return bool(path) and Path(path).read_text(encoding="utf-8") == content
    except OSError:
        return False


def shared_directory(config: pytest.Config) -> Path:
    """The directory that this worker shares with its controller, where it sees it."""
    return Path(_compat.worker_input(config)["skillopt_nonce"][0]).parent


class WorkerLoop:
    """The plugin that takes the place of xdist's loop in a worker."""

    def __init__(
        self,
        config: pytest.Config,
        collect: Callable[[list[pytest.Item]], list[SkillTask]],
        *,
        lanes: int = 1,
        timeout: float = 0.0,
    ) -> None:
        """Args:
        collect: from the collected items to the tasks among them; may raise ``UsageError``.
        timeout: seconds after which a rollout ends together with this worker; 0: never.
        """
        self._link = link(config)
        self._lanes = lanes
        self._collect = collect
        self._worker: str = _compat.worker_input(config)["workerid"]
        self._versions = SkillVersions()
        self._watchdog = Watchdog(timeout, self._give_up)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._link.open()
        facts = self._facts(session)
        with contextlib.suppress(OSError):
            self._link.send("hello", json.dumps(facts))
            if not facts["refusal"]:
                self._serve(session)
            self._wait_for_stop()
        return True

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """A thread that a test left behind must not keep the worker from ending."""
        main = threading.main_thread()
        left = [t for t in threading.enumerate() if t is not main and not t.daemon]
        if left:
            timer = threading.Timer(_LINGER, os._exit, (0,))
            timer.daemon = True
            timer.start()

    def _facts(self, session: pytest.Session) -> dict[str, Any]:
        """What the controller must know before it sends anything."""
        facts: dict[str, Any] = {
            "pid": os.getpid(),
            "slots": self._lanes,
            "tasks": "[]",
            "refusal": "",
        }
        facts["collection_errors"] = session.testsfailed
        try:
            tasks = self._collect(list(session.items))
        except pytest.UsageError as error:
            return {**facts, "refusal": str(error)}
        return {**facts, "tasks": json.dumps([task.to_json() for task in tasks], sort_keys=True)}

    def _serve(self, session: pytest.Session) -> None:
        runner = RolloutRunner(session, self._versions, worker=self._worker)
        with rollouts_only(session.config), self._watchdog:
            try:
                for request in self._requests():
                    with self._watchdog.watching(request):
                        rollout = runner.run(request)
                    self._send(rollout)
            finally:
                for line in runner.close():
                    self._link.send("stray", line)
                self._versions.close()

    def _requests(self) -> Iterator[RolloutRequest]:
        while True:
            kind, *rest = self._link.inbox.get()
            if kind == "run":
                yield RolloutRequest.from_json(json.loads(rest[0]))
            elif kind == "skill":
                self._versions.add_skill(*rest)
            elif kind == "version":
                self._versions.add_version(*rest)
            elif kind == "stop":
                self._link.inbox.put(("stop",))
                return

    def _wait_for_stop(self) -> None:
        while self._link.inbox.get()[0] != "stop":
            continue

    def _send(self, rollout: Rollout) -> None:
        self._link.send("result", rollout.request.key, json.dumps(rollout.to_json()))

    def _give_up(self, request: RolloutRequest, message: str) -> None:
        """End the worker: nothing else stops a rollout that hangs, or what it started."""
        error = InfraError("timeout", message)
        rollout = Rollout(request, "error", error=error, worker=self._worker)
        self._link.send_last("result", request.key, json.dumps(rollout.to_json()))
        processes.kill_descendants()
        os._exit(1)


@dataclasses.dataclass(frozen=True, slots=True)
class _Watched:
    request: RolloutRequest
    since: float
    thread: int


class Watchdog:
    """Calls ``give_up`` from a thread of its own when a rollout takes longer than ``timeout``."""

    def __init__(self, timeout: float, give_up: Callable[[RolloutRequest, str], None]) -> None:
        self._timeout = timeout
        self._give_up = give_up
        self._watched: dict[str, _Watched] = {}
        self._stopped = threading.Event()

    def __enter__(self) -> Watchdog:
        if self._timeout:
            threading.Thread(target=self._watch, name="skillopt-watchdog", daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopped.set()

    @contextlib.contextmanager
    def watching(self, request: RolloutRequest) -> Iterator[None]:
        key = request.key
        self._watched[key] = _Watched(request, time.monotonic(), threading.get_ident())
        try:
            yield
        finally:
            self._watched.pop(key, None)

    def _watch(self) -> None:
        while not self._stopped.wait(min(1.0, self._timeout / 10)):
            late = time.monotonic() - self._timeout
            for watched in list(self._watched.values()):
                if watched.since < late:
                    self._give_up(watched.request, self._message(watched))

    def _message(self, watched: _Watched) -> str:
        return shorten(
            f"{watched.request.task} took longer than skillopt_timeout={self._timeout:g} seconds"
            f"{_where(watched.thread)}",
            1_000,
        )


def _where(thread: int) -> str:
    """The innermost line that is neither Python's own nor an installed package's."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        path = frame.f_code.co_filename
        if "site-packages" not in path and not path.startswith((sys.base_prefix, "<")):
            return f", at {path}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
