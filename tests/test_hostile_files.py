"""Files that are no text, too deep, too large, or never end: a sentence, never a traceback."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest
import warm_sessions
from refusals import assert_refused
from skill_project import run_git

from pytest_skillopt.cli import main
from pytest_skillopt.run.directory import Home, finish_writing, finished, mode_of
from pytest_skillopt.skill.trained import Trained

if TYPE_CHECKING:
    from pathlib import Path

    from chat_server import ChatServer

SKILL = "---\nname: s\ndescription: S.\n---\nBe kind.\n"
TASK = "import pytest\n\n@pytest.mark.skill_task\ndef test_it(skill): assert skill.text\n"
DEEP = "[" * 200_000


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    (pytester.path / "SKILL.md").write_text(SKILL)
    pytester.makepyfile(test_it=TASK)
    pytester.makeini("[pytest]\naddopts = -p no:xdist -p no:cacheprovider\n")
    return pytester


def test_a_path_that_would_steer_a_terminal_is_shown_in_plain_text(
    project: pytest.Pytester,
) -> None:
    name = "e\x1b[31m\u202ex/SKILL.md"
    project.makepyfile(test_it=TASK.replace("skill_task", f"skill_task(skill={name!r})"))
    printed = ""
    for _ in range(2):  # without the file, then with it
        for mode in (["--skillopt"], ["--skillopt-train", "--collect-only"]):
            found = warm_sessions.run(*mode, cwd=project.path)
            printed += found.stdout.str() + found.stderr.str()
        (project.path / name).parent.mkdir(exist_ok=True)
        (project.path / name).write_text(SKILL)
    assert printed.count("no such file") == 2
    assert printed.count("rename it; the run would be refused") == 1
    assert "\x1b" not in printed
    assert "\u202e" not in printed


def test_a_message_that_would_steer_a_terminal_or_a_ci_is_shown_in_plain_text(
    project: pytest.Pytester,
) -> None:
    steering = r"bad\x1b]0;title\x07\u202e\n::error::name"
    mark = "@pytest.mark.skill_task\n"
    failing = f'{mark}def test_failing(skill): assert not skill.text, "{steering}"\n'
    skipped = f'{mark}def test_skipped(skill): pytest.skip("{steering}")\n'
    project.makepyfile(test_it=f"import pytest\n\n{failing}\n{skipped}")
    result = warm_sessions.run("--skillopt", "-rs", cwd=project.path)
    printed = result.stdout.str() + result.stderr.str()
    assert printed.count("bad") >= 2
    assert "\x1b" not in printed
    assert "\u202e" not in printed
    assert not [line for line in printed.splitlines() if line.lstrip().startswith("::")]


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("pipe", "--skillopt-compare"),
        ("endless", "--skillopt-try"),
        ("large", "--skillopt-compare"),
        ("folder with a pipe", "--skillopt-try"),
    ],
)
def test_a_change_that_is_no_small_file_is_refused(
    project: pytest.Pytester, kind: str, mode: str
) -> None:
    path = project.path / "change.md"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "endless":
        path.symlink_to("/dev/zero")
    elif kind == "large":
        with path.open("wb") as file:
            file.truncate(50_000_000)
    else:
        path.mkdir()
        os.mkfifo(path / "SKILL.md")
    words = [f"{mode}=change.md"] if mode.endswith("try") else [mode, "SKILL.md", "change.md"]
    done = project.runpytest_inprocess(*words)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    said = done.stdout.str() + done.stderr.str()
    assert "Traceback" not in said
    assert "change.md" in said


@pytest.mark.parametrize("kind", ["pipe", "endless", "folder", "bytes"])
def test_preferences_that_are_no_text_are_refused(
    project: pytest.Pytester, chat_server: ChatServer, api_key: str, kind: str
) -> None:
    path = project.path / "rules.md"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "endless":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"\xff\xfe")
    models = [f"--skillopt-model=openai:m@{chat_server.url}", "-oskillopt_preferences=rules.md"]
    assert_refused(
        project.runpytest_inprocess("--skillopt-train", *models),
        "*skillopt_preferences: *rules.md cannot be read*",
    )
    assert chat_server.calls == 0


def test_published_settings_that_are_too_deep_are_refused(project: pytest.Pytester) -> None:
    (project.path / "config.yaml").write_text(DEEP)
    assert_refused(
        project.runpytest_inprocess("--skillopt", "-oskillopt_published=config.yaml"),
        "*skillopt_published: *config.yaml*",
    )


def test_a_skill_with_the_conflict_of_a_merge_is_refused_before_any_call(
    project: pytest.Pytester, chat_server: ChatServer, api_key: str
) -> None:
    git = partial(run_git, project.path)
    skill = project.path / "SKILL.md"
    git("init", "--quiet", "--initial-branch=main")
    for word, then in (("kind", "-b other"), ("brief", "main"), ("calm", "main")):
        skill.write_text(SKILL.replace("kind", word))
        git("add", "SKILL.md")
        git("commit", "--quiet", "--message", word)
        git("checkout", "--quiet", *then.split())
    with pytest.raises(subprocess.CalledProcessError):
        git("merge", "--quiet", "other")
    model = f"--skillopt-model=openai:m@{chat_server.url}"
    for mode in ("--skillopt", "--skillopt-train", "--skillopt-check=HEAD", "--skillopt-aa"):
        done = project.runpytest_inprocess(mode, model)
        assert_refused(done, "*SKILL.md: not merged: line 5 begins a conflict; choose a side*")
    skill.rename(project.path / "theirs.md")
    skill.write_text(SKILL)
    done = project.runpytest_inprocess("--skillopt-try=theirs.md", model)
    assert_refused(done, "*not merged: line 5 begins a conflict*")
    assert chat_server.requests == chat_server.probes == []


@pytest.mark.parametrize("kind", ["gone", "pipe"])
def test_a_skill_that_goes_between_collection_and_opening(
    project: pytest.Pytester, kind: str
) -> None:
    change = "os.remove('SKILL.md')" + ("; os.mkfifo('SKILL.md')" if kind == "pipe" else "")
    project.makeconftest(f"import os\ndef pytest_collection_finish(session):\n    {change}\n")
    done = project.runpytest_inprocess("--skillopt")
    said = done.stdout.str() + done.stderr.str()
    assert done.ret == pytest.ExitCode.USAGE_ERROR, said
    assert "SKILL.md" in said
    assert "INTERNALERROR" not in said


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("$HOME/runs", "*a path with a $*Set skillopt_dir*"),
        ("long/" * 120, "*a path that is not long*"),
    ],
)
def test_a_folder_that_the_store_of_replies_cannot_use_is_refused(
    project: pytest.Pytester, chat_server: ChatServer, api_key: str, place: str, words: str
) -> None:
    model = f"--skillopt-model=openai:m@{chat_server.url}"
    done = project.runpytest_inprocess("--skillopt", model, f"-oskillopt_dir={place}")
    assert_refused(done, words)
    assert chat_server.calls == 0
    assert not (project.path / os.environ["HOME"].strip("/")).exists()


@pytest.fixture
def home(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an accepted comparison, in the current folder."""
    (project.path / "better.md").write_text(SKILL.replace("kind", "very kind"))
    project.makepyfile(
        test_it="import pytest\n\n@pytest.mark.skill_task\n"
        "@pytest.mark.parametrize('n', range(8))\n"
        "def test_it(skill, n): assert 'very' in skill.text\n"
    )
    done = project.runpytest_inprocess("--skillopt-compare", "SKILL.md", "better.md")
    assert done.ret == 0
    monkeypatch.chdir(project.path)
    return project.path / ".skillopt"


def test_a_version_of_a_run_whose_file_was_changed_is_not_compared(
    project: pytest.Pytester, home: Path
) -> None:
    for stored in home.glob("runs/*/skills/*.md"):
        stored.write_text("Do something else.\n")
        done = project.runpytest_inprocess("--skillopt-compare", "none", stored.stem[:12])
        assert_refused(done, "*--skillopt-compare: *does not have this SHA-256*")


def failed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(words) != 0
    said = capsys.readouterr().err
    assert said.startswith("pytest-skillopt: error: ")
    return said


def test_adopt_refuses_what_a_comparison_accepted(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "has the mode compare, which changes no skill: name a" in failed(capsys, "adopt")
    assert "very" not in (home.parent / "SKILL.md").read_text()


def test_a_skill_that_is_a_link_to_itself_is_named(
    project: pytest.Pytester, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    skill = home.parent / "SKILL.md"
    skill.unlink()
    skill.symlink_to(skill.name)
    for mode in ("--skillopt", "--skillopt-aa"):
        assert_refused(project.runpytest_inprocess(mode), "*SKILL.md*")
    assert f"there is no skill at {skill}" in failed(capsys, "init", "SKILL.md")
    assert main(["show", "--patch"]) == 0
    assert "--- a/SKILL.md" in capsys.readouterr().out


def test_adopt_names_what_stands_where_its_receipt_belongs(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run,) = (home / "runs").iterdir()
    receipts = home / "adopted"
    receipts.write_text("a file")
    assert f"{receipts} is not a folder" in failed(capsys, "adopt")
    assert f"{receipts} is not a folder" in failed(capsys, "adopt", "--undo")
    receipts.unlink()
    receipt = receipts / f"{run.name}.json"
    receipt.mkdir(parents=True)
    assert f"{receipt} is not a file" in failed(capsys, "adopt")
    assert "very" not in (home.parent / "SKILL.md").read_text(), "nothing was written before"
    receipt.rmdir()
    for damaged in (DEEP, "{", "[]", "\xff", " " * 2_000_000):
        receipt.write_bytes(damaged.encode("latin-1"))
        assert "receipt" in failed(capsys, "adopt", "--undo") or str(receipt) in failed(
            capsys, "adopt", "--undo"
        )


@pytest.mark.parametrize("source", ["-", "file", "pipe"])
@pytest.mark.parametrize("data", [b"caf\xe9", b"a" * 5_000_000, b""])
def test_an_answer_is_a_text_of_some_length(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    source: str,
    data: bytes,
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / ".skillopt" / "handoff"
    folder.mkdir(parents=True)
    (folder / "abc.md").write_text("# Prompt\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
    path = tmp_path / "answer.md"
    if source == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(data)
    answer = "-" if source == "-" else "answer.md"
    failed(capsys, "handoff", "abc", "--answer", answer)
    assert [file.name for file in folder.iterdir()] == ["abc.md"]


def test_a_journal_or_note_that_is_too_deep_stops_nothing(home: Path) -> None:
    """They may come from an untrusted cache."""
    (run,) = (home / "runs").iterdir()
    (run / "journal.jsonl").write_text(DEEP + "\n")
    (home / "writing-0123456789abcdef.json").write_text(DEEP)
    copied = home / "runs" / "20260101-000000-0000"
    shutil.copytree(run, copied)
    (copied / "result.json").write_text(DEEP)
    assert (mode_of(run), finished(copied)) == ("", "")
    notes = list(finish_writing(home.parent, Home(home), ["SKILL.md"], Trained()))
    assert "stays half written" in notes[0]
    assert json.loads((run / "result.json").read_text())["mode"] == "compare"
