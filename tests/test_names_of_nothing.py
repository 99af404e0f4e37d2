"""An option that names something missing is an error before any call, and the error names it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from greetings import project
from kept_runs import keep_run
from tables import each_row

from pytest_skillopt.cli import main
from pytest_skillopt.run.directory import Home

if TYPE_CHECKING:
    from chat_server import ChatServer

__all__ = ["project"]

_RUNS = ("show", "show --patch", "show --list", "watch", "adopt", "export --format=skillopt")


@each_row(
    ("command", "said"),
    [
        *((f"{command} TYPO", "TYPO") for command in _RUNS),
        *((f"{command} --dir=TYPO", "TYPO/runs") for command in _RUNS),
        ("export --format=skillopt --output=SKILL.md", "SKILL.md: File exists; choose another"),
        ("adopt --search=TYPO", "invalid choice: 'TYPO' (choose from"),
        ("propose --dir=TYPO", "there is no TYPO: name the folder of a proposal"),
        ("propose --remote=TYPO", "no git remote named 'TYPO'"),
        ("init TYPO", "TYPO: name a SKILL.md or its folder"),
        ("init SKILL.md --from=TYPO", "TYPO"),
        ("init SKILL.md --yes --output=SKILL.md/test_it.py", "cannot be written (Not a directory)"),
        ("judge calibrate TYPO", "TYPO: No such file"),
        ("handoff TYPO", "there is no prompt 'TYPO'"),
        ("handoff --answer=TYPO", "--answer: name the KEY"),
        ("handoff known --answer=TYPO", "TYPO: No such file"),
    ],
)
def test_of_a_command(
    project: pytest.Pytester,
    chat_server: ChatServer,
    capsys: pytest.CaptureFixture[str],
    command: str,
    said: str,
) -> None:
    home = Home(project.path / ".skillopt")
    if not home.run_names():
        keep_run(home.path, "20260101-000000-aa")
        (home.path / "proposal").mkdir()
        (home.path / "handoff").mkdir()
        (home.path / "handoff" / "known.md").write_text("# reflect\n")
        project.run("git", "init", "--quiet")
    try:
        code = main(command.split())
    except SystemExit as ended:  # by argparse
        code = int(ended.code or 0)
    assert code == pytest.ExitCode.USAGE_ERROR
    assert said in capsys.readouterr().err
    assert chat_server.requests == []


@each_row(
    ("options", "said"),
    [
        ("--skillopt-train --skillopt-resume=TYPO", "there is no training 'TYPO'"),
        ("--skillopt-check=TYPO", "no git revision 'TYPO'"),
        ("--skillopt-compare none TYPO", "'TYPO' is neither a file nor"),
        ("--skillopt-try=TYPO", "there is no such file or folder"),
        ("--skillopt-try=", "there is no such file or folder"),
        ("--skillopt -oskillopt_skill=TYPO", "TYPO: no such file"),
        ("--skillopt -oskillopt_files=../TYPO.md", "TYPO.md: no such file"),
        ("--skillopt -oskillopt_harness=TYPO", "'TYPO' is not one of claude"),
        ("--skillopt-train -oskillopt_preferences=TYPO.md", "TYPO.md cannot be read: No such"),
        (
            "--skillopt-train -oskillopt_preferences=tests",
            "tests cannot be read: ",
        ),
        ("--skillopt-train -oskillopt_preferences=rules.txt", "rules.txt cannot be read: 'utf-8'"),
        ("--skillopt-train --skillopt-search=TYPO", "'TYPO' is not one of trials"),
        ("--skillopt-train -oskillopt_gate=TYPO", "'TYPO' is not one of sequential"),
        ("--skillopt-train -oskillopt_published=TYPO", "neither a mapping nor a file"),
    ],
)
def test_of_a_session(
    project: pytest.Pytester, chat_server: ChatServer, options: str, said: str
) -> None:
    (project.path / "tests").mkdir(exist_ok=True)
    (project.path / "rules.txt").write_bytes(b"\xff")
    project.run("git", "init", "--quiet")
    result = project.runpytest_inprocess(*options.split())
    assert result.ret == pytest.ExitCode.USAGE_ERROR, result.outlines
    assert said in " ".join(result.stderr.str().split())
    assert chat_server.requests == chat_server.probes == []
    assert not Home(project.path / ".skillopt").run_names()
