"""Run a coding agent once with a version of a skill: the fixture ``skill_harness``."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import posixpath
import re
import weakref
from collections import Counter
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_skillopt.model.agent import Reply, ReplyError, ToolRun
from pytest_skillopt.model.types import CacheMiss, Completion, ModelFault
from pytest_skillopt.plugins.agents.events import Trace
from pytest_skillopt.plugins.agents.kept_runs import Run, pack, replay
from pytest_skillopt.plugins.agents.known import Harness, document_place, memory_name
from pytest_skillopt.plugins.agents.proxy import MARKS, marks_of
from pytest_skillopt.plugins.agents.run import Start
from pytest_skillopt.plugins.agents.workspace import UnderTest, Workspace, find_leak
from pytest_skillopt.rollouts.folders import TemporaryFolder
from pytest_skillopt.skill.read import skill_files
from pytest_skillopt.skill.text import SkillError, Text
from pytest_skillopt.skill.version import SKILL_FILE, is_outside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_skillopt.model.cache import Replies
    from pytest_skillopt.plugins.agents.proxy import AgentCalls, Proxy
    from pytest_skillopt.plugins.agents.run import RunEnd, Runner
    from pytest_skillopt.plugins.agents.sign_in import SignedInAgent
    from pytest_skillopt.rollouts.context import Recorder, Skill, Stubs

    Folder = str | os.PathLike[str]
    from pytest_skillopt.model.types import Account

_ALL = 2_000
"""Lines that show that a document was read: agents cut long ones off."""
_SHELL = Harness("shell", "/bin/sh -c {prompt}", lambda event, trace: None, "")
REVISION = 8
"""Version of the cached runs' format and of the adapters; raise it to invalidate the cache."""
_KILLED = (-9, 128 + 9)
"""Exit statuses of a program that SIGKILL has ended, and of a shell or sandbox around it."""
_SCRATCH = re.compile(r"(?<![^\s\"'`])[^\s\"'`]*/skillopt-home-[^/\s\"'`]+/home")


class HarnessReply(Reply):
    """Last message of a coding agent, together with its effects."""

    files: dict[str, str]
    """``added``, ``changed`` or ``removed``, by path in the workspace."""
    diff: str
    """Unified diff of the workspace."""
    skill_used: bool
    """Whether the agent loaded the skill itself."""
    skill_read: bool
    """Whether the skill's body was in a request to the model."""
    exit_status: int
    seconds: float
    """Wall time of the run, also if it came from the cache."""
    workspace: Path
    _runner: Runner
    _stubs: Stubs | None

    @classmethod
    def of(
        cls, run: Run, workspace: Workspace, runner: Runner, stubs: Stubs | None
    ) -> HarnessReply:
        """Make the reply from a run and from the workspace, which has been looked at."""
        reply = cls(run.text, tool_calls=run.tools, transcript=run.turns, usage=run.usage)
        reply.files = workspace.files
        reply.diff = workspace.diff
        reply.workspace = workspace.root
        reply.skill_used = run.skill_used
        reply.skill_read = run.skill_read
        reply.exit_status = run.exit_status
        reply.seconds = run.seconds
        reply._runner = runner
        reply._stubs = stubs
        return reply

    @property
    def commands(self) -> tuple[str, ...]:
        """Shell commands that the agent ran, in order."""
        return tuple(filter(None, map(_command, self.tool_calls)))

    def ran(self, pattern: str) -> bool:
        """Return whether the regular expression is found in any shell command."""
        return any(re.search(pattern, command) for command in self.commands)

    def check(self, command: str, timeout: float = 120.0) -> str:
        """Run a shell command in the workspace, in the agent's sandbox, and return its output.

        Raises:
            ReplyError: it failed or took longer than ``timeout`` seconds; with the output.
            ModelError: it could not be run.
        """
        __tracebackhide__ = True
        start = Start(_SHELL, {"prompt": command}, self.workspace, stubs=self._stubs)
        done = self._runner.run(start, timeout)
        output = f"{done.out}{done.err}".strip()[-4_000:]
        if done.why in ("start", "guard", "disk"):
            raise ModelFault(f"`{command}` could not be run: {output}")
        if done.why == "exit" and done.status in _KILLED:
            raise ModelFault(f"`{command}` was killed, as for want of memory: {output}")
        if done.why == "time" or done.status:
            how = f"took longer than {timeout:g} s" if done.why == "time" else "failed"
            raise ReplyError(f"`{command}` {how} ({done.status}):\n{output}")
        return output


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of the agent, by the arguments of ``HarnessAgent``."""

    prompt: str
    _: KW_ONLY
    workspace: Folder | None = None
    copy: Folder | None = None
    others: Sequence[Folder] | None = ()
    explicit: bool = False
    max_turns: int = 0
    timeout: float | None = None
    cache: bool = True
    only_trigger: bool = False
    session: Session | None = None
    """Session that the run continues or begins."""
    rivals: Sequence[str] = ()
    """Bodies of the competing skills of a trigger task."""


@dataclass(frozen=True, repr=False)
class HarnessAgent:
    """Value of the fixture ``skill_harness``. Each call is one run, in the same workspace.

    ``replies`` is the cache of whole runs, ``temporary`` pytest's base folder, ``limit`` the
    default time limit in seconds; ``rivals`` reads the other skills of the project. ``asked``
    counts calls by key: the same prompt twice in one rollout is two samples.
    """

    harness: Harness
    workspace: Path
    skill: Skill
    recorder: Recorder
    provider: Proxy | SignedInAgent
    runner: Runner
    replies: Replies | None
    temporary: Path
    limit: float
    rivals: Callable[[], dict[str, Text]] = dict
    asked: Counter[str] = field(default_factory=Counter)

    def __call__(self, prompt: str, **options: Any) -> HarnessReply:
        """Give the agent a task and wait until it has finished.

        Args:
            prompt: the task.
            **options: keyword arguments:
                ``workspace`` (path): folder to use instead of the fixture ``skill_workspace``;
                ``copy`` (path relative to the root directory): folder to copy into it first;
                ``others`` (such paths): folders of further, competing skills to install;
                ``explicit`` (bool): force the skill, if the harness can;
                ``max_turns`` (int): end the run after this many model calls; 0: no limit;
                ``timeout`` (float): end it after this many seconds, without those lost to the
                infrastructure; None: 90% of ``skillopt_timeout``; 0: no limit;
                ``cache`` (bool): whether the run may be cached; use False if it has effects
                outside of the workspace.

        Raises:
            ReplyError: no final answer within ``max_turns`` or ``timeout``.
            ModelError: the infrastructure, including the harness, failed.
            ValueError: ``explicit``, but the harness cannot force a skill.
        """
        __tracebackhide__ = True
        run, workspace = self._run(_Call(prompt, **options))
        if run.problem:
            raise ReplyError(run.problem)
        return HarnessReply.of(run, workspace, self.runner, self.recorder.commands)

    def new(self) -> Session:
        """Begin a conversation: each call of what is returned is a turn in one session.

        Raises:
            ValueError: the harness cannot continue a session.
        """
        if not self.harness.keeps_sessions:
            raise ValueError(f"{self.harness.name} cannot continue a session")
        return Session(self)

    def trigger(
        self,
        prompt: str,
        *,
        max_turns: int = 3,
        others: Sequence[Folder] | None = None,
        **options: Any,
    ) -> bool:
        """Return whether the agent uses the skill for a task.

        The run is ended once that is known, at the latest after ``max_turns`` model calls. The
        other skills of the project are installed, too; ``others`` are folders of skills in place
        of these, ``()`` for none. ``options`` are those of a call.
        """
        given = {"max_turns": max_turns, "others": others, **options}
        run, _ = self._run(_Call(prompt, only_trigger=True, **given))
        return run.skill_read or run.skill_used

    def _run(self, call: _Call) -> tuple[Run, Workspace]:
        root = Path(os.path.abspath(call.workspace or self.workspace))
        if self.is_document and (call.explicit or call.only_trigger):
            raise ValueError(f"{self.skill.file} is always read: neither explicit nor trigger")
        if call.explicit:
            call = replace(call, prompt=self._forced(call.prompt))
        self._check_surroundings(root)
        tested = "" if self.is_document else self.skill.name or self.skill.path.name
        with _workspace_faults(root):
            skills = self._skills(tested, call.others)
            copied = None if call.copy is None else self.runner.project / call.copy
            under_test = UnderTest(tested, skills, *self._documents())
            workspace = Workspace(root, self.harness.skills, under_test, copied)
        if call.only_trigger:
            call = replace(call, rivals=_bodies(skills, besides=tested))
        with contextlib.closing(workspace):
            run = self._run_or_replay(workspace, call)
            sandbox = self.runner.sandbox
            with _workspace_faults(root):
                out = [p for p in workspace.links if sandbox.leads_out(p, root, self.harness)]
        if out and not run.problem:
            why = f"the agent left {out[0].name!r}, a link to a place outside of its sandbox"
            run = run.model_copy(update={"problem": why})
        self._record(call.prompt, run)
        return run, workspace

    def _run_or_replay(self, workspace: Workspace, call: _Call) -> Run:
        """Take a run from the cache, else from the agent, and look at what it has changed.

        Raises:
            CacheMiss: it is not in the cache, which is read-only.
        """
        request = self.recorder.request
        if request.is_idle:
            return Run()
        replies = self.replies if call.cache and workspace.digest else None
        with contextlib.ExitStack() as stack:
            if replies is not None:
                key = self._key(workspace, call)
                stack.enter_context(replies.claim(key))
                found = replies.find(key, f"a run of {request.task} (sample {request.sample})")
                kept = None if found is None else self._replay(found.text, workspace)
                if kept is not None:
                    return kept
            if self.replies is not None and self.replies.mode == "ro":
                raise CacheMiss("this run is not cached, and --skillopt-cache=ro starts no agent")
            run = self._run_agent(workspace, call)
            with _workspace_faults(workspace.root):
                workspace.look()
                packed = None if replies is None else pack(run, workspace)
            if replies is not None and packed is not None:
                replies.keep(key, Completion(packed))
        return run

    def _record(self, prompt: str, run: Run) -> None:
        for role, content in (("user", prompt), *run.turns):
            self.recorder.record(role, content)
        if self.skill.text or not self.is_document:
            self.recorder.note_skill_read(run.skill_read)

    def _limit(self, call: _Call) -> float:
        """Return the time limit of a call in seconds; 0: none."""
        return self.limit if call.timeout is None else call.timeout

    def _forced(self, prompt: str) -> str:
        """Return the prompt that has the agent use the skill."""
        if not self.harness.explicit:
            raise ValueError(f"{self.harness.name} cannot force a skill: omit explicit")
        return self.harness.explicit.format(name=self.skill.name, prompt=prompt)

    def _skills(self, tested: str, others: Sequence[Folder] | None) -> dict[str, dict[str, bytes]]:
        """Read the files of the skills to install, by name; the one under test is ``tested``."""
        project = self.runner.project
        paths = {tested: self.skill.path} if tested else {}
        for path in others or ():
            paths[_name(project / path)] = project / path
        files = {name: skill_files(path / SKILL_FILE, project) for name, path in paths.items()}
        if others is None:
            for name, text in self.rivals().items():
                files.setdefault(name, {SKILL_FILE: text.data})
        return files

    @property
    def is_document(self) -> bool:
        """Whether a document that agents read by themselves is under test, such as AGENTS.md."""
        return posixpath.basename(self.skill.file) != SKILL_FILE

    @property
    def _folder(self) -> str:
        """Folder of the workspace in which the agent starts: that of the document under test."""
        start = self.skill.file.removesuffix(memory_name(self.harness, self.skill.file))
        return start.rstrip("/") if self.is_document else ""

    def _documents(self) -> tuple[dict[str, bytes], list[str]]:
        """Return the documents to write, by path in the workspace, and what they replace."""
        above = posixpath.dirname(self.skill.file)
        inside = self.is_document
        given = {n: text for n, text in self.skill.files.items() if inside or is_outside(n)}
        texts = {posixpath.join(above, name): text for name, text in given.items()}
        texts |= {self.skill.file: self.skill.text} if inside else {}
        found: dict[str, bytes] = {}
        replaced: list[str] = []
        for path, text in texts.items():
            place, instead = document_place(self.harness, posixpath.normpath(path))
            found[place] = text.encode()
            replaced += instead
        return found, replaced

    def _check_surroundings(self, root: Path) -> None:
        """Refuse a workspace where the agent could harm the project or read other skills."""
        project = self.runner.project.resolve()
        here = root.resolve()
        base = self.temporary
        if root.is_relative_to(base) and here != base.resolve() / root.relative_to(base):
            raise ModelFault(f"{root}: the path of this workspace has a link in it, to {here}")
        inside = here.is_relative_to(project) or project.is_relative_to(here)
        if inside and not here.is_relative_to(self.temporary.resolve()):
            raise ModelFault(
                f"{root}: an agent may change anything in its workspace, and other copies of the "
                "skill are removed there; do not let it work in the project, use copy=",
                fatal=True,
            )
        leak = find_leak(here, self.runner.sandbox.hidden)
        if leak is not None:
            raise ModelFault(
                f"{leak} is above the workspace {root}, so the agent would read it. Move pytest's "
                "temporary folders elsewhere (--basetemp), or set skillopt_sandbox = bwrap",
                fatal=True,
            )

    def _key(self, workspace: Workspace, call: _Call) -> str:
        """Return the cache key of a run: a hash of everything it depends on."""
        before = [workspace.digest, self.recorder.request.sample]
        runner = self.runner
        given = [self.provider.config.fingerprint, runner.sandbox.kind, dict(runner.passed)]
        stubs = self.recorder.commands
        given += filter(None, [self._folder, stubs.digest() if stubs else ""])
        asked = call.prompt, call.max_turns, self._limit(call), call.only_trigger
        text = json.dumps([REVISION, str(self.harness), *asked, *before, *given], sort_keys=True)
        self.asked[text] += 1
        return "run-" + hashlib.sha256(f"{text}#{self.asked[text]}".encode()).hexdigest()

    def _replay(self, text: str, workspace: Workspace) -> Run | None:
        """Return a cached run and repeat its changes to files; None if that is impossible."""
        try:
            with _workspace_faults(workspace.root):
                run = replay(text, workspace)
        except ValueError:
            return None
        if self.recorder.commands is not None:
            self.recorder.commands.repeat(run.commands)
        run = run.model_copy(update={"usage": run.usage.again()})
        self.recorder.add_usage(run.usage)
        self.provider.throttle.note(run.usage, self._account)
        return run

    @property
    def _account(self) -> Account:
        return "target", self.recorder.request.stage, self.recorder.request.task

    def _run_agent(self, workspace: Workspace, call: _Call) -> Run:
        """Start the agent, wait for it, and return a record of the run."""
        prompt = call.prompt
        session = call.session
        limit = self._limit(call)
        harness = self.harness
        root = str(workspace.root)
        name = session.name if session else ""
        harness = harness.in_session(name) if session else harness
        head = self.skill.text.removesuffix(self.skill.body)
        most = _ALL if self.is_document else MARKS
        marks = marks_of(self.skill.body, head, prompt, *call.rivals, most=most)
        agent_calls: Any = self.provider.agent_calls(
            harness,
            self.skill.name,
            prompt,
            self.is_document,
            marks=marks,
            account=self._account,
            most_calls=call.max_turns,
            stop_when_read=call.only_trigger,
            on_usage=self.recorder.add_usage,
        )
        stubs = self.recorder.commands
        before = len(stubs.told()) if stubs else 0

        def start(url: str) -> RunEnd:
            values = {"prompt": prompt, "model": self.provider.model, "url": url, "session": name}
            fixed = [workspace.root / path for path in workspace.placed]
            home = session.home if session else None
            start = Start(
                harness, values, workspace.root, self._folder, fixed, home=home, stubs=stubs
            )
            return self.runner.run(start, limit, agent_calls)

        ended = self.provider.serve(agent_calls, prompt, start)
        if not workspace.is_intact:
            raise ModelFault(
                f"{harness}: the agent changed the skill under test, so this sample does not count "
                "for its version; skillopt_sandbox = bwrap makes the skill read-only"
            )
        has_called = agent_calls.calls and not (agent_calls.failure or agent_calls.fault)
        if self.is_document and agent_calls.marks and has_called and not agent_calls.skill_read:
            raise ModelFault(
                f"{harness} did not read {', '.join(workspace.placed)}: its text was in no "
                "request, so this sample tells nothing about it",
                fatal=True,
            )
        trace, problem = record_of(harness, agent_calls, ended, limit)
        if session is not None:
            session.name = trace.session or name

        def placeless(text: str) -> str:
            """Replace paths that differ in every run, so that optimizer calls can be cached."""
            return _SCRATCH.sub("~", text.replace(root, "workspace"))

        turns = [(role, placeless(text)) for role, text in trace.turns]
        skill_used = trace.has_loaded(self.skill.name)
        if self.is_document:
            skill_used = agent_calls.skill_read
        commands = stubs.told()[before:] if stubs else ()
        return Run(
            text=trace.text,
            turns=tuple(turns),
            tools=tuple(trace.tools),
            problem=placeless(problem),
            skill_used=skill_used,
            skill_read=agent_calls.skill_read,
            exit_status=ended.status,
            seconds=round(ended.seconds, 3),
            usage=agent_calls.usage,
            commands=tuple(commands),
        )


class Session:
    """A conversation with a coding agent. Each call is a run of the agent in one session.

    No run of it is cached: its session is not in the cache, and cannot be continued from there.
    """

    def __init__(self, agent: HarnessAgent) -> None:
        self.name = ""
        """The agent's name of it; empty before the first turn has ended."""
        self._agent = agent
        self._folder = TemporaryFolder("skillopt-home-")
        self._options: dict[str, Any] = {}
        self._turns = 0
        weakref.finalize(self, self._folder.remove)

    @property
    def home(self) -> Path:
        """Folder that keeps the home of the agent between two turns."""
        return self._folder.path / "home"

    def __call__(self, prompt: str, **options: Any) -> HarnessReply:
        """Give the agent a message and wait until it has finished.

        The arguments, and what is raised, are those of ``HarnessAgent``. Options hold for the
        further turns, except ``copy`` and ``explicit``.
        """
        __tracebackhide__ = True
        agent = self._agent
        is_idle = agent.recorder.request.is_idle
        if self._turns and not self.name and not is_idle:
            raise ModelFault(f"{agent.harness} has named no session that could be continued")
        self._turns += 1
        given = self._options | options
        self._options = {k: v for k, v in given.items() if k not in ("copy", "explicit")}
        return agent(prompt, **given | {"cache": False, "session": self})


def record_of(
    harness: Harness, agent_calls: AgentCalls, ended: RunEnd, limit: float
) -> tuple[Trace, str]:
    """Return the record of a run, and why it lacks an answer if the agent is to blame, or "".

    Raises:
        ModelError: the infrastructure is to blame.
    """
    trace = Trace()
    is_known = trace.read_output(harness, ended.out)
    if failure := _failure(agent_calls, ended):
        raise failure
    if agent_calls.stop_when_read and agent_calls.skill_read:
        return trace, ""
    if ended.fault:
        raise ModelFault(f"{harness}: {ended.fault}", fatal=ended.why == "start")
    how = f"ended after {limit:g} s" if ended.why == "time" else f"exit status {ended.status}"
    if not is_known:
        how += f", no event recognised in its output (tested with {harness.tested or 'no version'})"
    if not agent_calls.calls:
        said = trace.error or trace.text[-300:] or ended.last_error
        raise ModelFault(f"{harness}: made no model call, {how}: {said}")
    if within := _exceeded(agent_calls, ended, limit):
        last = [_command(run) or run.name for run in trace.tools[-3:]]
        shown = " | ".join(text[:120] for text in last) or "none"
        return trace, f"no final answer {within}; last commands: {shown}"
    if trace.done and not trace.error:
        return trace, ""
    error = trace.error[-300:] or f"ended without an answer, {how}: {ended.last_error}"
    raise ModelFault(f"{harness}: {error}")


def _failure(agent_calls: AgentCalls, ended: RunEnd) -> Exception | None:
    """Return the error of a run's calls; that of the last one counts if the agent itself ran."""
    if agent_calls.failure is not None or ended.fault:
        return agent_calls.failure
    return agent_calls.fault


def _exceeded(agent_calls: AgentCalls, ended: RunEnd, limit: float) -> str:
    """Name the limit that ended a run, such as ``within 60 s``; empty if none did."""
    if ended.why == "time":
        return f"within {limit:g} s"
    return f"after {agent_calls.most_calls} model calls" if agent_calls.out_of_calls else ""


@contextlib.contextmanager
def _workspace_faults(root: Path) -> Iterator[None]:
    """Raise file errors in a workspace as a ModelFault: they are never a wrong answer."""
    try:
        yield
    except (OSError, SkillError) as error:
        raise ModelFault(f"{root}: the workspace cannot be used ({error})") from error


def _bodies(files: Mapping[str, Mapping[str, bytes]], besides: str) -> list[str]:
    """Return the texts of the skills, except of one."""
    return [Text(parts[SKILL_FILE]).body for name, parts in files.items() if name != besides]


def _name(skill: Path) -> str:
    return Text.from_bytes((skill / SKILL_FILE).read_bytes()).name or skill.name


def _command(run: ToolRun) -> str:
    """Return the command of a shell tool, empty for any other tool."""
    arguments = json.loads(run.arguments)
    names = ("command", "cmd") if isinstance(arguments, dict) else ()
    found: Any = next((arguments[name] for name in names if arguments.get(name)), "")
    return " ".join(map(str, found)) if isinstance(found, list) else str(found)
