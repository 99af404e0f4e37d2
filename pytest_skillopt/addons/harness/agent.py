"""One run of a coding agent with a version of a skill: what ``skill_harness(prompt)`` does."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import json
import os
import re
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_skillopt.addons.harness import processes
from pytest_skillopt.addons.harness.adapters import Harness, Trace
from pytest_skillopt.addons.harness.kept import pack, replay
from pytest_skillopt.addons.harness.proxy import Ticket, marks_of
from pytest_skillopt.addons.harness.workspace import Workspace, leaking
from pytest_skillopt.model.agent import Reply, ReplyError, ToolRun
from pytest_skillopt.model.types import CacheMiss, Completion, ModelFault, Usage
from pytest_skillopt.skill.document import SKILL_FILE, Document, SkillError
from pytest_skillopt.skill.files import skill_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_skillopt.addons.harness.processes import Ended, Runner
    from pytest_skillopt.addons.harness.proxy import Proxy
    from pytest_skillopt.model.cache import Replies
    from pytest_skillopt.suite.context import Recorder, Skill

    Folder = str | os.PathLike[str]

_SHELL = Harness("shell", "/bin/sh -c {prompt}", lambda event, trace: None, "")
REVISION = 5
"""Of what is kept of a run, and of what an adapter makes of an agent's events."""
_TOLD = ("usage", "files", "diff", "skill_used", "skill_read", "exit_status", "seconds")
_SCRATCH = re.compile(r"[^\s\"'`]*/skillopt-home-[^/\s\"'`]+/home")


class HarnessReply(Reply):
    """The last message of a coding agent, with what it did: ``files`` (path to ``added``,
    ``changed`` or ``removed``), ``skill_used`` (the agent asked for it), ``skill_read`` (its body
    was in a request), ``seconds`` of wall time when the run was made."""

    files: dict[str, str]
    diff: str
    skill_used: bool
    skill_read: bool
    exit_status: int
    seconds: float
    workspace: Path
    _runner: Runner

    @property
    def commands(self) -> tuple[str, ...]:
        """The shell commands that the agent ran, in order."""
        return tuple(filter(None, map(_command, self.tool_calls)))

    def ran(self, pattern: str) -> bool:
        """Whether a shell command matches the regular expression somewhere."""
        return any(re.search(pattern, command) for command in self.commands)

    def check(self, command: str, timeout: float = 120.0) -> str:
        """Run a shell command in the workspace, confined as the agent was; returns its output.
        ReplyError, with the output, where it fails or takes longer than ``timeout`` seconds;
        ModelError if it could not be run."""
        __tracebackhide__ = True
        done = self._runner.run(_SHELL, {"prompt": command}, self.workspace, timeout)
        output = f"{done.out}{done.err}".strip()[-4_000:]
        if done.why in ("start", "guard"):
            raise ModelFault(f"`{command}` could not be run: {output}")
        if done.why == "time" or done.status:
            how = f"took longer than {timeout:g} s" if done.why == "time" else "failed"
            raise ReplyError(f"`{command}` {how} ({done.status}):\n{output}")
        return output


@dataclass(frozen=True, repr=False)
class HarnessAgent:
    """The fixture ``skill_harness``. Each call is a run of its own, in the same workspace.

    ``replies`` keeps whole runs, ``temporary`` is pytest's, ``limit`` seconds of the agent's own
    time, ``asked`` how often for a run: the same task twice in a rollout is two draws.
    """

    harness: Harness
    workspace: Path
    skill: Skill
    recorder: Recorder
    proxy: Proxy
    runner: Runner
    replies: Replies | None
    temporary: Path
    find: Callable[[str], Harness]
    limit: float
    asked: Counter[str] = field(default_factory=Counter)

    def use(self, harness: str) -> HarnessAgent:
        """The same agent in another harness."""
        return replace(self, harness=self.find(harness))

    def __call__(self, prompt: str, **options: Any) -> HarnessReply:
        """Give the agent a task and wait until it has finished.

        Args:
            workspace: a folder in place of the fixture ``workspace``.
            copy: a folder, relative to the root directory, whose content goes into it first.
            others: folders of further skills, relative to the root directory, that compete.
            explicit: force the skill, in harnesses that have a way to say so.
            max_turns: model calls after which the run is ended; 0: as many as it wants.
            timeout: seconds of the agent's own time; None: nine tenths of ``skillopt_timeout``.
            cache: whether the run may be kept; not for effects outside of the workspace.

        Raises:
            ReplyError: no final answer within ``max_turns`` or ``timeout``.
            ModelError: the infrastructure failed, the harness included.
            ValueError: ``explicit`` in a harness that has no way to force a skill.
        """
        __tracebackhide__ = True
        run, root = self._run(prompt, **options)
        if run["problem"]:
            raise ReplyError(run["problem"])
        tools = tuple(ToolRun(*tool) for tool in run["tools"])
        reply = HarnessReply(run["text"], tool_calls=tools, transcript=run["turns"])
        told = {name: run[name] for name in _TOLD}
        vars(reply).update(told, workspace=root, _runner=self.runner)
        return reply

    async def aio(self, prompt: str, **options: Any) -> HarnessReply:
        """As calling the agent, without blocking the event loop."""
        return await asyncio.to_thread(functools.partial(self, prompt, **options))

    def trigger(self, prompt: str, *, max_turns: int = 3, **options: Any) -> bool:
        """Whether the agent uses the skill for a task; it is ended once that is known, at the
        latest after ``max_turns`` model calls. ``options`` are those of a call."""
        run, _ = self._run(prompt, only_trigger=True, max_turns=max_turns, **options)
        return bool(run["skill_read"] or run["skill_used"])

    def _run(
        self,
        prompt: str,
        *,
        workspace: Folder | None = None,
        copy: Folder | None = None,
        others: Sequence[Folder] = (),
        explicit: bool = False,
        max_turns: int = 0,
        timeout: float | None = None,
        cache: bool = True,
        only_trigger: bool = False,
    ) -> tuple[dict[str, Any], Path]:
        harness, said, root = (
            self.harness,
            prompt,
            Path(os.path.abspath(workspace or self.workspace)),
        )
        if explicit:
            if not harness.explicit:
                raise ValueError(f"{harness.name} has no way to force a skill: leave explicit out")
            said = harness.explicit.format(name=self.skill.name, prompt=prompt)
        self._check_surroundings(root)
        project = self.runner.project
        with _reached(root):
            files = {self.skill.name or self.skill.path.name: _files(self.skill.path, project)}
            for folder in (project / other for other in others):
                files[_name(folder)] = _files(folder, project)
            laid = Workspace(root, harness.skills, files, None if copy is None else project / copy)
        given = (said, max_turns, self.limit if timeout is None else timeout, only_trigger)
        with contextlib.closing(laid), contextlib.ExitStack() as stack:
            run, replies = None, self.replies if cache and laid.digest else None
            if replies is not None:
                key = self._key(laid, *given)
                stack.enter_context(replies.claim(key))
                asked = self.recorder.request
                found = replies.find(key, f"a run of {asked.task} (sample {asked.sample})")
                run = None if found is None else self._replayed(found.text, laid)
            if run is None and self.replies is not None and self.replies.mode == "ro":
                raise CacheMiss("this run is not kept, and --skillopt-cache=ro starts no agent")
            is_new = run is None
            if run is None:
                run = self._make(laid, *given)
            with _reached(root):
                changed, packed = laid.look(), None
                if is_new and replies is not None:
                    packed = pack({**run, "usage": asdict(run["usage"])}, laid)
            if replies is not None and packed is not None:
                replies.keep(key, Completion(packed))
            run |= {"files": changed, "diff": laid.diff(changed)}
        for role, content in (("user", prompt), *run["turns"]):
            self.recorder.record(role, content)
        self.recorder.note_skill_read(run["skill_read"])
        return run, root

    def _check_surroundings(self, root: Path) -> None:
        """Refuse a folder in which an agent would do harm, or read what it should not."""
        project, here = self.runner.project.resolve(), root.resolve()
        base = self.temporary
        if root.is_relative_to(base) and here != base.resolve() / root.relative_to(base):
            raise ModelFault(f"{root}: a link is in the way to this workspace, it leads to {here}")
        inside = here.is_relative_to(project) or project.is_relative_to(here)
        if inside and not here.is_relative_to(self.temporary.resolve()):
            raise ModelFault(
                f"{root}: an agent may do anything to its workspace, and other copies of the skill "
                "are removed there; do not let it work in the project, use copy=",
                fatal=True,
            )
        leak = leaking(here, self.runner.hidden)
        if leak is not None:
            raise ModelFault(
                f"{leak} lies above the workspace {root}, so the agent would read it. Let pytest's "
                "temporary folders lie elsewhere (--basetemp), or set skillopt_sandbox = bwrap",
                fatal=True,
            )

    def _key(self, laid: Workspace, *parts: Any) -> str:
        """Of a run: all that it depends on."""
        given = [self.proxy.config.fingerprint, self.runner.sandbox, dict(self.runner.passed)]
        before = [laid.digest, self.recorder.request.sample]
        whole = [REVISION, str(self.harness), *parts, *before, *given]
        text = json.dumps(whole, sort_keys=True)
        self.asked[text] += 1
        return "run-" + hashlib.sha256(f"{text}#{self.asked[text]}".encode()).hexdigest()

    def _replayed(self, text: str, laid: Workspace) -> dict[str, Any] | None:
        """A run that was kept, its changes made again; None if that cannot be done."""
        try:
            with _reached(laid.root):
                run = replay(text, laid)
        except ValueError:
            return None
        run["usage"] = usage = Usage(**run["usage"]).again()
        self.recorder.add_usage(usage)
        account = ("target", self.recorder.request.stage, self.recorder.request.task)
        self.proxy.throttle.note(usage, account)
        return run

    def _make(
        self, laid: Workspace, prompt: str, max_turns: int, limit: float, only_trigger: bool
    ) -> dict[str, Any]:
        """Start the agent, wait for it, and say how it went."""
        harness, root = self.harness, str(laid.root)
        ticket = Ticket(
            marks_of(self.skill.body, self.skill.text.removesuffix(self.skill.body), prompt),
            account=("target", self.recorder.request.stage, self.recorder.request.task),
            most_calls=max_turns,
            stop_when_read=only_trigger,
            on_usage=self.recorder.add_usage,
        )
        values = {"executable": harness.executable, "prompt": prompt, "workspace": root}
        values |= {"model": self.proxy.config.model, "key": "skillopt"}
        with self.proxy.serving(ticket) as url:
            values["url"] = url
            ended = self.runner.run(harness, values, laid.root, limit, laid.skill, ticket)
        trace = Trace()
        told = trace.read(harness, ended.out)
        if not laid.is_intact:
            raise ModelFault(
                f"{harness}: the agent changed the skill under test, so this was no sample of its "
                "version; skillopt_sandbox = bwrap makes it read-only"
            )
        problem = self._problem(ticket, ended, trace, told, limit)

        def placeless(text: str) -> str:
            """Without paths that differ in every run: they would have the optimizer asked anew."""
            return _SCRATCH.sub("~", text.replace(root, "workspace"))

        return {
            "text": trace.text,
            "turns": tuple((role, placeless(text)) for role, text in trace.turns),
            "tools": [(run.name, run.arguments, run.result) for run in trace.tools],
            "problem": placeless(problem),
            "skill_used": trace.used(self.skill.name),
            "skill_read": ticket.skill_read,
            "exit_status": ended.status,
            "seconds": round(ended.seconds, 3),
            "usage": ticket.usage,
        }

    def _problem(self, ticket: Ticket, ended: Ended, trace: Trace, told: bool, limit: float) -> str:
        """Why there is no answer, for which the agent is to blame; empty where there is one;
        ModelError where the infrastructure is to blame."""
        said = " ".join(ended.err.split())[-300:]
        how = f"ended after {limit:g} s" if ended.why == "time" else f"exit status {ended.status}"
        if not told:
            tested = self.harness.tested or "no version"
            how += f", printed nothing that is known (tested with {tested})"
        words = {
            "start": f"could not be started: {said}",
            "guard": "the process that guards the agent was killed, so nobody knows how it ended",
            "printed": f"printed more than {processes.MOST_PRINTED} bytes",
            "disk": "the disk is full, the run was ended",
        }.get(ended.why, "")
        if failure := ticket.failure or (None if words else ticket.fault):
            raise failure
        if ticket.stop_when_read and ticket.skill_read:
            return ""
        if not words and not ticket.calls:
            words = f"made no model call, {how}: {trace.error or trace.text[-300:] or said}"
        if not words and (ended.why == "time" or ticket.out_of_calls):
            within = f"after {ticket.most_calls} model calls"
            within = f"within {limit:g} s" if ended.why == "time" else within
            last = " | ".join((_command(run) or run.name)[:120] for run in trace.tools[-3:])
            return f"no final answer {within}; the last it ran: {last or 'nothing'}"
        if not words and not trace.done:
            words = trace.error[-300:] or f"ended without an answer, {how}: {said}"
        if words := words or trace.error[-300:]:
            raise ModelFault(f"{self.harness}: {words}", fatal=ended.why == "start")
        return ""


@contextlib.contextmanager
def _reached(root: Path) -> Iterator[None]:
    """Tell of a workspace that cannot be used as what it is: never a wrong answer."""
    try:
        yield
    except (OSError, SkillError) as error:
        raise ModelFault(f"{root}: the workspace cannot be used ({error})") from error


def _files(skill: Path, project: Path) -> dict[str, bytes]:
    return skill_files(skill / SKILL_FILE, project)


def _name(skill: Path) -> str:
    return Document.from_bytes((skill / SKILL_FILE).read_bytes()).name or skill.name


def _command(run: ToolRun) -> str:
    """The command of a tool that is a shell; empty for any other."""
    arguments = json.loads(run.arguments)
    names = ("command", "cmd") if isinstance(arguments, dict) else ()
    found: Any = next((arguments[name] for name in names if arguments.get(name)), "")
    return " ".join(map(str, found)) if isinstance(found, list) else str(found)
