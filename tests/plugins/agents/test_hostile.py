"""Agents that reach for what is not theirs, or harm whoever looks at what they leave."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.plugins.agents import run
from pytest_skillopt.plugins.agents.sandbox import find_bwrap

if TYPE_CHECKING:
    from pathlib import Path

    from harness_project import Project

ANSWER = "call(); say(text='hi')\n"
TRIED = """
found = []
for path in os.environ["PROMPT"].split():
    try:
        os.listdir(path) if os.path.isdir(path) else open(path).close()
        found.append(path)
    except OSError:
        pass
call()
say(text=" ".join(found))
"""
"""Agent that tells which of the paths in its prompt it can read."""


@pytest.fixture(autouse=True)
def sandbox(project: Project) -> None:
    project.settings |= {
        "skillopt_sandbox": "bwrap",
        "skillopt_max_attempts": 1,
        "skillopt_rollouts": 1,
    }


def readable(project: Project, *paths: Path | str) -> set[str]:
    """Run an agent that tries to read some paths; return those that it could."""
    project.use_stub(TRIED)
    done = project.run(f"keep(found=skill_harness({' '.join(map(str, paths))!r}).split())")
    assert done.ret == 0
    return {*project.kept["found"]}


def test_what_confines_root_stays(project: Project) -> None:
    """With its capabilities it could mount the machine's folders again, and write there."""
    project.use_stub(
        "held = [line.split()[1] for line in open('/proc/self/status') if 'CapEff' in line]\n"
        "def opened(path):\n"
        "    try: open(path, 'a').close()\n"
        "    except OSError: return ''\n"
        "    return path\n"
        "call(); say(text=held[0] + opened('/proc/sys/kernel/core_pattern') + opened('/usr/x'))\n"
    )
    assert project.run("keep(text=skill_harness('Hello.'))").ret == 0
    assert int(project.kept["text"], 16) in (0, 1)  # at most to give its own files away


def test_root_of_a_container_is_confined_as_everybody_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the capability to mount anything it needs a user namespace."""
    program = tmp_path / "bwrap"
    program.write_text('#!/bin/sh\ncase "$*" in *--unshare-user*) exit 0;; esac\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    found = find_bwrap()
    assert found[0] == str(program)
    assert {"--unshare-user", "--cap-drop"} <= {*found}


def test_a_search_path_without_commands_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_bwrap()
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "/nowhere")
        assert find_bwrap() == ()
    assert find_bwrap() == found


def test_sockets_and_tokens_of_the_machine_are_hidden(project: Project) -> None:
    assert "/run" in readable(project, "/run")
    project.use_stub("call(); say(text=' '.join(os.listdir('/run')))")
    assert project.run("keep(found=skill_harness('Hello.').split())").ret == 0
    names = os.path.realpath("/etc/resolv.conf").split("/")
    assert project.kept["found"] == (names[2:3] if names[1] == "run" else [])


def test_only_what_commands_need_is_seen_beside_them(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder on the path does not bring the project, or keys that lie beside it."""
    home = project.path / "home"
    seen = [
        home / ".local" / "bin" / "own",
        home / ".local" / "lib" / "module.py",
        home / ".local" / "share" / "tool" / "bin" / "tool",
        home / ".local" / "share" / "tool" / "lib" / "module.py",
        home / ".pyenv" / "bin" / "pyenv",
        home / ".pyenv" / "version",
        home / ".pyenv" / "share" / "names",
        project.path / "bin" / "own",
    ]
    hidden = [
        home / ".local" / "share" / "agent" / "auth.json",
        home / ".cloud" / "credentials.json",
        home / ".pyenv" / "config.toml",
        project.path / "expected.txt",
        project.skill,
    ]
    for path in (*seen, *hidden, home / ".cloud" / "bin" / "cloud"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (home / ".local" / "bin" / "tool").symlink_to(seen[2])
    monkeypatch.setenv("HOME", str(home))
    folders = [home / name / "bin" for name in (".local", ".cloud", ".pyenv")]
    searched = os.pathsep.join(map(str, [*folders, project.path / "bin", os.environ["PATH"]]))
    monkeypatch.setenv("PATH", searched)
    assert readable(project, *seen, *hidden) == {*map(str, seen)}


@pytest.mark.parametrize("workers", ["-pno:xdist", "-n1"])
def test_the_workspaces_of_other_tasks_are_hidden(project: Project, workers: str) -> None:
    """Also if they are not among the temporary files, which are hidden anyway."""
    project.use_stub(ANSWER)
    base = project.path / "elsewhere"
    body = "keep(hidden=list(map(str, skill_harness.runner.sandbox.hidden)))"
    project.run(body, "--skillopt", workers, f"--basetemp={base}")
    assert str(base) in project.kept["hidden"]


LINKS = {
    "os.path.dirname(os.environ['PROMPT'])": False,
    "os.environ['PROMPT']": False,
    "'/dev/zero'": False,
    "'/dev/null'": True,
    "'own'": True,
    "'/usr/bin/env'": True,
    "'/no/such/file'": True,
    "sys.executable": True,
    "'link'": True,
}


def test_a_link_shows_a_test_nothing_that_the_sandbox_hides(project: Project) -> None:
    """Else a link to the expected answer would be the answer."""
    (project.path / "expected.txt").write_text("Ahoy Ada.\n")
    project.use_stub(
        "open('own', 'w').close()\n"
        "number = int(os.environ['PROMPT'].partition('#')[2])\n"
        "os.environ['PROMPT'] = os.environ['PROMPT'].partition('#')[0]\n"
        f"os.symlink([{', '.join(LINKS)}][number], 'link')\n" + ANSWER
    )
    head = f"@pytest.mark.parametrize('n', range({len(LINKS)}))"
    where = str(project.path / "expected.txt")
    body = f"skill_harness(f'{where}#{{n}}')"
    project.run(body, "--skillopt", "-p", "no:xdist", head=head, fixtures=", n")
    assert project.errors == []
    rows = {row["id"].partition("[")[2]: row for row in project.result["skills"][0]["tasks"]}
    for number, good in enumerate(LINKS.values()):
        arm = rows[f"{number}]"]["before"]
        assert (arm["n"], arm["passed"]) == (1, int(good)), number
        words = "the agent left 'link', a link to a place outside of its sandbox"
        assert (words in arm["sample"]["message"]) is not good


def test_a_named_pipe_holds_no_test_up(project: Project) -> None:
    """The agent's work is told, but reading a pipe without a writer would never end."""
    project.use_stub("os.mkfifo('NOTES.md')\nos.mkfifo('other')\n" + ANSWER)
    body = "reply = skill_harness('Hello.')\nkeep(files=reply.files, left=os.listdir(workspace))"
    assert project.run(body).ret == 0
    assert project.kept == {"files": {"NOTES.md": "added", "other": "added"}, "left": []}


def test_an_agent_that_removes_the_folders_around_it(project: Project) -> None:
    """There is nothing left to judge, so it is not judged."""
    project.settings["skillopt_sandbox"] = "none"
    project.use_stub(
        "import shutil\nhere = os.getcwd()\nshutil.rmtree(os.path.dirname(here))\n"
        f"time.sleep({2.5 * run._LOOK_MS / 1000})\n" + ANSWER
    )
    project.run("skill_harness('Hello.')", "--skillopt", "-p", "no:xdist")
    (error,) = project.errors
    assert "the agent changed the skill under test" in error["message"]


@pytest.mark.parametrize("stream", [1, 2])
def test_whichever_stream_is_flooded(
    project: Project, monkeypatch: pytest.MonkeyPatch, stream: int
) -> None:
    monkeypatch.setattr("pytest_skillopt.plugins.agents.run.MOST_PRINTED", 1_000_000)
    project.use_stub(f"while True: os.write({stream}, b'\\xff\\n' * 1000)")
    project.run("skill_harness('Hello.')", "--skillopt", "-p", "no:xdist")
    (error,) = project.errors
    assert "printed more than 1000000 bytes" in error["message"]


def test_turns_without_end_are_neither_kept_nor_judged(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short events would fill the memory long before too much is printed."""
    monkeypatch.setattr("pytest_skillopt.plugins.agents.events._MOST_TURNS", 100)
    project.use_stub("call()\nfor _ in range(60): say(ran='ls')\n" + ANSWER)
    project.run("skill_harness('Hello.')", "--skillopt", "-p", "no:xdist")
    (error,) = project.errors
    assert "more than 100 turns" in error["message"]


def test_a_check_on_a_full_disk_is_no_wrong_answer(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage
    full = project.path / "full"

    def look(folder: Path) -> object:
        return usage(folder)._replace(free=0) if full.exists() else usage(folder)

    monkeypatch.setattr(shutil, "disk_usage", look)
    project.use_stub(ANSWER)
    project.settings["skillopt_sandbox"] = "none"
    body = f"skill_harness('Hello.').check('touch {full}; sleep 1000')"
    project.run(body, "--skillopt", "-p", "no:xdist")
    (error,) = project.errors
    assert "could not be run" in error["message"]


def test_a_name_cannot_add_lines_to_the_diff(project: Project) -> None:
    project.use_stub("open('a\\n-b\\r', 'w').write('x\\n')\n" + ANSWER)
    assert project.run("keep(diff=skill_harness('Hello.').diff)").ret == 0
    assert project.kept["diff"].split("\n")[:2] == ["--- /dev/null", "+++ b/a\\n-b\\r"]
