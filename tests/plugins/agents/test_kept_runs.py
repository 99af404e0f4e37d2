"""Runs are kept whole: the second time nothing is started, and the workspace is the same."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.model.cache import Replies
from pytest_skillopt.model.types import Completion

if TYPE_CHECKING:
    from harness_project import Project

MODE = ("--skillopt", "-p", "no:xdist", "--skillopt-rollouts=1")
AGENT = """
started = open(os.environ["PROMPT"].split()[-1], "a")
started.write("x")
call()
os.makedirs("new/deep")
open("new/deep/text.txt", "w").write("Grüße\\n")
open("new/binary", "wb").write(bytes(range(256)))
os.chmod("new/binary", 0o755)
os.symlink("deep/text.txt", "new/link")
open("given.txt", "a").write("more\\n")
os.remove("old.txt")
say(ran="ls " + os.getcwd(), result=os.getcwd() + "/new")
say(text="Done in " + os.getcwd())
"""
TASK = """
import stat
(workspace / "given.txt").write_text({given!r})
(workspace / "old.txt").write_text("old")
reply = skill_harness("Work. {starts}"{options})
new = workspace / "new"
keep(text=reply == f"Done in {{workspace}}",
     tool=reply.tool_calls[0].result == f"{{workspace}}/new",
     files=reply.files, diff=reply.diff, calls=reply.usage.calls, cached=reply.usage.cached,
     deep=(new / "deep/text.txt").read_text(), binary=(new / "binary").read_bytes().hex(),
     mode=stat.S_IMODE((new / "binary").stat().st_mode), link=os.readlink(new / "link"),
     given=(workspace / "given.txt").read_text(), old=(workspace / "old.txt").exists(),
     status=reply.exit_status, read=reply.skill_read)
"""


@pytest.fixture
def kept(project: Project) -> Project:
    """With an agent that leaves a mark, outside of its workspace, each time it is started."""
    project.use_stub(AGENT)
    project.settings["skillopt_sandbox"] = "none"
    return project


def run(project: Project, *arguments: str, given: str = "given\n", options: str = "") -> int:
    """Run the task; how often the agent has been started by now."""
    starts = project.path / "starts"
    body = TASK.format(given=given, starts=starts, options=options)
    assert project.run(body, *(arguments or MODE)).ret == 0
    return len(starts.read_text())


def test_the_second_run_is_free_and_the_same_until_something_changes(kept: Project) -> None:
    assert run(kept) == 1
    first = kept.kept
    assert first["files"] == {
        "given.txt": "changed",
        "new/binary": "added",
        "new/deep/text.txt": "added",
        "new/link": "added",
        "old.txt": "removed",
    }
    assert first["text"]
    assert first["tool"]
    assert (first["calls"], first["cached"]) == (1, 0)
    assert run(kept) == 1
    assert kept.kept == {**first, "calls": 0, "cached": 1}
    assert kept.provider.calls == 1
    assert run(kept, "--skillopt", "-n1", "--skillopt-rollouts=1") == 1
    assert run(kept, *MODE, "--skillopt-cache=refresh") == 2
    assert run(kept, given="other\n") == 3
    kept.skill.write_text(kept.skill.read_text() + "\nMore.\n")
    task = TASK.format(given="given\n", starts=kept.path / "starts", options="")
    done = kept.run(task, *MODE, "--skillopt-cache=ro")
    assert done.ret == 1
    said = " ".join(done.stdout.str().split())
    assert "--skillopt-cache=ro lets nothing leave the machine" in said
    assert run(kept) == 4
    assert run(kept, *MODE, "--skillopt-cache=ro") == 4
    (kept.skill.parent / "references").mkdir()
    (kept.skill.parent / "references" / "more.md").write_text("More.")
    assert run(kept) == 5
    kept.settings["skillopt_harness_env"] = "LANG"
    assert run(kept) == 6
    assert run(kept, *MODE[:3], "--skillopt-rollouts=2") == 7
    assert run(kept, *MODE[:3], "--skillopt-rollouts=2") == 7


def test_an_ordinary_run_and_a_task_with_effects_elsewhere_are_never_kept(kept: Project) -> None:
    assert run(kept, "-q") == 1
    assert run(kept, "-q") == 2
    assert not (kept.path / ".skillopt").exists()
    assert run(kept, options=", cache=False") == 3
    assert run(kept, options=", cache=False") == 4


def test_the_same_question_twice_is_two_runs(kept: Project) -> None:
    starts = kept.path / "starts"
    kept.use_stub("open(os.environ['PROMPT'].split()[-1], 'a').write('x')\ncall()\nsay(text='hi')")
    body = f"for _ in range(2): skill_harness('Work. {starts}')"
    for _ in range(2):
        assert kept.run(body, *MODE).ret == 0
        assert len(starts.read_text()) == 2


def test_errors_and_secrets_are_not_kept(kept: Project) -> None:
    starts = kept.path / "starts"
    mark = "open(os.environ['PROMPT'].split()[-1], 'a').write('x')\ncall()\n"
    kept.use_stub(
        mark + "if len(open(os.environ['PROMPT'].split()[-1]).read()) == 1: sys.exit(1)\n"
        "say(text='sk-' + 'proj-abcdefghij0123456789ABCDEFGHIJ')"
    )
    kept.settings["skillopt_max_attempts"] = 1
    body = f"skill_harness('Work. {starts}')"
    assert kept.run(body, *MODE).ret == 1
    assert kept.run(body, *MODE).ret == 0
    assert kept.run(body, *MODE).ret == 0
    assert len(starts.read_text()) == 3
    found = [path for path in (kept.path / ".skillopt").rglob("*") if path.is_file()]
    assert found
    assert not any(b"abcdefghij0123456789ABCDEFGHIJ" in path.read_bytes() for path in found)


SHAPES = """
open(os.environ["PROMPT"].split()[-1], "a").write("x")
call()
import shutil, subprocess
shutil.rmtree("folder"); open("folder", "w").write("now a file")
os.remove("file"); os.makedirs("file/below"); open("file/below/text", "w").write("x")
os.makedirs("empty/deep"); os.chmod("empty", 0o750)
os.rmdir("gone")
os.remove("link"); os.mkdir("link")
open(b"odd-\\xff\\n", "wb").write(b"\\xfe")
open("literal", "w").write("{skillopt-workspace}")
git = lambda *words: subprocess.run(["git", *words], check=True)
git("add", "-A"); git("commit", "-qm", "More")
say(text="{skillopt-workspace} " + os.getcwd())
"""
REPOSITORY = """
import subprocess
(workspace / "folder").mkdir()
(workspace / "folder" / "inner").write_text("x")
(workspace / "file").write_text("x")
(workspace / "gone").mkdir()
(workspace / "link").symlink_to("file")
def git(*words):
    return subprocess.check_output(["git", *words], cwd=workspace, text=True)
git("init", "-q"); git("config", "user.name", "a"); git("config", "user.email", "a@b")
git("add", "-A"); git("commit", "-qm", {first!r})
reply = skill_harness("Work. {starts}")
found = []
for path in sorted(workspace.rglob("*")):
    if ".git" not in path.parts:
        found.append([repr(os.fsencode(path.relative_to(workspace))), path.lstat().st_mode])
        found[-1] += [path.read_bytes().hex()] if path.is_file() else []
where = str(workspace)
found = [[str(part).replace(where.encode().hex(), "HERE") for part in row] for row in found]
keep(text=reply.replace(where, "HERE"), found=found,
     log=git("log", "--format=%H %s"), status=git("status", "-s"),
     files=[repr(name) for name in reply.files], calls=reply.usage.calls)
"""


@pytest.fixture
def repository(kept: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Whose commits have the same date in every run, as a test must see to."""
    for name in ("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"):
        monkeypatch.setenv(name, "2001-01-01T00:00:00Z")
    kept.settings["skillopt_harness_env"] = "GIT_AUTHOR_DATE, GIT_COMMITTER_DATE"
    kept.use_stub(SHAPES)
    kept.settings["skillopt_sandbox"] = "none"
    return kept


def work(project: Project, first: str = "First") -> dict[str, Any]:
    """Run the task in a repository; what it kept, with how often the agent has been started."""
    starts = project.path / "starts"
    assert project.run(REPOSITORY.format(first=first, starts=starts), *MODE).ret == 0
    return {**project.kept, "starts": len(starts.read_text())}


def test_commits_folders_and_odd_names_are_made_again(repository: Project) -> None:
    first = work(repository)
    assert [line.split()[1] for line in first["log"].splitlines()] == ["More", "First"]
    assert first["status"] == ""
    assert first["text"] == "{skillopt-workspace} HERE"
    assert work(repository) == {**first, "calls": 0}
    assert work(repository, "Another")["starts"] == 2, "another history is another run"


def test_a_secret_in_a_commit_is_not_kept(repository: Project) -> None:
    """Git compresses it, so that it cannot be seen in the bytes."""
    change = 'open("key", "w").write("sk-" + "proj-abcdefghij0123456789ABCDEFGHIJ")\n'
    git = 'git = lambda *words: subprocess.run(["git", *words], check=True)\n'
    more = change + 'git("add", "-A"); git("commit", "-qm", "x"); os.remove("key")\n'
    repository.use_stub(SHAPES.replace(git, git + more))
    assert work(repository)["starts"] == 1
    assert work(repository)["starts"] == 2


SPOILT: list[dict[str, Any] | None] = [
    {"../out": {"mode": 33188, "text": "x"}},
    {"/tmp/out": {"mode": 33188, "text": "x"}},
    {"given.txt/below": {"mode": 33188, "text": "x"}},
    {".agents/skills/house-greeting/SKILL.md": {"mode": 33188, "text": "x"}},
    {".agents": {"mode": 41471, "text": "/tmp"}},
    {"never": None},
    {"pipe": {"mode": 4516, "text": ""}},
    {"n" * 300: {"mode": 33188, "text": "x"}},
    {"given.txt": {"mode": "x"}},
    None,
]


def test_a_kept_run_that_cannot_be_made_again_is_a_miss(
    kept: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a cache from elsewhere holds: the agent is started, and nothing else has changed."""
    starts = kept.path / "starts"
    find = Replies.find
    one = "def keep(**what):\n"
    one += "    pathlib.Path(__file__).with_name(f'kept-{n}.json').write_text(json.dumps(what))\n"
    head = f"@pytest.mark.parametrize('n', range({len(SPOILT)}))"

    def work(*arguments: str) -> pytest.RunResult:
        body = one + TASK.format(given="given\n", starts=starts, options="")
        return kept.run(body, *MODE, *arguments, head=head, fixtures=", n")

    def found() -> list[str]:
        return [path.read_text() for path in sorted(kept.path.glob("kept-*.json"))]

    def spoilt(self: Replies, key: str, what: str = "") -> Completion | None:
        reply = find(self, key, what)
        if reply is None or not key.startswith("run-"):
            return reply
        whole = json.loads(reply.text)
        changes = SPOILT[int(re.findall(r"\[(\d+)\]", what)[0])]
        spoiled = {**whole, "changes": {"new": {"mode": 16877, "text": ""}, **(changes or {})}}
        return Completion(json.dumps(spoiled if changes else [whole]))

    assert work().ret == 0
    before = found()
    assert len(starts.read_text()) == len(before) == len(SPOILT)
    monkeypatch.setattr(Replies, "find", spoilt)
    done = work("--skillopt-cache=ro")
    assert done.ret == 1
    done.stdout.fnmatch_lines(["*this run is not cached, and --skillopt-cache=ro*"])
    assert work().ret == 0
    assert found() == before
    assert len(starts.read_text()) == 2 * len(SPOILT)


@pytest.mark.parametrize(("size", "started"), [(10_000, 1), (60_000, 2)])
def test_what_is_too_large_is_not_kept(
    project: Project, monkeypatch: pytest.MonkeyPatch, size: int, started: int
) -> None:
    """An answer and results of tools count like files: a cache is not for all that is printed."""
    monkeypatch.setattr("pytest_skillopt.plugins.agents.kept_runs.ROOM", 50_000)
    project.use_stub(f"call(); say(text='x' * {size})")
    body = "keep(size=len(skill_harness('Hello.')))"
    for number in range(2):
        assert project.run(body, *MODE).ret == 0
        assert project.kept == {"size": size}
        assert project.provider.calls == (1 if number == 0 else started)
