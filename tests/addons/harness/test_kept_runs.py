"""Runs are kept whole: the second time nothing is started, and the workspace is the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

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


def test_the_second_run_is_free_and_the_same(kept: Project) -> None:
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


def test_what_goes_into_a_run_makes_another(kept: Project) -> None:
    assert run(kept) == 1
    assert run(kept, given="other\n") == 2
    kept.skill.write_text(kept.skill.read_text() + "\nMore.\n")
    assert run(kept) == 3
    (kept.skill.parent / "references").mkdir()
    (kept.skill.parent / "references" / "more.md").write_text("More.")
    assert run(kept) == 4
    kept.settings["skillopt_harness_env"] = "LANG"
    assert run(kept) == 5
    assert run(kept, *MODE[:3], "--skillopt-rollouts=2") == 6
    assert run(kept, *MODE[:3], "--skillopt-rollouts=2") == 6


def test_a_task_with_effects_elsewhere_is_never_kept(kept: Project) -> None:
    assert run(kept, options=", cache=False") == 1
    assert run(kept, options=", cache=False") == 2


def test_an_ordinary_run_keeps_nothing(kept: Project) -> None:
    assert run(kept, "-q") == 1
    assert run(kept, "-q") == 2
    assert not (kept.path / ".skillopt").exists()


def test_a_read_only_cache_starts_nothing(kept: Project) -> None:
    assert run(kept) == 1
    assert run(kept, *MODE, "--skillopt-cache=ro") == 1
    kept.skill.write_text(kept.skill.read_text() + "\nMore.\n")
    done = kept.run(
        TASK.format(given="", starts=kept.path / "starts", options=""), *MODE, "--skillopt-cache=ro"
    )
    assert done.ret == 1
    done.stdout.fnmatch_lines(["*--skillopt-cache=ro lets nothing leave the machine*"])


def test_a_refreshed_run_is_made_anew(kept: Project) -> None:
    assert run(kept) == 1
    assert run(kept, *MODE, "--skillopt-cache=refresh") == 2


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
