"""Faults of an agent's process: each ends in words within seconds, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import shutil
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import warm_sessions
from harness_project import KEY
from patience import PATIENCE, wait_until
from refusals import assert_refused
from tables import each_row

from pytest_skillopt.plugins.agents import run
from pytest_skillopt.plugins.agents.known import Harness
from pytest_skillopt.plugins.agents.proxy import AgentCalls
from pytest_skillopt.plugins.agents.run import Runner, Start
from pytest_skillopt.plugins.agents.sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness_project import Project

SANDBOXES = pytest.mark.parametrize("sandbox", ["none", "bwrap"])
RUN = "keep(text=skill_harness('Hello.'))"
ANSWER = "call(); say(text='hi')\n"


def message(project: Project, body: str = RUN, *, kind: str = "provider") -> str:
    """The words of the infrastructure error in which a task ends."""
    project.settings |= {"skillopt_max_attempts": 1, "skillopt_rollouts": 1}
    assert project.run(body, "--skillopt", "-p", "no:xdist").ret == 1
    (error,) = project.errors
    assert error["kind"] == kind
    return str(error["message"])


def processes_with(word: str, *ids: str) -> list[int]:
    """Processes that have a word in their command line, of some or of all."""
    found = []
    for name in ids or filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if word.encode() in Path(f"/proc/{name}/cmdline").read_bytes():
                found.append(int(name))
    return found


def hurry(monkeypatch: pytest.MonkeyPatch, when: Callable[[], bool]) -> None:
    """Let no time pass for a run until something has happened, and then a second a look."""
    now = 0.0

    def monotonic() -> float:
        nonlocal now
        now += when()
        return now

    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=monotonic))


def test_an_agent_that_answers(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but what it needs, and what it is given, is in its environment: no key, no proxy."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("OURS", "given")
    project.settings |= {"skillopt_sandbox": "none", "skillopt_harness_env": "OURS, NOT_THERE"}
    project.use_stub("call(); say(text=' '.join(os.environ), ran=written(dict(os.environ)))\n")
    body = "reply = skill_harness('Hello.')\nkeep(names=reply.split(), env=reply.commands[0])"
    assert project.run(body).ret == 0
    assert "OURS" in project.kept["names"]
    assert KEY not in project.kept["env"]
    assert not {"OPENAI_API_KEY", "HTTPS_PROXY", "NOT_THERE"} & {*project.kept["names"]}


SHELL = Harness("shell", "/bin/sh -c {prompt}", lambda event, trace: None, "")


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    """Runner without a sandbox."""
    made = Runner(Sandbox("none"), tmp_path, {})
    yield made
    made.close()


def in_shell(command: str, folder: Path) -> Start:
    return Start(SHELL, {"prompt": command}, folder)


def test_guards_that_were_killed_are_replaced(runner: Runner, tmp_path: Path) -> None:
    """By a rollout's time-out, which ends all that was started in it."""
    for _ in range(2):
        ended = runner.run(in_shell("echo hi; cut -d' ' -f4 /proc/$PPID/stat >&2", tmp_path), 0)
        assert (ended.status, ended.why, ended.out) == (0, "exit", "hi\n")
        guards = int(ended.err)
        os.kill(guards, signal.SIGKILL)
        os.waitid(os.P_PID, guards, os.WEXITED | os.WNOWAIT)


def test_a_guard_that_was_killed_is_no_answer(runner: Runner, tmp_path: Path) -> None:
    """And the agent, with what it has started, does not outlive it; other runs go on."""
    word = f"skillopt-orphan-{os.getpid()}"
    sleep = f"{sys.executable} -c 'import time; time.sleep(1000)' {word}"
    go_on = tmp_path / "go-on"
    with ThreadPoolExecutor() as pool:
        wait = f"touch began; until [ -e {go_on} ]; do sleep 0.01; done; echo hi"
        other = pool.submit(runner.run, in_shell(wait, tmp_path), 0)
        wait_until((tmp_path / "began").exists, "the other run never began")
        prompt = f"setsid {sleep} & {sleep} & kill -9 $PPID; {sleep}"
        ended = runner.run(in_shell(prompt, tmp_path), 0)
        assert (ended.status, ended.why) == (1, "guard")
        wait_until(lambda: not processes_with(word), "the agent was left")
        go_on.touch()
        assert other.result().out == "hi\n"


def test_a_guard_that_was_killed_together_with_its_parent_leaves_no_agent(
    runner: Runner, tmp_path: Path
) -> None:
    word = f"skillopt-unguarded-{os.getpid()}"
    sleep = f"{sys.executable} -c 'import time; time.sleep(1000)' {word}"
    both = "$(cut -d' ' -f4 /proc/$PPID/stat) $PPID"
    prompt = f"(setsid {sleep} &) ; {sleep} & kill -9 {both}; {sleep}"
    ended = runner.run(in_shell(prompt, tmp_path), 0)
    assert (ended.status, ended.why) == (1, "guard")
    wait_until(lambda: not processes_with(word), "the agent was left")
    assert runner.run(in_shell("echo hi", tmp_path), 0).out == "hi\n"


def test_guards_that_are_stopped_are_not_left_behind(
    runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped process answers nobody, and outlives whoever waits for it."""
    monkeypatch.setattr(run, "_LOOK_MS", 20)
    calls = AgentCalls()
    began = tmp_path / "began"
    prompt = "parent=$(cut -d' ' -f4 /proc/$PPID/stat); kill -STOP $PPID $parent; "
    prompt += "echo $PPID $parent > new; mv new began; sleep 1000"
    with ThreadPoolExecutor() as pool:
        start = in_shell(prompt, tmp_path)
        stopped = pool.submit(runner.run, start, 0, calls)
        wait_until(began.exists, "the agent never began")
        monkeypatch.setattr(run, "_PATIENCE", 0.2)
        calls.out_of_calls = True
        assert stopped.result()[:2] == (1, "guard")
    monkeypatch.setattr(run, "_PATIENCE", PATIENCE)
    guard = began.read_text(encoding="ascii").split()[0]
    wait_until(lambda: not processes_with("guard.py", guard), "the stopped guard was left")
    assert runner.run(in_shell("echo hi", tmp_path), 0).out == "hi\n"


def test_processes_that_live_on_in_new_children_are_ended(
    runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is gone, with a new child in a new session, before it can be found and killed."""
    monkeypatch.setattr(run, "_PATIENCE", PATIENCE)
    word = f"skillopt-hopper-{os.getpid()}"
    (tmp_path / "hop.py").write_text(
        "import os, sys\n"
        "for number in range(20):\n"
        "    if os.fork() == 0: break\n"
        "else: sys.exit()\n"
        "open(f'begun-{number}', 'w').close()\n"
        "while True:\n"
        "    if os.fork(): os._exit(0)\n"
        "    os.setsid()\n"
    )
    prompt = f"{sys.executable} -IS hop.py {word}; "
    prompt += "until [ $(ls | grep -c begun) = 20 ]; do sleep 0.1; done"
    runner.run(in_shell(prompt, tmp_path), 0)
    left = [pid for _ in range(5) for pid in processes_with(word)]
    while any(processes_with(word) for _ in range(5)):
        for pid in processes_with(word)[::-1]:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    assert left == []


def test_an_agent_is_ended_before_others_and_forks_within_a_limit(
    runner: Runner, tmp_path: Path
) -> None:
    """The system ends it first if memory is short; a machine of Linux tells both."""
    own = Path("/proc/self/oom_score_adj").read_text(encoding="ascii").strip()
    # The guard has the agent's score until the agent has started.
    asked = f"until [ $(cat /proc/$PPID/oom_score_adj) = {own} ]; do sleep 0.01; done; "
    asked += "cat /proc/self/oom_score_adj; grep 'Max processes' /proc/self/limits"
    said = runner.run(in_shell(asked, tmp_path), PATIENCE).out.split()
    assert said[0] == "1000"
    threads = int(Path("/proc/loadavg").read_text(encoding="ascii").split()[3].partition("/")[2])
    soft = resource.getrlimit(resource.RLIMIT_NPROC)[0] % 2**64
    assert abs(int(said[3]) - min(soft, threads + 8_192)) < 5_000


def test_an_agent_that_kills_its_guard_ends_one_rollout_and_not_the_run(project: Project) -> None:
    project.settings |= {"skillopt_sandbox": "none", "skillopt_max_attempts": 1}
    project.use_stub(
        "call()\n"
        "if 'Kill' in os.environ['PROMPT']: os.kill(os.getppid(), 9); time.sleep(1000)\n"
        "say(text='hi')\n"
    )
    cases = "@pytest.mark.parametrize('said', ['Kill.', *['Hello.'] * 3])"
    project.run("skill_harness(said)", "--skillopt", head=cases, fixtures=", said")
    assert {task["before"]["n"] for task in project.result["skills"][0]["tasks"]} == {0, 3}
    assert {error["fatal"] for error in project.errors} == {False}
    assert "guards the agent was killed" in project.errors[0]["message"]


def test_a_check_whose_guard_is_killed_is_no_wrong_answer(project: Project) -> None:
    project.settings["skillopt_sandbox"] = "none"
    project.use_stub(ANSWER)
    said = message(project, "skill_harness('Hello.').check('kill -9 $PPID; sleep 1000')")
    assert "could not be run" in said


@SANDBOXES
@each_row("command", ["kill -9 $$", "sh -c 'kill -9 $$'; exit $?"])
def test_a_check_that_is_killed_is_no_wrong_answer(
    project: Project, sandbox: str, command: str
) -> None:
    """A system that is short of memory ends what agents run first."""
    project.settings["skillopt_sandbox"] = sandbox
    project.use_stub(ANSWER)
    assert "was killed" in message(project, f"skill_harness('Hello.').check({command!r})")


def test_an_agent_that_cannot_be_started_is_told_from_one_whose_guard_was_killed(
    runner: Runner,
    tmp_path: Path,
) -> None:
    harness = Harness("none", "/no/such/program", lambda event, trace: None, "")
    ended = runner.run(Start(harness, {}, tmp_path), 0)
    assert (ended.status, ended.why) == (1, "start")
    assert "/no/such/program" in ended.err


FAILING = [
    ("call(); sys.exit('segment lost')", "ended without an answer, exit status 1"),
    ("call(); os.kill(os.getpid(), 11)", "ended without an answer, exit status -11"),
    ("call(); print('%$ garbage' * 9)", "no event recognised in its output (tested with 1.0)"),
    ('call(); print(\'{"type": "of version 9"}\')', "(tested with 1.0)"),
    ("say(text='Please log in.')", "made no model call, exit status 0: Please log in."),
    ("sys.exit('no such option: --json')", "made no model call, exit status 1"),
]


def test_a_harness_that_fails_is_no_wrong_answer(project: Project) -> None:
    project.settings |= {
        "skillopt_sandbox": "none",
        "skillopt_max_attempts": 1,
        "skillopt_rollouts": 1,
    }
    project.use_stub("exec(os.environ['PROMPT'])")
    head = f"AGENTS = {[agent for agent, _ in FAILING]}\n"
    head += "@pytest.mark.parametrize('n', range(len(AGENTS)))"
    body = "skill_harness(AGENTS[n])"
    done = project.run(body, "--skillopt", "-p", "no:xdist", head=head, fixtures=", n")
    assert done.ret == 1
    assert {task["before"]["n"] for task in project.result["skills"][0]["tasks"]} == {0}
    errors = {error["task"].partition("[")[2]: error for error in project.errors}
    for number, (_, words) in enumerate(FAILING):
        error = errors[f"{number}]"]
        assert error["kind"] == "provider"
        assert error["message"].startswith("stub ")
        assert words in error["message"]


def test_a_full_disk(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is full for the run only: others write on the real one, too."""
    full = project.path / "full"
    usage = shutil.disk_usage

    def look(folder: Path) -> object:
        return usage(folder)._replace(free=0) if full.exists() else usage(folder)

    monkeypatch.setattr(shutil, "disk_usage", look)
    project.use_stub("open('full', 'w').close()\ntime.sleep(1000)")
    body = f"pathlib.Path({str(full)!r}).symlink_to(workspace / 'full')\n{RUN}"
    assert "the disk is full, so the run was ended" in message(project, body)


def test_an_agent_that_changes_the_skill(project: Project) -> None:
    """Its work afterwards is not a sample of the version under test."""
    edit = "open('.agents/skills/house-greeting/SKILL.md', 'a').write('More.')\n"
    project.use_stub(edit + ANSWER)
    project.settings["skillopt_sandbox"] = "none"
    assert "the agent changed the skill under test" in message(project)
    assert "More." not in project.skill.read_text()


def test_an_agent_that_works_for_ever_has_failed(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = project.path / "said"
    hurry(monkeypatch, said.exists)
    project.use_stub("call()\nsay(ran='make all')\nopen('said', 'w').close()\ntime.sleep(1000)")
    body = f"pathlib.Path({str(said)!r}).symlink_to(workspace / 'said')\n"
    body += "skill_harness('Hello.', timeout=2)"
    project.run(body, "--skillopt", "-p", "no:xdist", "--skillopt-rollouts=1")
    (row,) = project.result["skills"][0]["tasks"]
    assert row["before"]["n"] == 1
    assert (
        "no final answer within 2 s; last commands: make all"
        in (row["before"]["sample"]["message"])
    )


def test_the_time_for_which_the_session_was_stopped_is_not_the_agents(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-Z stops the session and its proxy, but not the agent, which waits for both."""
    place = project.path / "workspace"
    looks = itertools.count()

    def monotonic() -> float:
        if not (place / "asked").exists():
            return 0.0
        if next(looks) == 3:
            (place / "go-on").touch()
        return 1000.0

    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=monotonic))
    project.use_stub(
        "call()\nopen('asked', 'w').close()\n"
        "while not os.path.exists('go-on'): time.sleep(0.01)\n"
        "say(text='hi')\n"
    )
    body = f"pathlib.Path({str(place)!r}).symlink_to(workspace)\n"
    body += "keep(text=skill_harness('Hello.', timeout=2))"
    assert project.run(body, "-p", "no:xdist").ret == 0
    assert project.kept == {"text": "hi"}


def test_an_agent_that_never_asks_a_model_is_broken(project: Project) -> None:
    project.use_stub("time.sleep(1000)")
    said = message(project, "skill_harness('Hello.', timeout=0.1)")
    assert "made no model call, ended after 0.1 s" in said


def test_the_time_that_a_provider_costs_is_not_the_agents(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try hangs for longer than the agent has; it is not counted."""
    hurry(monkeypatch, project.provider.arrived.is_set)
    project.settings |= {
        "skillopt_base_url": project.provider.url("hang"),
        "skillopt_request_timeout": 0.3,
    }
    project.use_stub("call()")
    said = message(project, "skill_harness('Hello.', timeout=1)")
    assert said == "openai:fake-model: the provider did not answer in time " + (
        "(skillopt_request_timeout, skillopt_max_in_flight) (after 2 tries)"
    )


@SANDBOXES
def test_nothing_that_an_agent_starts_outlives_it(
    project: Project, scratch: Path, sandbox: str
) -> None:
    """A daemon, a child of its shell that keeps its output open, and one in its own session."""
    word = f"skillopt-left-{os.getpid()}-{sandbox}"
    project.settings["skillopt_sandbox"] = sandbox
    project.use_stub(
        "import subprocess\n"
        f"sleep = [sys.executable, '-c', 'import time; time.sleep(1000)', '{word}']\n"
        "subprocess.Popen(sleep)\n"
        "subprocess.Popen(sleep, start_new_session=True)\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0: os.execv(sleep[0], sleep)\n"
        "    os._exit(0)\n"
        "os.wait()\n" + ANSWER
    )
    assert project.run(RUN).ret == 0
    assert project.kept == {"text": "hi"}
    assert processes_with(word) == []
    assert not list(scratch.glob("skillopt-home-*"))


@pytest.mark.parametrize(("workers", "sandbox"), [("0", "bwrap"), ("1", "none")])
def test_nothing_is_left_of_a_session_that_is_killed(
    project: Project, scratch: Path, sandbox: str, workers: str
) -> None:
    word = f"skillopt-killed-{os.getpid()}-{sandbox}-{workers}"
    project.settings |= {"skillopt_sandbox": sandbox, "skillopt_base_url": "http://127.0.0.1:9/v1"}
    started = project.path / "started"
    project.use_stub(
        f"import subprocess\nsubprocess.Popen(['setsid', sys.executable, '-c', "
        f"'import time; time.sleep(1000)', '{word}'])\n"
        "open('started', 'w').close()\ntime.sleep(1000)"
    )
    body = f"import pathlib\npathlib.Path({str(started)!r}).symlink_to(workspace / 'started')\n"
    project.settings["addopts"] = f"-n{workers}" if workers != "0" else "-p no:xdist"
    project.run("pass", "--collect-only")
    source = (project.path / "test_task.py").read_text()
    (project.path / "test_task.py").write_text(
        source.replace("    pass\n", "".join(f"    {line}\n" for line in (body + RUN).splitlines()))
    )
    command = ("--skillopt", f"--basetemp={project.path / 'tmp'}")
    session = warm_sessions.start(*command, cwd=project.path, quiet=True)
    wait_until(started.exists, "the agent never started")
    wait_until(lambda: processes_with(word), "the agent's child never started")
    session.kill()
    session.wait()
    wait_until(lambda: not processes_with(word), "a process was left")
    wait_until(lambda: not list(scratch.glob("skillopt-home-*")), "a folder was left")


def test_a_harness_that_is_not_installed(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    project.settings["skillopt_harness"] = "opencode"
    done = project.run(RUN, "--skillopt")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    words = "*skillopt_harness: opencode needs the command 'opencode', which is not installed; "
    done.stderr.fnmatch_lines([f"{words}install it with: npm install -g opencode-ai*"])
    done = project.run(RUN)
    done.stdout.fnmatch_lines(["*npm install -g opencode-ai*"])


@each_row(
    ("name", "words"),
    [
        ("", "*uses skill_harness, but no harness is set. Set skillopt_harness, or harness=*"),
        ("codx", "*skillopt_harness: 'codx' is not one of claude, codex, opencode, gemini, *"),
        ("json:dumps", "*skillopt_harness: 'json:dumps' is not a Harness*"),
        ("nothing:here", "*skillopt_harness: 'nothing:here' cannot be loaded: No module named*"),
    ],
)
def test_a_harness_that_there_is_not(project: Project, name: str, words: str) -> None:
    project.settings["skillopt_harness"] = name
    assert_refused(project.run(RUN, "--skillopt", *(("-n1",) if name == "codx" else ())), words)


@each_row(
    ("file", "words", "arguments"),
    [
        (
            "NOTES.md",
            "*with NOTES.md: agents find SKILL.md*, and of other documents only CLAUDE.md*",
            ("--skillopt", "-p", "no:xdist"),
        ),
        *(
            (
                "AGENTS.md",
                "*stub: nothing is known of*, so AGENTS.md cannot be trained*; give*memory=*",
                arguments,
            )
            for arguments in ((), ("--skillopt", "-n1"))
        ),
    ],
)
def test_a_document_that_the_agent_would_not_read(
    project: Project, file: str, words: str, arguments: tuple[str, ...]
) -> None:
    project.use_stub(ANSWER)
    (project.path / file).write_text("Be brief.\n")
    project.settings["skillopt_skill"] = file
    done = project.run(RUN, *arguments)
    assert done.ret == (pytest.ExitCode.USAGE_ERROR if arguments else 1)
    (done.stderr if arguments else done.stdout).fnmatch_lines([words])


DOCUMENT = """
path = "{place}"
text = open(path).read() if os.path.exists(path) else ""
call(text if "READ" in os.environ["PROMPT"] else "Nothing.")
say(text=f"{{sorted(os.listdir())}} {{text}}")
"""


@pytest.mark.parametrize(
    ("file", "memory", "place"),
    [
        ("AGENTS.md", ["MINE.md"], "MINE.md"),
        ("MINE.md", ["MINE.md"], "MINE.md"),
        ("AGENTS.md", ["MINE.md", "AGENTS.md"], "AGENTS.md"),
        (".github/copilot-instructions.md", ["AGENTS.md"], "AGENTS.md"),
        ("AGENTS.md", [".github/copilot-instructions.md"], ".github/copilot-instructions.md"),
        ("web/api/QWEN.md", ["AGENTS.md"], "web/api/AGENTS.md"),
    ],
)
def test_a_document_lies_where_the_agent_reads_it(
    project: Project, file: str, memory: list[str], place: str
) -> None:
    """Alone in its folder, and gone with the empty folders once the agent has ended."""
    project.use_stub(
        DOCUMENT.format(place=os.path.basename(place) if "web" in place else place), memory=memory
    )
    for name in (file, "fixture/CLAUDE.md"):
        (project.path / name).parent.mkdir(parents=True, exist_ok=True)
        (project.path / name).write_text("Answer in one word.\n")
    (project.path / "fixture" / "docs").mkdir()
    (project.path / "fixture" / "docs" / "CLAUDE.md").write_text("Stays.")
    project.settings["skillopt_skill"] = file
    body = "reply = skill_harness('READ.', copy='fixture')\n"
    body += "keep(text=reply, read=reply.skill_read, files=reply.files, left=os.listdir(workspace))"
    assert project.run(body).ret == 0
    there = ["AGENTS.md"] if "web" in file else sorted({"docs", place.partition("/")[0]})
    assert project.kept["text"] == f"{there} Answer in one word.\n"
    assert project.kept["read"]
    assert project.kept["files"] == {}
    assert sorted(project.kept["left"]) == (["CLAUDE.md", "docs"] if "web" in file else ["docs"])


def test_a_memory_document_lies_beside_the_skill(project: Project) -> None:
    """Each where the agent looks for it; the agent starts at the top."""
    agent = DOCUMENT.format(place="MINE.md").replace(
        "sorted(", "os.listdir('.agents/skills'), sorted("
    )
    project.use_stub(agent, memory=["MINE.md"])
    (project.path / "AGENTS.md").write_text("Answer in one word.\n")
    project.settings["skillopt_files"] = "../../AGENTS.md"
    project.settings["skillopt_skill"] = "skills/house-greeting/SKILL.md"
    body = "reply = skill_harness('READ.')\nkeep(text=reply, left=os.listdir(workspace))"
    assert project.run(body).ret == 0
    seen = "(['house-greeting'], ['.agents', 'MINE.md']) Answer in one word.\n"
    assert project.kept == {"text": seen, "left": []}


def test_a_document_that_was_not_read_has_no_sample(project: Project) -> None:
    """An agent whose new version reads another name would else have measured nothing."""
    project.use_stub(DOCUMENT.format(place="AGENTS.md"), memory=["AGENTS.md"])
    (project.path / "AGENTS.md").write_text("Answer in one word.\n")
    project.settings |= {"skillopt_skill": "AGENTS.md", "skillopt_rollouts": 1}
    project.run("skill_harness('Hello.')", "--skillopt", "-p", "no:xdist")
    (error,) = project.errors
    assert "did not read AGENTS.md: its text was in no request" in error["message"]
    assert error["fatal"]
    for call in ("trigger('Hello.')", "('Hello.', explicit=True)"):
        done = project.run(f"skill_harness.{call}".replace(".(", "("))
        done.stdout.fnmatch_lines(["*ValueError: AGENTS.md is always read: neither explicit*"])


def test_a_harness_that_does_not_tell_its_version(project: Project) -> None:
    project.use_stub(ANSWER)
    stub = project.path / "stub.py"
    stub.write_text(stub.read_text().replace("=sys.executable", "='test'"))
    assert_refused(project.run(RUN, "--skillopt"), "*/test --version prints no version, but: *")


def test_a_version_is_asked_for_with_the_harness_own_variables(project: Project) -> None:
    """Such as those that forbid an update; what differs in every run is left out."""
    project.use_stub(ANSWER)
    program = project.path / "program"
    program.write_text('#!/bin/sh\necho "1.0.$FIXED$BASE_URL"\n')
    program.chmod(0o755)
    stub = project.path / "stub.py"
    source = stub.read_text().replace("=sys.executable", f"={str(program)!r}")
    stub.write_text(source.replace("env={", 'env={"FIXED": "7", '))
    assert project.run("keep(version=skill_harness.harness.version)").ret == 0
    assert project.kept == {"version": "1.0.7"}


@each_row("place", ["CLAUDE.md", "AGENTS.md", ".claude/skills"])
def test_what_lies_above_the_workspace_would_be_read(project: Project, place: str) -> None:
    project.use_stub(ANSWER)
    project.settings["skillopt_sandbox"] = "none"
    above = project.path / f"above with {Path(place).name}"
    (above / place).parent.mkdir(parents=True)
    (above / place).mkdir() if place.endswith("skills") else (above / place).write_text("x")
    body = "import pathlib\nskill_harness('Hello.')"
    done = project.run(body, f"--basetemp={above / 'tmp'}")
    assert done.ret == 1
    done.stdout.fnmatch_lines([f"*{place} is above the workspace *--basetemp*"])


def test_an_agent_is_not_let_into_the_project(project: Project) -> None:
    project.use_stub(ANSWER)
    done = project.run("skill_harness('Hello.', workspace=os.getcwd())")
    assert done.ret == 1
    done.stdout.fnmatch_lines(["*do not let it work in the project, use copy=*"])
    assert project.skill.exists()


def test_a_process_that_ignores_the_polite_signal(runner: Runner, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    script = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"open({str(ready)!r}, 'w').close(); time.sleep(1000)"
    )

    agent_calls = AgentCalls()

    def ring() -> None:
        wait_until(ready.exists, "never started")
        agent_calls.out_of_calls = True

    ringer = threading.Thread(target=ring)
    ringer.start()
    (tmp_path / "stubborn.py").write_text(script)
    harness = Harness("stubborn", "{python} stubborn.py", lambda event, trace: None, "")
    ended = runner.run(Start(harness, {}, tmp_path), 0, agent_calls=agent_calls)
    ringer.join()
    assert (ended.why, ended.status) == ("exit", -signal.SIGKILL)


OUTSIDE = "outside = os.path.dirname(os.environ['PROMPT'].split()[-1]) + '/outside'\n"
SWAPPED = "the agent changed the skill under test"


@pytest.fixture
def outside(project: Project) -> Path:
    """A folder that is not the agent's, with a skill of the same name."""
    folder = project.path / "outside"
    (folder / "skills" / "house-greeting").mkdir(parents=True)
    (folder / "skills" / "house-greeting" / "SKILL.md").write_text("Not yours.\n")
    (folder / "profile").write_text("mine\n")
    project.settings |= {
        "skillopt_sandbox": "none",
        "skillopt_skill": "skills/house-greeting/SKILL.md",
    }
    return folder


def held(folder: Path) -> dict[str, str]:
    """All that lies in a folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text() for path in files}


def asking(project: Project, more: str = "") -> str:
    """The body of a task that tells the agent where the project lies."""
    return f"where = {str(project.path / 'x')!r}\nreply = skill_harness('Work ' + where)\n{more}"


PLACES = [".agents", ".agents/skills", ".agents/skills/house-greeting"]


def test_a_link_in_the_place_of_the_skill(project: Project, outside: Path) -> None:
    """Taking the skill out again stays in the workspace."""
    before = held(outside)
    project.use_stub(
        OUTSIDE + "import shutil\nplace = os.environ['PROMPT'].split()[1]\nshutil.rmtree(place)\n"
        "os.symlink(outside + place.replace('.agents', ''), place)\n" + ANSWER
    )
    head = f"@pytest.mark.parametrize('place', {PLACES})"
    project.settings |= {"skillopt_max_attempts": 1, "skillopt_rollouts": 1}
    body = asking(project).replace("'Work '", "f'Work {place} '")
    project.run(body, "--skillopt", "-p", "no:xdist", head=head, fixtures=", place")
    assert len(project.errors) == len(PLACES)
    assert all(SWAPPED in error["message"] for error in project.errors)
    assert held(outside) == before


FOLLOWED = [
    ("os.symlink(outside, '.agents')", "it is a link or a file instead of a folder"),
    ("os.makedirs('.git/info'); os.symlink(outside + '/profile', '.git/info/exclude')", "link"),
    ("os.makedirs('.git'); os.symlink(outside, '.git/info')", "instead of a folder"),
    ("os.makedirs('.git/info'); os.mkfifo('.git/info/exclude')", "exclude"),
    ("os.symlink(outside, 'sub')", "instead of a folder"),
]


def test_a_second_call_follows_no_link_of_the_first(project: Project, outside: Path) -> None:
    """Neither laying the skill out, nor hiding it from git, nor ``copy=`` writes outside."""
    before = held(outside)
    (project.path / "repo" / "sub").mkdir(parents=True)
    (project.path / "repo" / "sub" / "profile").write_text("copied\n")
    project.use_stub(OUTSIDE + ANSWER)
    body = "import shutil\n" + asking(project)
    body += f"shutil.rmtree(workspace)\nworkspace.mkdir()\noutside = {str(outside)!r}\n"
    body += "os.chdir(workspace)\nexec(AGENTS[n])\nos.chdir(where[:-2])\n"
    body += "skill_harness('Work ' + where, copy='repo')"
    head = f"AGENTS = {[agent for agent, _ in FOLLOWED]}\n"
    head += "@pytest.mark.parametrize('n', range(len(AGENTS)))"
    project.settings |= {"skillopt_max_attempts": 1, "skillopt_rollouts": 1}
    project.run(body, "--skillopt", "-p", "no:xdist", head=head, fixtures=", n")
    errors = {error["task"].partition("[")[2]: error["message"] for error in project.errors}
    for number, (_, words) in enumerate(FOLLOWED):
        assert "the workspace cannot be used" in errors[f"{number}]"]
        assert words in errors[f"{number}]"]
    assert held(outside) == before


def test_a_copy_replaces_a_link_and_not_its_target(project: Project, outside: Path) -> None:
    (project.path / "repo").mkdir()
    (project.path / "repo" / "profile").write_text("copied\n")
    project.use_stub(ANSWER)
    body = f"(workspace / 'profile').symlink_to({str(outside / 'profile')!r})\n"
    body += "skill_harness('Hello.', copy='repo')\nkeep(text=(workspace / 'profile').read_text())"
    assert project.run(body).ret == 0
    assert project.kept == {"text": "copied\n"}
    assert (outside / "profile").read_text() == "mine\n"


def test_a_workspace_behind_a_link(project: Project, outside: Path) -> None:
    """bubblewrap would let the agent write where it leads."""
    project.use_stub(ANSWER)
    body = f"(workspace / 'sub').symlink_to({str(outside)!r})\n"
    said = message(
        project, body + "skill_harness('Hello.', workspace=workspace / 'sub' / 'skills')"
    )
    assert "the path of this workspace has a link in it" in said


def test_a_pipe_in_the_place_of_the_output(project: Project) -> None:
    """The printed output is read nevertheless."""
    project.settings["skillopt_sandbox"] = "none"
    out = "out = os.environ['HOME'] + '/../out'\nos.remove(out)\nos.mkfifo(out)\n"
    project.use_stub(out + ANSWER)
    assert project.run(RUN).ret == 0
    assert project.kept == {"text": "hi"}


def test_large_and_odd_files(project: Project) -> None:
    """They are seen and not read: 24 GiB of nothing, a pipe, a socket, a loop of links."""
    project.use_stub(
        "for n in range(6): os.truncate(os.open(f'big{n}', os.O_CREAT | os.O_WRONLY), 4 << 30)\n"
        "os.mkfifo('pipe')\nos.symlink('loop', 'loop')\n"
        "_socket.socket(_socket.AF_UNIX).bind('socket')\n" + ANSWER
    )
    body = "keep(files=skill_harness('Hello.').files)"
    assert project.run(body, "--skillopt", "-p", "no:xdist", "--skillopt-rollouts=1").ret == 0
    names = [*(f"big{n}" for n in range(6)), "loop", "pipe", "socket"]
    assert project.kept == {"files": dict.fromkeys(names, "added")}


@pytest.mark.parametrize("place", [".", "os.environ['HOME']"])
def test_folders_without_end(project: Project, scratch: Path, place: str) -> None:
    """In the workspace they are a fault with a name, in the agent's home they go with it."""
    deep = "for _ in range(1200): os.mkdir('d'); os.chdir('d')\n"
    project.use_stub(
        f"os.chdir({place if '(' in place or '[' in place else repr(place)})\n{deep}{ANSWER}"
    )
    if place == ".":
        said = message(project)
        assert "the workspace cannot be used (folders are nested deeper than 100: d/d/d/" in said
    else:
        assert project.run(RUN).ret == 0
    assert not list(scratch.glob("skillopt-home-*"))


def test_names_that_are_not_utf8(project: Project) -> None:
    """In the workspace and in the skill's own folder; a failed comparison of them can be shown."""
    references = project.skill.parent / "references"
    references.mkdir()
    (references / os.fsdecode(b"odd-\xff.txt")).write_text("x")
    project.use_stub("open(b'n\\xffme', 'w').write('x\\n')\n" + ANSWER)
    body = "reply = skill_harness('Hello.')\nkeep(diff=reply.diff)\n"
    body += "assert [os.fsencode(name) for name in reply.files] == [b'n\\xffme']\n"
    body += "assert reply.files == {}"
    assert project.run(body, "--skillopt", "-n1", "--skillopt-rollouts=1").ret == 1
    assert "+++ b/n\\xffme\n" in project.kept["diff"]
    (row,) = project.result["skills"][0]["tasks"]
    assert (row["before"]["n"], row["before"]["errors"]) == (1, 0)


def test_a_trained_file_whose_name_is_not_utf8(project: Project) -> None:
    """It cannot be written down, in a journal or for a model."""
    references = project.skill.parent / "references"
    references.mkdir()
    (references / os.fsdecode(b"odd-\xff.md")).write_text("x")
    project.use_stub(ANSWER)
    assert_refused(
        project.run(RUN, "--skillopt", "-p", "no:xdist"),
        "*odd-*ff.md*is not UTF-8*rename*skillopt_files*",
    )


def test_a_session_that_mentions_nothing_has_the_fixtures_and_the_argument(
    pytester: pytest.Pytester,
) -> None:
    pytester.makefile(".md", SKILL="---\nname: a\ndescription: b\n---\n")
    pytester.makepyfile(
        test_it="""
        import pytest

        @pytest.mark.skill_task(harness="codex")
        def test_it(skill_harness):
            skill_harness("Do it")

        @pytest.mark.skill_task(harness=3)
        def test_bad():
            pass
        """
    )
    ran = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    ran.stdout.fnmatch_lines(
        ["no target model is configured.*", "*must be the name of a coding agent*"]
    )
