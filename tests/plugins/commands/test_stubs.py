"""Commands that a test answers itself, started as a test starts a program."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import warm_sessions
from patience import is_alive, wait_until
from tables import each_row

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

HEAD = """
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_skillopt.plugins.commands import PASS, REFUSE, SPY, Exit


def sh(commands, line, **how):
    options = {"shell": True, "text": True, "capture_output": True, "stdin": subprocess.DEVNULL}
    return subprocess.run(line, env=commands.env, **{**options, **how})


"""


def run(pytester: pytest.Pytester, body: str, *arguments: str, **outcome: int) -> pytest.RunResult:
    """Run one test with this body."""
    source = HEAD + "def test_it(skill_commands, tmp_path):\n"
    pytester.makepyfile(test_it=source + textwrap.indent(textwrap.dedent(body).strip(), "    "))
    done = pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)
    done.assert_outcomes(**(outcome or {"passed": 1}))
    return done


def test_answers_by_pattern_and_records(pytester: pytest.Pytester) -> None:
    run(
        pytester,
        r"""
        gh = skill_commands("gh", {
            "pr list": "#7 open\n",
            "pr list --state *": "none\n",
            "pr merge": Exit(1, "conflict\n", "merging\n"),
            "pr ?iew": lambda argv, stdin, cwd: f"{argv} {stdin!r} {cwd == tmp_path}",
            "api": lambda argv, stdin, cwd: None,
        })
        git = skill_commands("git", lambda argv, stdin, cwd: Exit(len(argv)))
        line = "gh pr list; gh pr list --state closed; gh pr merge 'a b'; echo $?"
        done = sh(skill_commands, line)
        assert done.stdout == "#7 open\nnone\nmerging\n1\n"
        assert done.stderr == "conflict\n"
        viewed = sh(skill_commands, "echo in | gh pr view 7", cwd=tmp_path)
        assert viewed.stdout == "['pr', 'view', '7'] 'in\\n' True"
        assert sh(skill_commands, "git a b c").returncode == 3
        refused = sh(skill_commands, "gh api x")
        assert (refused.returncode, refused.stdout) == (126, "")
        assert refused.stderr == "gh: refused, it cannot be used so here\n"
        assert sh(skill_commands, "gh").returncode == 126

        assert [str(call) for call in skill_commands.calls] == [
            "gh pr list", "gh pr list --state closed", "gh pr merge 'a b'", "gh pr view 7",
            "git a b c", "gh api x", "gh",
        ]
        merge = gh.calls[2]
        assert (merge.args, merge.code) == (("pr", "merge", "a b"), 1)
        assert (merge.out, merge.err, merge.refused) == ("merging\n", "conflict\n", False)
        assert (gh.calls[3].stdin, gh.calls[3].cwd) == ("in\n", str(tmp_path))
        assert [call.refused for call in gh.calls] == [False] * 4 + [True] * 2
        assert len(git.calls) == 1

        assert gh.called() and gh.called("pr", "merge") and gh.called("pr", "a b")
        assert gh.called("pr merge") and gh.called("--st*", "closed") and skill_commands.called("c")
        assert gh.never("merge", "pr") and git.never("pr") and not gh.never("api")
        assert not gh.never("pr list") and git.called("a", "c")
        """,
    )


def test_what_is_not_stubbed_passes_or_is_watched(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (real / "tool").write_text('#!/bin/sh\necho "real $* $(cat)"; echo oops >&2; exit 3\n')
    (real / "tool").chmod(0o755)
    monkeypatch.setenv("PATH", str(real), prepend=os.pathsep)
    run(
        pytester,
        r"""
        none = lambda argv, stdin, cwd: None
        tool = skill_commands("tool", {"": SPY, "raw": PASS, "push": REFUSE, "ask": none})
        gone = skill_commands("not-there-at-all", {"": SPY, "raw": PASS})
        watched = sh(skill_commands, "echo in | tool a")
        passed = sh(skill_commands, "echo in | tool raw")
        asked = sh(skill_commands, "echo in | tool ask")
        assert (watched.stdout, watched.stderr, watched.returncode) == ("real a in\n", "oops\n", 3)
        assert (passed.stdout, passed.stderr, passed.returncode) == ("real raw in\n", "oops\n", 3)
        assert asked.stdout == "real ask in\n"
        assert sh(skill_commands, "tool push").returncode == 126
        for way in ("", "raw"):
            missing = sh(skill_commands, f"not-there-at-all {way}")
            assert missing.stderr == "not-there-at-all: command not found\n"
            assert missing.returncode == 127
        told = [(str(c), c.code, c.stdin, c.out, c.err) for c in tool.calls]
        assert told == [
            ("tool a", 3, "in\n", "real a in\n", "oops\n"),
            ("tool raw", None, "", "", ""),
            ("tool ask", 3, "in\n", "real ask in\n", "oops\n"),
            ("tool push", 126, "", "", "tool: refused, it cannot be used so here\n"),
        ]
        assert [call.code for call in gone.calls] == [127, None]
        """,
    )


def test_bytes_and_large_texts_arrive(pytester: pytest.Pytester) -> None:
    run(
        pytester,
        r"""
        given = bytes(range(256)) * 2_000
        real = tmp_path / "tool"
        real.write_text("#!/bin/sh\nexec cat\n")
        real.chmod(0o755)
        os.environ["PATH"] += f":{tmp_path}"
        skill_commands("tool", {"": SPY, "long": "x" * 3_000_000})
        done = sh(skill_commands, "tool", stdin=None, input=given, text=False)
        assert done.stdout == given
        long = sh(skill_commands, "tool long")
        assert long.stdout == "x" * 3_000_000
        assert 0 < len(skill_commands.calls[1].out) < 200_000
        odd = sh(skill_commands, ["tool", b"\xff\n"], shell=False)
        assert odd.returncode == 0
        """,
    )


@each_row(
    ("body", "said"),
    [
        ('skill_commands("/usr/bin/gh", {})', "*ValueError: skill_commands('/usr/bin/gh'): name *"),
        ('skill_commands("gh", {"a \'": ""})', "*ValueError: skill_commands('gh'): \"a '\": *"),
        ('skill_commands("gh", {"a": 1})', "*TypeError: *the answer to 'a' is neither a text*"),
        ('skill_commands("gh", {"a": Exit(256)})', "*ValueError: *the exit code 256, not 0 to 255"),
    ],
)
def test_a_wrong_stub_is_refused(pytester: pytest.Pytester, body: str, said: str) -> None:
    run(pytester, body, failed=1).stdout.fnmatch_lines([f"E {said}"])


def test_a_command_by_its_path_is_not_the_stub(pytester: pytest.Pytester) -> None:
    """Under another path a stub is what a sandbox shows there: it refuses, by name."""
    run(
        pytester,
        r"""
        gh = skill_commands("gh", {"": "ok"})
        elsewhere = tmp_path / "gh"
        elsewhere.write_bytes((skill_commands.path / "gh").read_bytes())
        elsewhere.chmod(0o755)
        done = sh(skill_commands, f"{elsewhere} pr list")
        assert done.returncode == 126
        assert done.stderr == f"{elsewhere}: refused, call it by its name\n"
        assert sh(skill_commands, f"{skill_commands.path}/gh").stdout == "ok"
        assert [c.name for c in skill_commands.calls] == [str(elsewhere), "gh"]
        """,
    )


def test_a_failing_assertion_shows_the_calls(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        """
        gh = skill_commands("gh", {"pr": "ok"})
        sh(skill_commands, "gh pr list; gh push --force")
        assert gh.never("push", "--force")
        """,
        failed=1,
    )
    done.stdout.fnmatch_lines(["*<calls: gh pr list [[]0]; gh push --force [[]126]>*"])


@each_row("ask", ["", "gh.called()"])
def test_the_error_of_a_function_is_not_lost(pytester: pytest.Pytester, ask: str) -> None:
    body = f"""
        def answer(argv, stdin, cwd):
            {{}}
        gh = skill_commands("gh", answer)
        done = sh(skill_commands, "gh")
        assert (done.returncode, done.stderr) == (70, "gh: internal error\\n")
        {ask}
        """
    outcome = {"failed": 1} if ask else {"passed": 1}
    done = run(pytester, body.format("raise KeyError('x')"), **outcome, errors=1)
    done.stdout.fnmatch_lines(["E *ModelFault: *the function that answers 'gh' failed: KeyError*"])
    done = run(pytester, body.format("assert argv == ['push']"), **outcome, errors=1)
    done.stdout.fnmatch_lines(["E *AssertionError*"])
    done = run(pytester, body.format("return 5"), **outcome, errors=1)
    done.stdout.fnmatch_lines(["E *ModelFault: *5 is neither a text nor Exit*"])


def test_thirty_two_lanes_see_only_their_own(pytester: pytest.Pytester) -> None:
    """Each stub is answered only once 32 of them ask at the same time, in one process."""
    (pytester.path / "SKILL.md").write_text("---\nname: a\ndescription: A.\n---\n\nSay hello.\n")
    pytester.makepyfile(
        HEAD
        + textwrap.dedent("""
        import threading

        all_ask = threading.Barrier(32)

        @pytest.mark.skill_task
        @pytest.mark.parametrize("n", range(32))
        def test_it(skill, skill_commands, n):
            def answer(argv, stdin, cwd):
                all_ask.wait()
                return f"{n} {argv} {stdin}"

            gh = skill_commands("gh", answer)
            assert sh(skill_commands, f"echo {n} | gh {n}").stdout == f"{n} ['{n}'] {n}\\n"
            assert [call.args for call in gh.calls] == [(str(n),)]
        """)
    )
    lanes = ("--skillopt-rollouts=1", "-n1", "--skillopt-lanes=32")
    done = warm_sessions.run("--skillopt", *lanes, cwd=pytester.path)
    done.assert_outcomes(passed=32)


def test_a_pipe_between_two_stubs(pytester: pytest.Pytester) -> None:
    run(
        pytester,
        """
        skill_commands("a", {"": "one"})
        skill_commands("b", lambda argv, stdin, cwd: stdin.upper())
        assert sh(skill_commands, "a | b").stdout == "ONE"
        """,
    )


def test_the_tool_runs_only_stubbed_commands(pytester: pytest.Pytester) -> None:
    run(
        pytester,
        r"""
        from pytest_skillopt.model.tools import make_tool

        told = lambda argv, stdin, cwd: f"{argv} {stdin}"
        gh = skill_commands("gh", {"pr": told, "x": Exit(2, "no")})
        tool = make_tool(skill_commands.run)
        assert tool.name == "run" and tool.description.startswith("Run one command")
        assert tool.call('{"command": "gh pr \'a b\'", "stdin": "in"}', None) == "['pr', 'a b'] in"
        assert skill_commands.run("gh x") == "no\n[exit code 2]"
        assert skill_commands.run("gh pr 'a|b'") == "['pr', 'a|b'] "
        for line in ("gh pr | cat", "gh pr && rm x", "gh pr > x", "(gh pr)", "gh pr; gh pr"):
            assert skill_commands.run(line).startswith("Error: give one command")
        assert skill_commands.run(" ") == "Error: the command is empty"
        assert "closing quotation" in tool.call('{"command": "gh \'"}', None)
        skill_commands("echo", {"": SPY})
        skill_commands("not-there-at-all", {"": PASS})
        assert skill_commands.run("echo 'a  b'") == "a  b\n"
        assert skill_commands.calls[-1].out == "a  b\n"
        assert skill_commands.run("not-there-at-all").endswith("not found\n\n[exit code 127]")
        skill_commands("sh", {"": SPY})
        assert skill_commands.run("sh -c 'kill -9 $$'").endswith("[exit code 137]")
        for line in ("/usr/bin/env", "touch x"):
            assert skill_commands.run(line).endswith("[exit code 126]")
        assert [c.name for c in skill_commands.calls][-2:] == ["/usr/bin/env", "touch"]
        assert len(gh.calls) == 3
        """,
    )


def test_nothing_is_left_after_a_kill(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stub that waits for its answer ends with the test's process; the folder goes next time."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    body = """
        import threading
        asked = threading.Event()
        skill_commands("gh", lambda argv, stdin, cwd: threading.Event().wait())
        waiting = subprocess.Popen([skill_commands.path / "gh"])
        while not skill_commands.calls:
            asked.wait(0.01)
        print(waiting.pid, flush=True)
        waiting.wait()
        """
    source = HEAD + "def test_it(skill_commands, tmp_path):\n"
    pytester.makepyfile(test_it=source + textwrap.indent(textwrap.dedent(body).strip(), "    "))
    command = [sys.executable, "-m", "pytest", "-s", "-q", "-p", "no:cacheprovider"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as session:
        assert session.stdout is not None
        pid = next(int(found[0]) for line in session.stdout if (found := re.match(r"\d+", line)))
        os.kill(session.pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid))
    (left,) = tmp_path.glob("skillopt-commands-*")
    assert [path.name for path in left.iterdir() if path.is_socket()] == []
    os.utime(left, (0, 0))
    pytester.makepyfile(test_it="def test_it(skill_commands): skill_commands('gh')")
    warm_sessions.run("-p", "no:cacheprovider", cwd=pytester.path).assert_outcomes(passed=1)
    assert [*tmp_path.glob("skillopt-commands-*")] == []


def test_switched_off_there_is_no_such_fixture(pytester: pytest.Pytester) -> None:
    done = run(pytester, "pass", "-p", "no:skillopt-commands", errors=1)
    done.stdout.fnmatch_lines(["E *fixture 'skill_commands' not found"])
