"""One run of a coding agent with a version of a skill: what ``skill_harness(prompt)`` does."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import re
import shutil
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_skillopt.harness import processes, sandbox
from pytest_skillopt.harness.adapters import Trace
from pytest_skillopt.harness.proxy import Ticket, marks_of
from pytest_skillopt.harness.workspace import (
    Workspace,
    changes,
    digest_of,
    fingerprint,
    leaking,
    packed_changes,
    replay,
    unified_diff,
)
from pytest_skillopt.model.agent import Reply, ReplyError, ToolRun
from pytest_skillopt.model.types import CacheMiss, Completion, ModelFault, Usage

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from pytest_skillopt.harness.adapters import Harness
    from pytest_skillopt.harness.processes import Ended
    from pytest_skillopt.harness.proxy import Proxy
    from pytest_skillopt.model.cache import Replies
    from pytest_skillopt.suite.context import Recorder, Skill

    Folder = str | os.PathLike[str]

REVISION = 3
"""Of what is kept of a run, and of what an adapter makes of an agent's events."""
_TOLD = ("usage", "files", "diff", "skill_used", "skill_read", "exit_status", "seconds")
_HERE = "{skillopt-workspace}"
_SCRATCH = re.compile(r"[^\s\"'`]*/skillopt-home-[^/\s\"'`]+/home")


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

    def check(self, command: str, timeout: float = 120.0) -> str:
        """Run a shell command in the workspace, confined as the agent was; returns its output.

        Raises:
            ReplyError: it fails, or takes longer than ``timeout`` seconds; with its output.
        """
        done = self._shell(command, timeout)
        output = f"{done.out}{done.err}".strip()[-4_000:]
        if done.why == "time" or done.status:
            how = f"took longer than {timeout:g} s" if done.why == "time" else "failed"
            raise ReplyError(f"`{command}` {how} ({done.status}):\n{output}")
        return output


@dataclass(frozen=True)
class HarnessAgent:
    """The fixture ``skill_harness``. Each call is a run of its own, in the same workspace."""

    harness: Harness
    """One that is installed."""
    workspace: Path
    """Where the agent works, unless a call says otherwise."""
    skill: Skill
    recorder: Recorder
    proxy: Proxy
    replies: Replies | None
    """Where whole runs are kept; None: nowhere."""
    project: Path
    """Root directory of the test session."""
    temporary: Path
    """Where pytest makes its temporary folders."""
    find: Callable[[str], Harness]
    """An installed harness by its name."""
    limit: float
    """Seconds of the agent's own time; 0: none."""
    passed: Mapping[str, str]
    """Environment variables that the user lets through."""
    sandbox: str
    asked: Counter[str] = field(default_factory=Counter)
    """How often a run was asked for: the same task twice in a rollout is two draws."""

    @property
    def name(self) -> str:
        """Of the harness, such as ``codex``."""
        return self.harness.name

    @property
    def version(self) -> str:
        """Of the installed command line."""
        return self.harness.version

    @property
    def account(self) -> tuple[str, str, str]:
        """Role, stage and task, for the accounts."""
        return "target", self.recorder.stage, self.recorder.request.task

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
        run, root = self._run(prompt, **options)
        if run["problem"]:
            raise ReplyError(run["problem"])
        tools = tuple(ToolRun(*tool) for tool in run["tools"])
        reply = HarnessReply(run["text"], tool_calls=tools, transcript=run["turns"])
        for name in _TOLD:
            setattr(reply, name, run[name])
        reply.workspace = root
        reply._shell = functools.partial(self._check, root)
        return reply

    async def aio(self, prompt: str, **options: Any) -> HarnessReply:
        """As calling the agent, without blocking the event loop."""
        return await asyncio.to_thread(functools.partial(self, prompt, **options))

    def trigger(self, prompt: str, *, max_turns: int = 3, **options: Any) -> bool:
        """Whether the agent uses the skill for a task; it is ended once that is known.

        Args:
            max_turns: model calls after which the answer is no.
            options: the others of a call.
        """
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
        harness, said = self.harness, prompt
        root = Path(workspace or self.workspace).absolute()
        if explicit:
            if not harness.explicit:
                raise ValueError(f"{self.name} has no way to force a skill: leave explicit out")
            said = harness.explicit.format(name=self.skill.name, prompt=prompt)
        self._check_surroundings(root)
        rivals = [self.project / other for other in others]
        try:
            if copy is not None:
                shutil.copytree(self.project / copy, root, symlinks=True, dirs_exist_ok=True)
            laid = Workspace(root, harness.skills, self.skill.path, rivals)
        except OSError as error:
            raise ModelFault(f"{root}: the workspace cannot be laid out ({error})") from error
        limit = self.limit if timeout is None else timeout
        make = functools.partial(self._make, said, laid, max_turns, limit, only_trigger)
        parts = [str(harness), said, max_turns, limit, only_trigger, *map(digest_of, rivals)]
        try:
            kept = cache and self.replies is not None and self.replies.mode != "off"
            run = self._kept(parts, laid, make) if kept else make()
            after = laid.snapshot()
        finally:
            laid.clear()
        run |= {"files": changes(laid.before, after), "diff": unified_diff(laid.before, after)}
        for role, content in (("user", prompt), *run["turns"]):
            self.recorder.record(role, content)
        self.recorder.note_skill_read(run["skill_read"])
        return run, root

    def _check_surroundings(self, root: Path) -> None:
        """Refuse a folder in which an agent would do harm, or read what it should not."""
        project, here = self.project.resolve(), root.resolve()
        inside = here.is_relative_to(project) or project.is_relative_to(here)
        if inside and not here.is_relative_to(self.temporary.resolve()):
            raise ModelFault(
                f"{root}: an agent may do anything to its workspace, and other copies of the skill "
                "are removed there; do not let it work in the project, use copy=",
                fatal=True,
            )
        leak = leaking(here, sandbox.hidden_folders(self.sandbox, project))
        if leak is not None:
            raise ModelFault(
                f"{leak} lies above the workspace {root}, so the agent would read it. Let pytest's "
                "temporary folders lie elsewhere (--basetemp), or set skillopt_sandbox = bwrap",
                fatal=True,
            )

    def _kept(
        self, parts: Sequence[Any], laid: Workspace, make: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """The run from where replies are kept, its changes made again; or made and kept."""
        replies, root = self.replies, str(laid.root)
        assert replies is not None
        config, sample = self.proxy.config, self.recorder.sample
        before = [digest_of(self.skill.path), fingerprint(laid.before)]
        given = [config.fingerprint, self.sandbox, dict(self.passed), sample]
        text = json.dumps([REVISION, *parts, *before, *given], sort_keys=True)
        self.asked[text] += 1
        key = "run-" + hashlib.sha256(f"{text}#{self.asked[text]}".encode()).hexdigest()
        with replies.claim(key):
            found = replies.find(key)
            if found is None and replies.mode == "ro":
                raise CacheMiss(
                    f"a run of {self.recorder.request.task} (sample {sample}) is not in "
                    f"{replies.place}, and --skillopt-cache=ro lets nothing leave the machine; "
                    "record it with --skillopt-cache=rw"
                )
            if found is None:
                run = make()
                packed = packed_changes(laid.before, laid.snapshot())
                if packed is not None:
                    whole = {**run, "usage": run["usage"].to_json(), "changes": packed}
                    told = json.dumps(whole, ensure_ascii=False).replace(root, _HERE)
                    replies.keep(key, Completion(told))
                return run
        run = json.loads(found.text.replace(_HERE, root))
        replay(laid.root, run.pop("changes"))
        run["usage"] = Usage(cached=run["usage"]["calls"])
        run["turns"] = tuple(map(tuple, run["turns"]))
        self.recorder.add_usage(run["usage"])
        self.proxy.throttle.note(run["usage"].to_json(), self.account)
        return dict(run)

    def _make(
        self, prompt: str, laid: Workspace, max_turns: int, limit: float, only_trigger: bool
    ) -> dict[str, Any]:
        """Start the agent, wait for it, and say how it went."""
        harness, root = self.harness, str(laid.root)
        ticket = Ticket(
            marks_of(self.skill.body, self.skill.text.removesuffix(self.skill.body), prompt),
            account=self.account,
            most_calls=max_turns,
            stop_when_read=only_trigger,
            on_usage=self.recorder.add_usage,
        )
        trace = Trace()
        with processes.scratch() as folder, self.proxy.serving(ticket) as url:
            values = {"executable": harness.executable, "prompt": prompt, "workspace": root}
            values |= {"home": str(folder / "home"), "model": self.proxy.config.model}
            values |= {"url": url, "key": "skillopt"}
            for name, text in harness.files.items():
                (folder / "home" / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / "home" / name).write_text(harness.filled(text, values), encoding="utf-8")
            if harness.unpacks:
                link = folder / "home" / ".cache" / harness.unpacks
                link.parent.mkdir(parents=True)
                link.symlink_to(sandbox.user_cache() / harness.unpacks)
            talk = functools.partial(harness.drive, values, trace) if harness.drive else None
            env = {name: harness.filled(text, values) for name, text in harness.env.items()}
            argv = [harness.filled(word, values) for word in harness.argv.split()]
            ended = self._start(
                argv, laid.root, folder, laid.skill, env, limit, ticket=ticket, talk=talk
            )
        told = trace.read(harness, ended.out)
        if not laid.skill_is_untouched():
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

    def _problem(self, ticket: Ticket, ended: Ended, trace: Trace, told: int, limit: float) -> str:
        """Why there is no answer, for which the agent is to blame; empty where there is one.

        Raises:
            ModelError: the infrastructure is to blame.
        """
        said = " ".join(ended.err.split())[-300:]
        how = f"ended after {limit:g} s" if ended.why == "time" else f"exit status {ended.status}"
        if not told:
            tested = self.harness.tested or "no version"
            how += f", printed nothing that is known (tested with {tested})"
        words = {
            "start": f"could not be started: {said}",
            "printed": f"printed more than {processes.MOST_PRINTED} bytes",
            "disk": "the disk is full, the run was ended",
        }.get(ended.why, "")
        if ticket.failure is not None:
            raise ticket.failure
        if not words and ticket.fault is not None:
            raise self.proxy.failure(ticket.fault)
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

    def _check(self, root: Path, command: str, timeout: float) -> Ended:
        """Run a user's command on what an agent has made, which may be anything."""
        with processes.scratch() as folder:
            return self._start(["/bin/sh", "-c", command], root, folder, None, {}, timeout)

    def _start(
        self,
        argv: list[str],
        root: Path,
        folder: Path,
        skill: Path | None,
        env: Mapping[str, str],
        limit: float,
        **watched: Any,
    ) -> Ended:
        home = folder / "home"
        confined = sandbox.prefix(
            self.sandbox, root, home, skill, self.project, argv[0], self.harness.unpacks
        )
        whole = {**processes.plain_environment(home, self.passed), **env}
        return processes.run(
            [*confined, *argv], workspace=root, folder=folder, env=whole, limit=limit, **watched
        )


def _command(run: ToolRun) -> str:
    """The command of a tool that is a shell; empty for any other."""
    arguments = json.loads(run.arguments)
    names = ("command", "cmd") if isinstance(arguments, dict) else ()
    found: Any = next((arguments[name] for name in names if arguments.get(name)), "")
    return " ".join(map(str, found)) if isinstance(found, list) else str(found)
