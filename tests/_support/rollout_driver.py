"""A pytest plugin that runs a job over the executors, without models and without a training.

Loaded with ``-p rollout_driver``; ``--drive=module:function`` names the job, a function of the
executor and the tasks that runs in the controller.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.rollouts import worker_loop
from pytest_skillopt.rollouts.rollout import RolloutRequest
from pytest_skillopt.settings import Settings
from pytest_skillopt.tasks.task import SkillTask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_skillopt.rollouts.executor import Executor, WorkersExecutor
    from pytest_skillopt.rollouts.rollout import Rollout

SKILL = "skills/demo/SKILL.md"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--drive", default="")
    parser.addoption("--drive-lanes", type=int, default=1)
    parser.addoption("--drive-timeout", type=float, default=0.0)
    parser.addoption("--drive-limits", action="store_true")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("drive"):
        return
    lanes = config.getoption("drive_lanes")
    timeout = config.getoption("drive_timeout")
    if hasattr(config, "workerinput"):
        if config.getoption("drive_limits"):
            call_through_the_controller(config)
        vars(worker_loop)["describe_tasks"] = lambda config, settings, items: collect(items)
        config.pluginmanager.register(Loop(config, Settings(lanes=lanes, timeout=timeout)))
    elif config.getoption("tx", None):
        from pytest_skillopt.rollouts import workers

        workers._OVERDUE = 1.0
        services: dict[str, Callable[..., Any]] = {"add": lambda worker, a, b: a + b, "fail": fail}
        if config.getoption("drive_limits"):
            services |= model_services(config)

        def job(executor: WorkersExecutor, tasks: list[SkillTask]) -> None:
            executor.services = services
            find_job(config)(executor, tasks)

        config.pluginmanager.register(workers.XdistRun(config, job, timeout))
    else:
        config.pluginmanager.register(InProcess(timeout))


class Loop(worker_loop.WorkerLoop):
    """The loop of a worker in which every item is a task."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        pass


def call_through_the_controller(config: pytest.Config) -> None:
    """Have the controller make the model calls of this worker, as in a training."""
    from pytest_skillopt.model.remote import RemoteModels
    from pytest_skillopt.model.roles import MODELS

    settings = Settings.from_config(config)
    config.stash[MODELS] = RemoteModels(config, settings, worker_loop.link(config).ask)


def model_services(config: pytest.Config) -> dict[str, Callable[..., Any]]:
    from pytest_skillopt.model.limits import Meter
    from pytest_skillopt.model.remote import services
    from pytest_skillopt.model.roles import MODELS, Models

    meter = Meter()
    config.stash[MODELS] = Models(config, Settings.from_config(config), throttle=meter)
    return services(meter, config.stash[MODELS])[0]


def fail(worker: str, kind: str) -> None:
    from pytest_skillopt.model import types

    raise getattr(types, kind)(f"a {kind} of the controller")


class InProcess:
    def __init__(self, timeout: float) -> None:
        self.timeout = timeout

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        from pytest_skillopt.rollouts.executor import write_stray
        from pytest_skillopt.rollouts.runner import SerialExecutor

        executor = SerialExecutor(session, timeout=self.timeout)
        try:
            find_job(session.config)(executor, collect(session.items))
        finally:
            write_stray(session.config, executor.close())
        return True


def collect(items: list[pytest.Item]) -> list[SkillTask]:
    return [SkillTask(item.nodeid, "source", SKILL, item.nodeid) for item in items]


def find_job(config: pytest.Config) -> Callable[[Any, list[SkillTask]], None]:
    module, _, name = config.getoption("drive").partition(":")
    found: Callable[[Any, list[SkillTask]], None] = getattr(importlib.import_module(module), name)
    return found


def version_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def requests(
    tasks: Iterable[SkillTask], content: bytes, *, stream: str = "train", k: int = 1
) -> list[RolloutRequest]:
    version = version_of(content)
    return [
        RolloutRequest(task.id, task.source, task.skill, version, "model", stream, index)
        for index in range(k)
        for task in tasks
    ]


def take(executor: Executor, wanted: list[RolloutRequest], content: bytes) -> list[Rollout]:
    """Submit, wait for all, and return the rollouts in the order of the requests."""
    executor.add_version(SKILL, version_of(content), content)
    executor.submit(wanted)
    found: dict[str, Rollout] = {}
    while len(found) < len(wanted):
        rollout = executor.next()
        assert rollout.request.key not in found
        found[rollout.request.key] = rollout
    return [found[request.key] for request in wanted]


def skill_text(number: int) -> bytes:
    return f"---\nname: demo\ndescription: A demo.\n---\nversion {number}\n".encode()


def keep(rollouts: Iterable[Rollout]) -> None:
    """Write the rollouts where the test that runs this session finds them."""
    Path("rollouts.json").write_text(json.dumps([r.to_json() for r in rollouts]), encoding="utf-8")


def once(executor: Executor, tasks: list[SkillTask]) -> None:
    """A job: each task once under one version."""
    keep(take(executor, requests(tasks, skill_text(0)), skill_text(0)))


def two_versions(executor: Executor, tasks: list[SkillTask]) -> None:
    """A job: each task three times under two versions, then under the first again."""
    rollouts = []
    for round_, number in enumerate((0, 1, 0)):
        content = skill_text(number)
        wanted = requests(tasks, content, stream=str(round_), k=3)
        rollouts += take(executor, wanted, content)
    keep(rollouts)


def retrying(executor: Executor, tasks: list[SkillTask]) -> None:
    """A job: each task once, with errors tried three times in all, as a sampler does."""
    found = take(executor, requests(tasks, skill_text(0)), skill_text(0))
    for _ in range(2):
        again = [r.request for r in found if r.outcome == "error"]
        fresh = {r.request.key: r for r in take(executor, again, skill_text(0))} if again else {}
        found = [fresh.get(r.request.key, r) for r in found]
    keep(found)
