"""One run of a coding agent with a version of a skill: what ``skill_harness(prompt)`` does."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import re
import shutil
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_skillopt.harness import kept, processes, sandbox
from pytest_skillopt.harness.proxy import Ticket, marks_of
from pytest_skillopt.harness.records import Harness, Job, Trace
from pytest_skillopt.harness.workspace import (
    SkillTouched,
    Workspace,
    changes,
    digest_of,
    leaking_memory,
    unified_diff,
)
from pytest_skillopt.model.agent import Reply, ReplyError, ToolRun
from pytest_skillopt.model.types import ModelFault, Usage

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from pytest_skillopt.harness.processes import Ended
    from pytest_skillopt.harness.proxy import Proxy
    from pytest_skillopt.harness.workspace import Snapshot
    from pytest_skillopt.model.cache import Replies
    from pytest_skillopt.suite.context import Skill

_CHECK_SECONDS = 120.0
_OUTPUT = 4_000
_TRIGGER_CALLS = 3
"""Model calls in which an agent that wants a skill has asked for it."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A harness as it is on this machine."""

    harness: Harness
    executable: str
    version: str

    def __str__(self) -> str:
        return f"{self.harness.name} {self.version}"


@dataclass(frozen=True, slots=True)
class Place:
    """All that an agent needs to know of the rollout it runs in."""

    project: Path
    """Root directory of the test session."""
    temporary: Path
    """Where pytest makes its temporary folders."""
    skill: Skill
    model: str
    fingerprint: str
    """Of the model and its server."""
    proxy: Callable[[], Proxy]
    replies: Replies | None
    """Where whole runs are kept; None: nowhere."""
    sample: str
    account: tuple[str, str, str]
    record: Callable[[str, str], None]
    on_usage: Callable[[Usage], None]
    on_read: Callable[[bool], None]
    limit: float
    """Seconds of the agent's own time; 0: none."""
    passed: Mapping[str, str]
    """Environment variables that the user lets through."""
    sandbox: str


class HarnessReply(Reply):
    """The last message of a coding agent, with what it did."""

    files: dict[str, str]
    """Path in the workspace to ``added``, ``changed`` or ``removed``."""
    diff: str
    """The same as a unified diff, bounded."""
    skill_used: bool
    """The agent asked for the skill."""
    skill_read: bool
    """The skill's body was in a request to the model."""
    exit_status: int
    seconds: float
    """Wall time; of a run that was kept, what it took when it was made."""
    workspace: Path
    _shell: Callable[[str, float], Ended]

    @property
    def commands(self) -> tuple[str, ...]:
        """The shell commands that the agent ran, in order."""
        return tuple(filter(None, map(_command, self.tool_calls)))

    def ran(self, pattern: str) -> bool:
        """Whether a shell command matches the regular expression somewhere."""
        return any(re.search(pattern, command) for command in self.commands)

    def check(self, command: str, timeout: float = _CHECK_SECONDS) -> str:
        """Run a shell command in the workspace, confined as the agent was; returns its output.

        Raises:
            ReplyError: it fails, or takes longer than ``timeout`` seconds; with its output.
        """
        done = self._shell(command, timeout)
        output = f"{done.out}{done.err}".strip()[-_OUTPUT:]
        if done.why == "time":
            raise ReplyError(f"`{command}` took longer than {timeout:g} s:\n{output}")
        if done.status != 0:
            raise ReplyError(f"`{command}` failed with {done.status}:\n{output}")
        return output


class HarnessAgent:
    """The fixture ``skill_harness``. Each call is a run of its own, in the same workspace."""

    def __init__(
        self, installed: Installed, place: Place, workspace: Path, find: Callable[[str], Installed]
    ) -> None:
        """Args:
        find: a harness by its name, for ``use``.
        """
        self._installed = installed
        self._place = place
        self._find = find
        self._asked: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.workspace = workspace
        """Where the agent works, unless a call says otherwise."""

    @property
    def name(self) -> str:
        """Of the harness, such as ``codex``."""
        return self._installed.harness.name

    @property
    def version(self) -> str:
        """Of the installed command line."""
        return self._installed.version

    def use(self, harness: str) -> HarnessAgent:
        """The same agent in another harness."""
        return HarnessAgent(self._find(harness), self._place, self.workspace, self._find)

    def __call__(
        self,
        prompt: str,
        *,
        workspace: str | os.PathLike[str] | None = None,
        copy: str | os.PathLike[str] | None = None,
        others: Sequence[str | os.PathLike[str]] = (),
        explicit: bool = False,
        max_turns: int = 0,
        timeout: float | None = None,
        cache: bool = True,
    ) -> HarnessReply:
        """Give the agent a task and wait until it has finished.

        Args:
            workspace: a folder in place of the fixture ``workspace``.
            copy: a folder, relative to the root directory, whose content is copied into the
                workspace first.
            others: folders of further skills, relative to the root directory, that compete.
            explicit: force the skill, in harnesses that have a way to say so.
            max_turns: model calls after which the run is ended; 0: as many as it wants.
            timeout: seconds of the agent's own time, in place of nine tenths of
                ``skillopt_timeout``.
            cache: whether a run may be kept, and one that was kept may be taken; False for a
                task with effects outside of its workspace.

        Raises:
            ReplyError: no final answer within ``max_turns`` or ``timeout``.
            ModelError: the infrastructure failed, the harness included.
            ValueError: ``explicit`` in a harness that has no way to force a skill.
        """
        run = self._run(prompt, workspace, copy, others, explicit, max_turns, timeout, cache, False)
        if run.problem:
            raise ReplyError(run.problem)
        return self._reply(run)

    async def aio(self, prompt: str, **options: Any) -> HarnessReply:
        """As calling the agent, without blocking the event loop."""
        return await asyncio.to_thread(functools.partial(self, prompt, **options))

    def trigger(self, prompt: str, *, max_turns: int = _TRIGGER_CALLS, **options: Any) -> bool:
        """Whether the agent uses the skill for a task; it is ended once that is known.

        Args:
            max_turns: model calls after which the answer is no.
            options: ``workspace``, ``copy``, ``others``, ``timeout`` and ``cache`` of a call.
        """
        names = ("workspace", "copy", "others", "timeout", "cache")
        known = dict(zip(names, (None, None, (), None, True), strict=True))
        if unknown := options.keys() - known.keys():
            raise TypeError(f"trigger() has no option {', '.join(sorted(unknown))}")
        given = {**known, **options}
        run = self._run(
            prompt,
            given["workspace"],
            given["copy"],
            given["others"],
            False,
            max_turns,
            given["timeout"],
            given["cache"],
            True,
        )
        return run.skill_read or run.skill_used

    def _run(
        self,
        prompt: str,
        workspace: Any,
        copy: Any,
        others: Sequence[Any],
        explicit: bool,
        max_turns: int,
        timeout: float | None,
        cache: bool,
        only_trigger: bool,
    ) -> _Run:
        root = Path(workspace).absolute() if workspace is not None else self.workspace
        said = self._prompt(prompt, explicit)
        project, harness = self._place.project, self._installed.harness
        task = _Task(
            said,
            max_turns,
            self._place.limit if timeout is None else timeout,
            only_trigger,
            tuple(project / other for other in others),
        )
        self._check_surroundings(root)
        try:
            if copy is not None:
                _copy(project / copy, root)
            laid = Workspace(
                root,
                harness.skills,
                self._place.skill.path,
                others=task.others,
                ignored=harness.leaves,
            )
        except OSError as error:
            raise ModelFault(f"{root}: the workspace cannot be laid out ({error})") from error
        try:
            run = self._kept(task, laid) if cache else self._made(task, laid)
        finally:
            laid.clear()
        self._tell(prompt, run, root)
        return run

    def _prompt(self, prompt: str, explicit: bool) -> str:
        form = self._installed.harness.explicit
        if not explicit:
            return prompt
        if not form:
            raise ValueError(f"{self.name} has no way to force a skill: leave explicit=True out")
        return form.format(name=self._place.skill.name, prompt=prompt)

    def _check_surroundings(self, root: Path) -> None:
        project = self._place.project.resolve()
        inside = root.resolve().is_relative_to(project) or project.is_relative_to(root.resolve())
        if inside and not root.resolve().is_relative_to(self._place.temporary.resolve()):
            raise ModelFault(
                f"{root}: an agent may do anything to its workspace, and other copies of the skill "
                "are removed there; do not let it work in the project, use copy=",
                fatal=True,
            )
        hidden = sandbox.hidden_folders(self._place.sandbox, self._place.project)
        leak = leaking_memory(root, hidden)
        if leak is not None:
            raise ModelFault(
                f"{leak} lies above the workspace {root}, so the agent would read it. Let pytest's "
                "temporary folders lie elsewhere (--basetemp), or set skillopt_sandbox = bwrap",
                fatal=True,
            )

    def _kept(self, task: _Task, laid: Workspace) -> _Run:
        """The run from the cache, or made and kept."""
        replies = self._place.replies
        if replies is None or replies.mode == "off":
            return self._made(task, laid)
        key = self._key(task, laid)
        with contextlib.ExitStack() as claimed:
            data = kept.find(replies, key)
            if data is None:
                kept.refuse_if_read_only(replies, self._place.account, self._place.sample)
                claimed.enter_context(replies.claim(key))
                data = kept.find(replies, key)
            if data is None:
                run = self._made(task, laid)
                kept.keep(replies, key, run.to_json(), laid, run.after)
                return run
        kept.restore(laid, data)
        run = _Run.from_json(data["run"], laid)
        usage = Usage(cached=run.usage.calls)
        self._place.on_usage(usage)
        self._place.proxy().upstream.note_kept(usage, self._place.account)
        return replace(run, usage=usage)

    def _key(self, task: _Task, laid: Workspace) -> str:
        place = self._place
        parts = [
            *(self.name, self.version, place.fingerprint, place.sandbox, task.prompt),
            *(task.max_turns, task.limit, task.only_trigger, dict(place.passed)),
            *(digest_of(place.skill.path), [digest_of(other) for other in task.others]),
        ]
        with self._lock:
            return kept.key_of(parts, laid, place.sample, self._asked)

    def _made(self, task: _Task, laid: Workspace) -> _Run:
        """Start the agent, wait for it, and say how it went."""
        place, harness = self._place, self._installed.harness
        ticket = Ticket(
            marks_of(place.skill.body, [_frontmatter(place.skill), task.prompt]),
            account=place.account,
            most_calls=task.max_turns,
            stop_when_read=task.only_trigger,
            on_usage=place.on_usage,
        )
        with _scratch() as folder, place.proxy().serving(ticket) as url:
            home = folder / "home"
            job = Job(self._installed.executable, task.prompt, place.model, laid.root, home, url)
            launch = harness.launch(job)
            for path, text in launch.files.items():
                (home / path).parent.mkdir(parents=True, exist_ok=True)
                (home / path).write_text(text, encoding="utf-8")
            trace = Trace()
            talk = None
            if harness.drive is not None:
                talk = functools.partial(harness.drive, job, trace)
            ended = processes.run(
                [*self._confined(laid, home, job.executable), *launch.argv],
                workspace=laid.root,
                folder=folder,
                env={**processes.plain_environment(home, place.passed), **launch.env},
                limit=task.limit,
                watch=ticket,
                talk=talk,
            )
            read_events(harness, ended.out, trace)
            after = self._after(laid)
            problem = self._judge(task, ticket, ended, trace)
            return _Run.of(trace, ticket, ended, problem, place.skill.name, laid, after)

    def _confined(self, laid: Workspace, home: Path, executable: str) -> list[str]:
        return sandbox.prefix(
            self._place.sandbox,
            workspace=laid.root,
            home=home,
            skill=laid.skill,
            project=self._place.project,
            executable=executable,
        )

    def _after(self, laid: Workspace) -> Snapshot:
        try:
            laid.check_skill()
            return laid.snapshot()
        except SkillTouched:
            raise ModelFault(
                f"{self._installed}: the agent changed the skill under test, so this was no "
                "sample of its version; skillopt_sandbox = bwrap makes it read-only"
            ) from None
        except OSError as error:
            raise ModelFault(f"{laid.root}: cannot be read ({error})") from error

    def _judge(self, task: _Task, ticket: Ticket, ended: Ended, trace: Trace) -> str:
        """Why there is no answer, for which the agent is to blame; empty where there is one.

        Raises:
            ModelError: the infrastructure is to blame.
        """
        if ticket.failure is not None:
            raise ticket.failure
        said = "; ".join(processes.last_lines(ended.err))
        if ended.why == "start":
            raise ModelFault(f"{self._installed}: could not be started: {said}", fatal=True)
        if ended.why == "printed":
            raise ModelFault(f"{self._installed}: printed more than {processes.MOST_PRINTED} bytes")
        if ended.why == "disk":
            raise ModelFault(f"{self._installed}: the disk is full, the run was ended")
        if ticket.fault is not None:
            raise self._place.proxy().upstream.failure(ticket.fault)
        if ended.why == "alarm" and ticket.skill_read and task.only_trigger:
            return ""
        if not ticket.calls:
            raise ModelFault(self._no_call(task, ended, trace, said))
        if ended.why == "time":
            return f"no final answer within {task.limit:g} s; {_last_commands(trace)}"
        if ticket.out_of_calls:
            return f"no final answer after {task.max_turns} model calls; {_last_commands(trace)}"
        if trace.error:
            raise ModelFault(f"{self._installed}: {trace.error[-300:]}")
        if not trace.done:
            read = "" if trace.understood else f", printed nothing that is known{self._tested()}"
            raise ModelFault(
                f"{self._installed}: ended without an answer, exit status {ended.status}{read}"
                + (f": {said}" if said else "")
            )
        return ""

    def _no_call(self, task: _Task, ended: Ended, trace: Trace, said: str) -> str:
        how = f"exit status {ended.status}"
        if ended.why == "time":
            how = f"ended after {task.limit:g} s"
        told = trace.error or trace.text[-300:] or said
        tested = "" if trace.understood else self._tested()
        return f"{self._installed}: made no model call, {how}{tested}: {told}"

    def _tested(self) -> str:
        tested = self._installed.harness.tested
        return f" (its adapter was tested with {tested})" if tested else ""

    def _tell(self, prompt: str, run: _Run, root: Path) -> None:
        """Keep the transcript, without what is different in every run."""
        self._place.record("user", prompt)
        for role, content in run.turns:
            self._place.record(role, content)
        self._place.on_read(run.skill_read)

    def _reply(self, run: _Run) -> HarnessReply:
        turns = tuple((role, content) for role, content in run.turns)
        reply = HarnessReply(run.text, tool_calls=run.tools, transcript=turns, usage=run.usage)
        reply.files, reply.diff = run.files, run.diff
        reply.skill_used, reply.skill_read = run.skill_used, run.skill_read
        reply.exit_status, reply.seconds = run.status, run.seconds
        reply.workspace = run.root
        reply._shell = functools.partial(self._check, run.root)
        return reply

    def _check(self, root: Path, command: str, timeout: float) -> Ended:
        """Run a user's command on what an agent has made, which may be anything."""
        place = self._place
        with _scratch() as folder:
            home = folder / "home"
            argv = sandbox.prefix(
                place.sandbox,
                workspace=root,
                home=home,
                skill=None,
                project=place.project,
                executable="",
            )
            return processes.run(
                [*argv, "/bin/sh", "-c", command],
                workspace=root,
                folder=folder,
                env=processes.plain_environment(home, place.passed),
                limit=timeout,
            )


@dataclass(frozen=True, slots=True)
class _Task:
    """What is asked of the agent."""

    prompt: str
    max_turns: int
    limit: float
    only_trigger: bool
    others: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class _Run:
    """How a run went: an answer, or a problem for which the agent is to blame."""

    text: str
    turns: tuple[tuple[str, str], ...]
    tools: tuple[ToolRun, ...]
    problem: str
    skill_used: bool
    skill_read: bool
    status: int
    seconds: float
    usage: Usage
    root: Path
    files: dict[str, str] = field(default_factory=dict)
    diff: str = ""
    after: Snapshot = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        trace: Trace,
        ticket: Ticket,
        ended: Ended,
        problem: str,
        skill: str,
        laid: Workspace,
        after: Snapshot,
    ) -> _Run:
        return cls(
            text=trace.text,
            turns=tuple((role, _placeless(text, laid.root)) for role, text in trace.turns),
            tools=tuple(trace.tools),
            problem=_placeless(problem, laid.root),
            skill_used=trace.used(skill),
            skill_read=ticket.skill_read,
            status=ended.status,
            seconds=ended.seconds,
            usage=ticket.usage,
            root=laid.root,
            files=changes(laid.before, after),
            diff=unified_diff(laid.before, after),
            after=after,
        )

    def to_json(self) -> dict[str, Any]:
        """All but the files, with the workspace's path taken out."""
        home = str(self.root)
        return {
            "text": self.text.replace(home, _HERE),
            "turns": self.turns,
            "tools": [
                [t.name, t.arguments.replace(home, _HERE), t.result.replace(home, _HERE)]
                for t in self.tools
            ],
            "problem": self.problem,
            "skill_used": self.skill_used,
            "skill_read": self.skill_read,
            "status": self.status,
            "seconds": round(self.seconds, 3),
            "usage": self.usage.to_json(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any], laid: Workspace) -> _Run:
        """Read back in a workspace in which its changes have been made again."""
        here, after = str(laid.root), laid.snapshot()
        tools = ([part.replace(_HERE, here) for part in tool] for tool in data["tools"])
        return cls(
            text=data["text"].replace(_HERE, here),
            turns=tuple((role, text) for role, text in data["turns"]),
            tools=tuple(ToolRun(*tool) for tool in tools),
            problem=data["problem"],
            skill_used=data["skill_used"],
            skill_read=data["skill_read"],
            status=data["status"],
            seconds=data["seconds"],
            usage=Usage.from_json(data["usage"]),
            root=laid.root,
            files=changes(laid.before, after),
            diff=unified_diff(laid.before, after),
            after=after,
        )


_HERE = "{skillopt-workspace}"
_SCRATCH = re.compile(r"[^\s\"'`]*/skillopt-home-[^/\s\"'`]+/home")


def _placeless(text: str, root: Path) -> str:
    """Without paths that are different in every run: they would have the optimizer asked anew."""
    return _SCRATCH.sub("~", text.replace(str(root), "workspace"))


@contextlib.contextmanager
def _scratch() -> Any:
    folder = Path(tempfile.mkdtemp(prefix="skillopt-home-")).resolve()
    try:
        (folder / "home" / "tmp").mkdir(parents=True)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_events(harness: Harness, printed: str, trace: Trace) -> None:
    """Read the events, as far as they can be."""
    for line in printed.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            before = (len(trace.turns), trace.done, trace.error)
            with contextlib.suppress(KeyError, TypeError, AttributeError, ValueError):
                harness.read(event, trace)
            trace.understood += before != (len(trace.turns), trace.done, trace.error)
    trace.flush()


def _last_commands(trace: Trace) -> str:
    names = [_command(run) or run.name for run in trace.tools[-3:]]
    return "the last it ran: " + (" | ".join(name[:120] for name in names) or "nothing")


def _command(run: ToolRun) -> str:
    """The command of a tool that is a shell; empty for any other."""
    try:
        arguments = json.loads(run.arguments)
    except ValueError:
        return ""
    value: Any = ""
    if isinstance(arguments, dict):
        value = arguments.get("command") or arguments.get("cmd") or ""
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _frontmatter(skill: Skill) -> str:
    return skill.text.removesuffix(skill.body)


def _copy(source: Path, root: Path) -> None:
    shutil.copytree(source, root, symlinks=True, dirs_exist_ok=True)
