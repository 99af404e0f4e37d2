"""One run of a coding agent with a version of a skill: what ``skill_harness(prompt)`` does."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import re
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_skillopt.harness import processes, sandbox
from pytest_skillopt.harness.adapters import Harness, Trace
from pytest_skillopt.harness.proxy import Proxy, Ticket, marks_of
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

    from pytest_skillopt.harness.processes import Ended
    from pytest_skillopt.model.cache import Replies
    from pytest_skillopt.suite.context import Recorder, Skill

    Folder = str | os.PathLike[str]

REVISION = 3
"""Of what is kept of a run, and of what an adapter makes of an agent's events."""
_TOLD = ("usage", "files", "diff", "skill_used", "skill_read", "exit_status", "seconds")
_HERE = "{skillopt-workspace}"
_SCRATCH = re.compile(r"[^\s\"'`]*/skillopt-home-[^/\s\"'`]+/home")


@dataclass(frozen=True, slots=True)
class Place:
    """All that an agent needs to know of the rollout it runs in."""

    project: Path
    """Root directory of the test session."""
    temporary: Path
    """Where pytest makes its temporary folders."""
    skill: Skill
    proxy: Proxy
    replies: Replies | None
    """Where whole runs are kept; None: nowhere."""
    recorder: Recorder
    limit: float
    """Seconds of the agent's own time; 0: none."""
    passed: Mapping[str, str]
    """Environment variables that the user lets through."""
    sandbox: str
    asked: Counter[str] = field(default_factory=Counter)
    """How often a run was asked for: the same task twice in a rollout is two draws."""

    @property
    def account(self) -> tuple[str, str, str]:
        """Role, stage and task."""
        return "target", self.recorder.stage, self.recorder.request.task


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


class HarnessAgent:
    """The fixture ``skill_harness``. Each call is a run of its own, in the same workspace.

    Args:
        harness: one that is installed.
        workspace: where the agent works, unless a call says otherwise.
        find: an installed harness by its name, for ``use``.
    """

    def __init__(
        self, harness: Harness, place: Place, workspace: Path, find: Callable[[str], Harness]
    ) -> None:
        self._harness, self._place, self._find = harness, place, find
        self.workspace = workspace
        self.name, self.version = harness.name, harness.version

    def use(self, harness: str) -> HarnessAgent:
        """The same agent in another harness."""
        return HarnessAgent(self._find(harness), self._place, self.workspace, self._find)

    def __call__(self, prompt: str, **options: Any) -> HarnessReply:
        """Give the agent a task and wait until it has finished.

        Args:
            options: the fields of ``Options``.

        Raises:
            ReplyError: no final answer within ``max_turns`` or ``timeout``.
            ModelError: the infrastructure failed, the harness included.
            ValueError: ``explicit`` in a harness that has no way to force a skill.
        """
        run, root = self._run(prompt, Options(**options), only_trigger=False)
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
            options: further fields of ``Options``.
        """
        run, _ = self._run(prompt, Options(max_turns=max_turns, **options), only_trigger=True)
        return bool(run["skill_read"] or run["skill_used"])

    def _run(
        self, prompt: str, options: Options, *, only_trigger: bool
    ) -> tuple[dict[str, Any], Path]:
        place, harness = self._place, self._harness
        root = Path(options.workspace or self.workspace).absolute()
        said = prompt
        if options.explicit:
            if not harness.explicit:
                raise ValueError(f"{self.name} has no way to force a skill: leave explicit out")
            said = harness.explicit.format(name=place.skill.name, prompt=prompt)
        self._check_surroundings(root)
        others = [place.project / other for other in options.others]
        try:
            if options.copy is not None:
                source = place.project / options.copy
                shutil.copytree(source, root, symlinks=True, dirs_exist_ok=True)
            laid = Workspace(root, harness.skills, place.skill.path, others)
        except OSError as error:
            raise ModelFault(f"{root}: the workspace cannot be laid out ({error})") from error
        limit = place.limit if options.timeout is None else options.timeout
        make = functools.partial(self._make, said, laid, options.max_turns, limit, only_trigger)
        parts = [str(harness), said, options.max_turns, limit, only_trigger]
        parts += map(digest_of, others)
        try:
            kept = options.cache and place.replies is not None and place.replies.mode != "off"
            run = self._kept(parts, laid, make) if kept else make()
            after = laid.snapshot()
        finally:
            laid.clear()
        run |= {"files": changes(laid.before, after), "diff": unified_diff(laid.before, after)}
        for role, content in (("user", prompt), *run["turns"]):
            place.recorder.record(role, content)
        place.recorder.note_skill_read(run["skill_read"])
        return run, root

    def _check_surroundings(self, root: Path) -> None:
        """Refuse a folder in which an agent would do harm, or read what it should not."""
        place, project, here = self._place, self._place.project.resolve(), root.resolve()
        inside = here.is_relative_to(project) or project.is_relative_to(here)
        if inside and not here.is_relative_to(place.temporary.resolve()):
            raise ModelFault(
                f"{root}: an agent may do anything to its workspace, and other copies of the skill "
                "are removed there; do not let it work in the project, use copy=",
                fatal=True,
            )
        leak = leaking(here, sandbox.hidden_folders(place.sandbox, project))
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
        place, replies, root = self._place, self._place.replies, str(laid.root)
        assert replies is not None
        config, sample = place.proxy.config, place.recorder.sample
        before = [digest_of(place.skill.path), fingerprint(laid.before)]
        given = [config.fingerprint, place.sandbox, dict(place.passed), sample]
        text = json.dumps([REVISION, *parts, *before, *given], sort_keys=True)
        place.asked[text] += 1
        key = "run-" + hashlib.sha256(f"{text}#{place.asked[text]}".encode()).hexdigest()
        with replies.claim(key):
            found = replies.find(key)
            if found is None and replies.mode == "ro":
                raise CacheMiss(
                    f"a run of {place.recorder.request.task} (sample {sample}) is not in "
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
        place.recorder.add_usage(run["usage"])
        place.proxy.throttle.note(run["usage"].to_json(), place.account)
        return dict(run)

    def _make(
        self, prompt: str, laid: Workspace, max_turns: int, limit: float, only_trigger: bool
    ) -> dict[str, Any]:
        """Start the agent, wait for it, and say how it went."""
        place, harness, root = self._place, self._harness, str(laid.root)
        ticket = Ticket(
            marks_of(place.skill.body, place.skill.text.removesuffix(place.skill.body), prompt),
            account=place.account,
            most_calls=max_turns,
            stop_when_read=only_trigger,
            on_usage=place.recorder.add_usage,
        )
        trace = Trace()
        with processes.scratch() as folder, place.proxy.serving(ticket) as url:
            values = {"executable": harness.executable, "prompt": prompt, "workspace": root}
            values |= {"home": str(folder / "home"), "model": place.proxy.config.model}
            values |= {"url": url, "key": "skillopt"}
            for name, text in harness.files.items():
                (folder / "home" / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / "home" / name).write_text(harness.filled(text, values), encoding="utf-8")
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
            "skill_used": trace.used(place.skill.name),
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
            tested = self._harness.tested or "no version"
            how += f", printed nothing that is known (tested with {tested})"
        words = {
            "start": f"could not be started: {said}",
            "printed": f"printed more than {processes.MOST_PRINTED} bytes",
            "disk": "the disk is full, the run was ended",
        }.get(ended.why, "")
        if ticket.failure is not None:
            raise ticket.failure
        if not words and ticket.fault is not None:
            raise self._place.proxy.failure(ticket.fault)
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
            raise ModelFault(f"{self._harness}: {words}", fatal=ended.why == "start")
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
        place, home = self._place, folder / "home"
        confined = sandbox.prefix(place.sandbox, root, home, skill, place.project, argv[0])
        whole = {**processes.plain_environment(home, place.passed), **env}
        return processes.run(
            [*confined, *argv], workspace=root, folder=folder, env=whole, limit=limit, **watched
        )


@dataclass(frozen=True, slots=True)
class Options:
    """What a call of ``skill_harness`` may say besides its prompt."""

    workspace: Folder | None = None
    """A folder in place of the fixture ``workspace``."""
    copy: Folder | None = None
    """A folder, relative to the root directory, whose content goes into the workspace first."""
    others: Sequence[Folder] = ()
    """Folders of further skills, relative to the root directory, that compete."""
    explicit: bool = False
    """Force the skill, in harnesses that have a way to say so."""
    max_turns: int = 0
    """Model calls after which the run is ended; 0: as many as it wants."""
    timeout: float | None = None
    """Seconds of the agent's own time, in place of nine tenths of ``skillopt_timeout``."""
    cache: bool = True
    """Whether the run may be kept; False for a task with effects outside of its workspace."""


def _command(run: ToolRun) -> str:
    """The command of a tool that is a shell; empty for any other."""
    arguments = json.loads(run.arguments)
    names = ("command", "cmd") if isinstance(arguments, dict) else ()
    found: Any = next((arguments[name] for name in names if arguments.get(name)), "")
    return " ".join(map(str, found)) if isinstance(found, list) else str(found)
