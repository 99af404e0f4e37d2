"""A coding agent that proposes edits beside the analysts: ``skillopt_proposer = agent:NAME``."""

from __future__ import annotations

import contextlib
import socket
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import pytest

from pytest_skillopt.addons.harness.agent import judged
from pytest_skillopt.addons.harness.binding import open_runner
from pytest_skillopt.addons.harness.command_line import CommandLineModel
from pytest_skillopt.addons.harness.proposal import SOCKET, Folder, proposed
from pytest_skillopt.addons.harness.proxy import AgentCalls, Proxy
from pytest_skillopt.addons.harness.settings import MOST_PROPOSALS, HarnessSettings
from pytest_skillopt.addons.harness.workspace import leaking
from pytest_skillopt.model.roles import Models
from pytest_skillopt.model.types import CacheMiss, ModelConfigError, ModelFault, Usage
from pytest_skillopt.skill.files import skill_files
from pytest_skillopt.suite.sampler import Stop, StopRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt import Context, Patch, TaskRecord
    from pytest_skillopt.addons.harness.adapters import Ended, Harness
    from pytest_skillopt.addons.harness.processes import Runner
    from pytest_skillopt.edits.calls import Calls

_MOST_CALLS = 60
"""Model calls of one run, after which it is ended and proposes nothing."""
_LOOK, _PATIENCE = 0.1, 5.0
"""Seconds between two looks at a running agent, and for its request."""


@dataclass
class Proposer:
    """The agent of a session, with its proxy to the optimizer's server."""

    harness: Harness
    proxy: Proxy
    runner: Runner
    limit: float
    """Seconds that a run may take, rollouts not counted; 0: no limit."""
    runs: WeakKeyDictionary[Calls, int] = field(default_factory=WeakKeyDictionary)
    """Number of runs by training."""
    notes: list[str] = field(default_factory=list)

    def work(self, folder: Folder, context: Context) -> tuple[str, Usage]:
        """Run the agent in a folder; return its last message and its usage.

        Raises:
            ModelError: it gave no answer.
            StopRun: a cap, a fault or an interrupt ended the run.
        """
        if leak := leaking(folder.root, self.runner.hidden):
            raise ModelFault(f"{leak} is above the agent's folder: set TMPDIR", fatal=True)
        agent_calls = AgentCalls(account=("optimizer", "agent", ""), most_calls=_MOST_CALLS)
        values = {"prompt": folder.prompt, "model": self.proxy.model}
        with contextlib.ExitStack() as stack:
            values["url"] = stack.enter_context(self.proxy.serving(agent_calls))
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            try:
                server.bind(str(folder.root / SOCKET))
            except OSError as error:
                raise ModelFault(f"{folder.root}: {error}; set TMPDIR to a shorter path") from None
            server.listen()
            server.settimeout(_LOOK)
            pool = stack.enter_context(ThreadPoolExecutor(1))
            arguments = (self.harness, values, folder.root, self.limit, (), agent_calls)
            running = pool.submit(self.runner.run, *arguments)
            try:
                _serve(folder, server, running, agent_calls, context)
            finally:
                agent_calls.stopped = True
            ended = running.result()
        trace, problem = judged(self.harness, agent_calls, ended, self.limit)
        if problem:
            raise ModelFault(problem)
        return trace.text, agent_calls.usage


def _serve(
    folder: Folder,
    server: socket.socket,
    running: Future[Ended],
    agent_calls: AgentCalls,
    context: Context,
) -> None:
    """Answer requests for rollouts until the agent ends."""
    while not running.done():
        try:
            if reason := context.calls.interrupted():
                raise StopRun(reason, kind=Stop.INTERRUPTED)
            try:
                asking = server.accept()[0]
            except TimeoutError:
                continue
            with asking:
                asking.settimeout(_PATIENCE)
                asked = b""
                with contextlib.suppress(OSError):
                    asked = asking.recv(32)
                with agent_calls.excused():
                    said = folder.answer(asked.decode(errors="replace").strip())
                with contextlib.suppress(OSError):
                    asking.sendall(said.encode(errors="replace"))
        except KeyboardInterrupt as interrupt:
            raise StopRun("the session was interrupted", kind=Stop.INTERRUPTED) from interrupt


PROPOSER = pytest.StashKey[Proposer]()


def open_proposer(config: pytest.Config) -> None:
    """Find the agent and open a proxy to the optimizer's server.

    Raises:
        pytest.UsageError: the agent is unknown or not installed.
        ModelConfigError: the optimizer is not a model on a server with its protocol.
    """
    models = Models.of(config)
    ours, optimizer = models.settings.of(HarnessSettings), models.get("optimizer")
    target = getattr(optimizer, "config", None)
    kind, _, name = ours.proposer.partition(":")
    if kind != "agent" or not name:
        said = f"skillopt_proposer: {ours.proposer!r} is not of the form agent:NAME"
        raise ModelConfigError(f"{said}, as in agent:codex")
    if target is None or isinstance(optimizer, CommandLineModel):
        raise ModelConfigError(
            f"skillopt_proposer = {ours.proposer} calls the optimizer's server, and "
            f"{optimizer.name} is not a model on one: set skillopt_optimizer = openai:MODEL[@URL]"
        )
    proxy = Proxy(target, models.throttle, models.replies)
    config.add_cleanup(proxy.close)
    harness, runner = proxy.find(name), open_runner(config, models.settings)
    config.stash[PROPOSER] = Proposer(harness, proxy, runner, models.settings.timeout)


def propose(config: pytest.Config, records: Sequence[TaskRecord], context: Context) -> list[Patch]:
    """Have the agent propose edits for failing tasks.

    Raises:
        StopRun: a cap, a fatal fault or an interrupt ends the run.
    """
    proposer = config.stash[PROPOSER]
    failing = [record for record in records if record.failed]
    runs = proposer.runs.get(context.calls, 0)
    if not failing or runs >= MOST_PROPOSALS:
        return []
    proposer.runs[context.calls] = runs + 1

    def work(folder: Folder) -> tuple[str, Usage]:
        if context.settings.cache == "ro":
            raise CacheMiss("--skillopt-cache=ro starts no agent")
        return proposer.work(folder, context)

    path = config.rootpath / failing[0].task.skill
    trained = {path.name, *context.document.names}
    files = skill_files(path, config.rootpath).items()
    others = {name: data for name, data in files if name not in trained}
    patches, note = proposed(failing, context, work, name=str(proposer.harness), others=others)
    proposer.notes += [note] if note else []
    return patches
