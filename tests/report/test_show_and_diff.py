from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest
from kept_runs import FOREIGN, OLD, PATCH, home, keep_foreign, keep_run
from patience import PATIENCE

from pytest_skillopt import cli

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["home"]


@pytest.mark.parametrize("wanted", [[], ["latest"]])
def test_show_prints_the_latest_run(
    home: Path, capsys: pytest.CaptureFixture[str], wanted: list[str]
) -> None:
    keep_run(home, "20260103-000000-cc", before=0.25)
    keep_run(home, "20260101-000000-aa")
    assert cli.main(["show", *wanted]) == 0
    out = capsys.readouterr().out
    assert "from 25.0 % to 75.0 %" in out
    assert out.endswith("pytest-skillopt show 20260103-000000-cc --verbose\n")


@pytest.mark.parametrize("field", ["role", "stage"])
def test_show_prints_no_command_and_no_escape_of_a_result_from_elsewhere(
    home: Path, capsys: pytest.CaptureFixture[str], field: str
) -> None:
    result = keep_run(home, "20260103-000000-cc") / "result.json"
    data = json.loads(result.read_text(encoding="utf-8"))
    data["usage"][0][field] = "\n::set-output name=a::b\n##[error]\x1b]8;;http://evil\x07x\u202e"
    data["skills"][0]["verdict"] = {"decision": "accepted", "e_value": "high"}
    counts = dict.fromkeys(("tasks", "fresh", "pairs"), 8)
    rates = {"before": 0.5, "after": 0.7, "low": 0.1, "high": 0.3}
    data["skills"][0]["gain"] = {**counts, **rates, "is_model": True}
    data["skills"][0]["edits"] = [{"op": "append", "content": "new", "chance": 1e308, "points": 1}]
    result.write_text(json.dumps(data), encoding="utf-8")
    assert cli.main(["show", "--verbose"]) == 0
    said = capsys.readouterr()
    assert "\n::set-output" not in said.out
    assert not [part for part in ("##[", "\x1b", "\u202e") if part in said.out]


def test_show_takes_the_start_of_an_id(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep_run(home, "20260103-000000-cc")
    keep_run(home, "20260101-000000-aa")
    assert cli.main(["show", "20260101"]) == 0
    assert "show 20260101-000000-aa" in capsys.readouterr().out


@pytest.mark.parametrize("wanted", ["2026", "1999", "../20260101-000000-aa", ""])
def test_errors_name_what_there_is(
    home: Path, capsys: pytest.CaptureFixture[str], wanted: str
) -> None:
    keep_run(home, "20260103-000000-cc")
    keep_run(home, "20260101-000000-aa")
    if wanted:
        assert cli.main(["show", wanted]) == cli.USAGE_ERROR
        error = capsys.readouterr().err
        assert "20260103-000000-cc" in error
        assert "20260101-000000-aa" in error
    else:
        assert cli.main(["show", wanted]) == 0


def test_no_run_at_all(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["show"], ["show", "--patch"], ["show", "--list"]):
        assert cli.main(words) == cli.USAGE_ERROR
        said = capsys.readouterr().err
        assert str(home / "runs") in said
        assert "--dir" in said


def test_the_home_is_found_from_a_folder_below(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_run(home, "20260103-000000-cc")
    below = home.parent / "tests" / "unit"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert cli.main(["show"]) == 0
    assert "20260103-000000-cc" in capsys.readouterr().out


def test_dir_names_another_home(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep_run(tmp_path / "elsewhere", "20260103-000000-cc")
    assert cli.main(["show", "--dir", str(tmp_path / "elsewhere")]) == 0
    assert "20260103-000000-cc" in capsys.readouterr().out


PROGRAM = "--- /dev/null\n+++ b/conftest.py\n@@ -0,0 +1 @@\n+import os\n"


def test_diff_is_that_of_the_stored_versions_not_what_the_result_says(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A result from elsewhere whose patch would write a program, if it were applied."""
    keep_run(home, "20260103-000000-cc", patch=PROGRAM)
    assert cli.main(["show", "--patch"]) == 0
    assert capsys.readouterr().out == PATCH


@pytest.mark.parametrize("path", ["conftest.py", "../SKILL.md", "/etc/motd.md", "a\x1bb.md"])
def test_diff_of_what_no_training_writes_is_refused(
    home: Path, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    keep_run(home, "20260103-000000-cc", path=path)
    assert cli.main(["show", "--patch"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "rename it" in captured.err or "documents" in captured.err or "outside" in captured.err


@pytest.mark.parametrize("content", [None, b"something else\n"])
def test_diff_without_a_stored_version_is_refused(
    home: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    run = keep_run(home, "20260103-000000-cc")
    for file in (run / "skills").iterdir():
        file.unlink() if content is None else file.write_bytes(content)
    assert cli.main(["show", "--patch"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert ".md: " in captured.err


def test_patch_that_a_ci_would_carry_out_is_not_printed(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = keep_run(home, "20260103-000000-cc", new=b"::set-output name=a::b\n##[error]\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert cli.main(["show", "--patch"]) == 4
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"it is {run / 'skill.patch'}" in captured.err


def test_diff_of_a_run_that_changed_nothing_says_why(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep_run(home, "20260103-000000-cc", new=OLD)
    assert cli.main(["show", "--patch"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "changed nothing" in captured.err


@pytest.mark.parametrize(("content", "said"), FOREIGN)
def test_files_that_are_no_results_are_named_and_skipped(
    home: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    content: bytes | None,
    said: str,
) -> None:
    keep_foreign(home, content)
    for words in (["show"], ["show", "--list"]):
        assert cli.main(words) == 0
        out = capsys.readouterr().out
        assert "20260103-000000-cc" in out
    assert ("left out: 20269999-foreign" in caplog.text) == (content is not None)
    assert f"skipped 20269999-foreign: {said}" in out.replace("result.json is ", "")
    for words in (["show"], ["show", "--patch"], ["adopt"]):
        assert cli.main([*words, "20269999-foreign"]) == cli.USAGE_ERROR
        assert said in capsys.readouterr().err.replace("result.json is ", "")


def test_another_schema_is_named(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = keep_run(home, "20260103-000000-cc") / "result.json"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("skillopt-result/1", "skillopt-result/9"), encoding="utf-8")
    assert cli.main(["show", "2026"]) == cli.USAGE_ERROR
    assert "schema 'skillopt-result/9'" in capsys.readouterr().err


def test_wrong_usage_has_the_exit_code_of_pytest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["show", "--no-such-option"])
    assert stop.value.code == pytest.ExitCode.USAGE_ERROR
    assert "--no-such-option" in capsys.readouterr().err


def test_a_reader_that_leaves_early_is_no_error(home: Path) -> None:
    keep_run(home, "20260103-000000-cc", new=b"line\n" * 50_000)
    code = "import sys; from pytest_skillopt.cli import main; sys.exit(main())"
    program = [sys.executable, "-c", code, "show", "--patch"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.wait(PATIENCE) == 0
        assert process.stderr.read() == b""


@pytest.mark.parametrize("what", ["--verbose", "--list", "--patch"])
def test_a_closed_output_is_no_error(home: Path, what: str) -> None:
    keep_run(home, "20260103-000000-cc")
    program = 'exec "$0" -m pytest_skillopt show "$1" >&-'
    command = ["sh", "-c", program, sys.executable, what]
    done = subprocess.run(command, stderr=subprocess.PIPE, check=False, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_ascii_terminal_is_no_error_and_needs_no_network_code(home: Path) -> None:
    keep_run(home, "20260103-000000-cc", new="Größe 汉\n".encode())
    code = (
        "import sys; from pytest_skillopt.cli import main; assert main(['show']) == 0;"
        "unwanted = {'openai', 'diskcache', 'xdist', 'pytest_skillopt.plugins.propose.commands'};"
        "loaded = unwanted & set(sys.modules);"
        "assert not loaded, loaded"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"+Gr\\xf6\\xdfe \\u6c49" in done.stdout


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    for command in ("show", "watch", "propose", "job", "schedule"):
        assert f"\n    {command}" in out


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"pytest-skillopt {version('pytest-skillopt')}\n"
