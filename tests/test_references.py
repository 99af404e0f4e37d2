"""A skill that is more than its SKILL.md: files beside it are read, trained, written, proposed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import warm_sessions
from chat_server import Answer, asked_in
from patience import PATIENCE
from run_files import latest_result
from sessions import clean_environment

from pytest_skillopt import cli
from pytest_skillopt.run.directory import Home, finish_writing, write_skill
from pytest_skillopt.skill.text import SkillError, Text
from pytest_skillopt.skill.trained import Trained
from pytest_skillopt.skill.version import Version
from pytest_skillopt.skill.write import write_version

if TYPE_CHECKING:
    from chat_server import Body, ChatServer

PAGE = (Path(__file__).parent.parent / "docs" / "more-to-train.md").read_text(encoding="utf-8")
SKILL, STYLE = re.findall(r"^```text\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
TESTS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[1].replace(
    ', "Ida", "Jo", "Kim", "Lea"', ""
)
RULE = "End every greeting with an exclamation mark."
NAMED = "Call every guest by name."


class Project:
    """A skill with a folder of its own; its target reads the reference before it answers."""

    def __init__(self, pytester: pytest.Pytester, server: ChatServer) -> None:
        self._pytester = pytester
        self.server = server
        self.edit: dict[str, str] = {"op": "append", "file": "references/style.md", "content": RULE}
        self.more: list[dict[str, str]] = []
        server.reply = self._reply
        self.folder = pytester.path / "skills" / "greeting"
        self.write("SKILL.md", SKILL)
        self.write("references/style.md", STYLE)
        (pytester.path / "test_greeting.py").write_text(TESTS)
        self.configure()

    def configure(self, **settings: str) -> None:
        lines = {
            "target": "openai:worker",
            "optimizer": "openai:thinker",
            "base_url": self.server.url,
            "rollouts": "1",
            "final_rollouts": "1",
            "max_rollouts": "60",
            **settings,
        }
        ini = "\n".join(f"skillopt_{name} = {value}" for name, value in lines.items())
        (self._pytester.path / "pytest.ini").write_text(f"[pytest]\n{ini}\n")

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def read(self, name: str) -> str:
        return (self.folder / name).read_text()

    def train(self, *arguments: str) -> pytest.RunResult:
        return self._pytester.runpytest_inprocess("--skillopt-train", *arguments)

    def check(self) -> pytest.RunResult:
        return self._pytester.runpytest_inprocess("--skillopt-check=HEAD")

    @property
    def result(self) -> dict[str, Any]:
        return latest_result(self._pytester.path)

    def _reply(self, body: Body) -> str | Answer:
        if body["model"] == "thinker":
            return json.dumps(
                {"reasoning": "every reply lacks it", "edits": [self.edit, *self.more]}
            )
        messages = body["messages"]
        if messages[-1]["role"] == "user" and body.get("tools"):
            name = "closing" if "references/closing.md" in str(messages[0]) else "style"
            return Answer.tool("read_skill_file", path=f"references/{name}.md")
        told = "".join(str(m["content"]) for m in messages if m["role"] in ("system", "tool"))
        wanted = [r for r in (RULE, NAMED) if r in told or (r == NAMED and not self.more)]
        return f"Hello{' Ada' if NAMED in wanted else ''}{'!' if RULE in wanted else '.'}"


@pytest.fixture
def project(pytester: pytest.Pytester, chat_server: ChatServer, api_key: str) -> Project:
    return Project(pytester, chat_server)


def test_both_sides_of_a_check_have_their_references(project: Project) -> None:
    """The older skill is measured with the files that it had, and so is the newer."""
    project.write("references/style.md", f"{STYLE}\n{RULE}\n")
    for arguments in (["init", "-q"], ["add", "skills"], ["commit", "-qm", "start"]):
        subprocess.run(["git", *arguments], check=True, stdin=subprocess.DEVNULL)
    project.write("SKILL.md", f"{SKILL}\nBe brief.\n")
    project.check()
    (skill,) = project.result["skills"]
    assert {row["before"]["passed"] / row["before"]["n"] for row in skill["tasks"]} == {1.0}
    assert {row["after"]["passed"] / row["after"]["n"] for row in skill["tasks"]} == {1.0}
    project.write("references/style.md", STYLE)
    assert project.check().ret == 1
    (skill,) = project.result["skills"]
    assert {row["before"]["passed"] / row["before"]["n"] for row in skill["tasks"]} == {1.0}
    assert {row["after"]["passed"] for row in skill["tasks"]} == {0}


def accepted(skill: dict[str, Any]) -> list[dict[str, Any]]:
    return [edit for edit in skill["edits"] if edit["status"] == "accepted"]


def test_a_reference_is_trained_and_the_skill_file_stays(project: Project) -> None:
    result = project.train()
    assert result.ret == 0
    assert project.read("SKILL.md") == SKILL
    assert project.read("references/style.md") == f"{STYLE}\n{RULE}\n"
    (skill,) = project.result["skills"]
    assert skill["written"]
    assert "+++ b/skills/greeting/references/style.md" in skill["patch"]
    assert [edit["file"] for edit in accepted(skill)] == ["references/style.md"]
    result.stdout.fnmatch_lines(["*@@ references/style.md", f"+{RULE}*"])
    assert not list(project.folder.parent.parent.glob(".skillopt/writing-*"))


def test_a_file_that_the_skill_links_to_can_be_begun(project: Project) -> None:
    (project.folder / "references/style.md").unlink()
    project.write("references/other.md", "Nothing of use.\n")
    assert project.train().ret == 0
    assert project.read("references/style.md") == f"{RULE}\n"
    assert "new file mode 100644" in project.result["skills"][0]["patch"]


MEMORY = "../../AGENTS.md"


@pytest.fixture
def remembering(two_files: Project) -> Project:
    """Its rule belongs into the document of the whole project, its other one into the skill."""
    two_files.edit = {"op": "append", "file": MEMORY, "content": RULE}
    two_files.more = [{"op": "append", "file": "SKILL.md", "content": NAMED}]
    (two_files.folder.parent.parent / "AGENTS.md").write_text("# House\n\nBe kind.\n")
    two_files.configure(files=f"references/*.md, {MEMORY}")
    return two_files


def test_a_memory_document_is_trained_with_the_skill_and_taken_back(
    remembering: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert remembering.train().ret == 0
    document = remembering.folder.parent.parent / "AGENTS.md"
    assert document.read_text() == f"# House\n\nBe kind.\n\n{RULE}\n"
    assert remembering.read("SKILL.md") == f"{SKILL}\n{NAMED}\n"
    (skill,) = remembering.result["skills"]
    assert skill["written"]
    assert "+++ b/AGENTS.md\n" in skill["patch"]
    made = {edit["file"]: edit["content"] for edit in accepted(skill)}
    assert made == {MEMORY: RULE, "SKILL.md": NAMED}
    (summary,) = remembering.folder.parent.parent.glob(".skillopt/runs/*/summary.md")
    assert f"in {MEMORY}: `{RULE}`" in summary.read_text()
    told = [str(m["content"]) for m in remembering.server.bodies[-1]["messages"]]
    assert told[0].startswith("# House\n\nBe kind.")
    (report,) = remembering.folder.parent.parent.glob(".skillopt/runs/*/report.html")
    assert f"in {MEMORY}: <code>" in report.read_text()
    monkeypatch.chdir(document.parent)
    assert cli.main(["adopt", "--undo"]) == 0
    assert document.read_text() == "# House\n\nBe kind.\n"
    assert remembering.read("SKILL.md") == SKILL


def test_tests_are_handed_the_memory_document(remembering: Project) -> None:
    """The same in an ordinary run and in a rollout; without any skill there is none either."""
    (remembering.folder.parent.parent / "test_greeting.py").write_text(
        "import pytest\n"
        "@pytest.mark.skill_task\n"
        "@pytest.mark.parametrize('n', range(6))\n"
        "def test_memory(skill, n):\n"
        "    assert skill.memory == '# House\\n\\nBe kind.\\n'\n"
        f"    assert set(skill.files) == {{'references/style.md', {MEMORY!r}}}\n"
    )
    remembering._pytester.runpytest_inprocess().assert_outcomes(passed=6)
    skill = remembering.folder / "SKILL.md"
    remembering._pytester.runpytest_inprocess("--skillopt-compare", "none", str(skill))
    (row, *_) = remembering.result["skills"][0]["tasks"]
    assert row["before"]["passed"] == 0
    assert row["after"]["passed"] == row["after"]["n"] > 0


def test_what_cannot_be_trained_is_named_with_the_way_out(remembering: Project) -> None:
    """A program is none either: tests that pass say nothing of a script that does not parse."""
    refused = {
        "../../MEMORY.md": "MEMORY.md: no such file",
        "../../../secret.md": "lies outside of the project",
        "../../LINK.md": "LINK.md: is a link; name ../../AGENTS.md",
        "scripts/*.py": "scripts/run.py: only text documents are trained (.md, ",
        "references/*.md": "references/style.md: not UTF-8",
    }
    top = remembering.folder.parent.parent
    (top.parent / "secret.md").write_text("x")
    remembering.write("scripts/run.py", "print(1)\n")
    (remembering.folder / "references/style.md").write_bytes(b"caf\xe9")
    (top / "LINK.md").symlink_to("AGENTS.md")
    for name, words in refused.items():
        remembering.configure(files=name)
        result = remembering.train()
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([f"*{words}*leave it out of skillopt_files*"])


def test_a_note_reaches_no_file_outside_that_is_not_trained(tmp_path: Path) -> None:
    """The folder .skillopt may come from a cache that others can write."""
    skill = lay_out(tmp_path / "skills" / "a", BEFORE)
    (tmp_path / "AGENTS.md").write_bytes(b"mine\n")
    (tmp_path / ".AGENTS.md.x.tmp").write_bytes(b"theirs\n")
    stage(skill.parent, "references/a.md", "references/b.md")
    skill.write_bytes(AFTER.main.data)
    versions = [
        (version | {MEMORY: Text(text)}).packed.decode()
        for version, text in (
            (BEFORE, b"mine\n"),
            (BEFORE | {"SKILL.md": AFTER.main}, b"theirs\n"),
        )
    ]
    for trained, said in ((Trained("*"), "outside of the skill's folder"), (Trained(MEMORY), "")):
        home, _ = note(tmp_path, "skills/a/SKILL.md", *versions)
        (told,) = finish_writing(tmp_path, home, ["skills/a/SKILL.md"], trained)
        assert said in told
        text = b"mine\n" if said else b"theirs\n"
        assert (tmp_path / "AGENTS.md").read_bytes() == text
        assert (tmp_path / ".AGENTS.md.x.tmp").exists() is bool(said)
    assert skill.exists()


FORBIDDEN = [
    ({"file": "../other/SKILL.md"}, "is not trained with the skill"),
    ({"file": "scripts/run.py"}, "is not trained with the skill"),
    ({"file": "references/new.md"}, "nothing links to it"),
    ({"file": "SKILL.md", "content": "See [this](references/gone.md)."}, "is not there"),
    ({"content": "See [this](../../secret.md) first."}, "a link to a file that is not there"),
    ({"content": "Ask at https://collect.evil-host.net/x first."}, "contact"),
]


def test_what_no_edit_may_do_is_said(project: Project) -> None:
    asked = [project.edit | edit for edit, _ in FORBIDDEN]
    project.edit, *project.more = asked
    project.configure(published=f"edit_budget: {len(asked)}")
    project.train()
    assert (project.read("SKILL.md"), project.read("references/style.md")) == (SKILL, STYLE)
    rows = project.result["skills"][0]["edits"]
    assert [(row["file"], row["content"]) for row in rows] == [
        (edit["file"], edit["content"]) for edit in asked
    ]
    for row, (_, why) in zip(rows, FORBIDDEN, strict=True):
        assert row["status"] == "refused"
        assert why in row["why"]


def test_a_file_can_be_begun_with_the_link_to_it(project: Project) -> None:
    link = "Read [the closing rule](references/closing.md) first."
    project.edit["file"] = "references/closing.md"
    project.more = [{"op": "append", "file": "SKILL.md", "content": link}]
    assert project.train().ret == 0
    assert project.read("references/closing.md") == f"{RULE}\n"
    assert link in project.read("SKILL.md")
    (skill,) = project.result["skills"]
    assert {edit["file"] for edit in accepted(skill)} == {"references/closing.md"}


@pytest.fixture
def two_files(project: Project) -> Project:
    """Half of the tasks need an edit of the SKILL.md, the others one of its reference."""
    project.more = [{"op": "append", "file": "SKILL.md", "content": NAMED}]
    wanted = 'wanted = "!" if name < "Eve" else " Ada"\n    assert wanted in reply, wanted'
    tests = TESTS.replace('assert reply.endswith("!"), f"no exclamation mark: {reply}"', wanted)
    (project.folder.parent.parent / "test_greeting.py").write_text(tests)
    return project


MEANWHILE = """
import os, pathlib, signal
skill = pathlib.Path("skills/greeting").resolve()
replace, left = pathlib.Path.replace, [int(os.environ.get("LEFT", 0))]

def pytest_skillopt_step(config, step):
    {}

def killed(self, target):
    if skill in pathlib.Path(target).parents:
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
    return replace(self, target)

if "LEFT" in os.environ:
    pathlib.Path.replace = killed
"""


@pytest.mark.parametrize(
    "meanwhile",
    [
        '(skill / "references/style.md").write_text("By hand.")',
        '(skill / "references/style.md").unlink(missing_ok=True)',
    ],
)
def test_the_files_of_a_version_are_written_together_or_not_at_all(
    two_files: Project, meanwhile: str
) -> None:
    (two_files.folder.parent.parent / "conftest.py").write_text(MEANWHILE.format(meanwhile))
    two_files.train("-p", "no:xdist")
    (skill,) = two_files.result["skills"]
    assert (skill["status"], skill["written"]) == ("accepted", False)
    found = "".join(path.read_text() for path in two_files.folder.rglob("*.md"))
    assert not [rule for rule in (RULE, NAMED) if rule in found]
    assert " was changed during the run" in skill["unwritten"]


def test_a_file_that_was_not_edited_may_not_have_changed_either(project: Project) -> None:
    """The measured version is the one with all its files."""
    by_hand = '(skill / "SKILL.md").write_text("By hand.")'
    (project.folder.parent.parent / "conftest.py").write_text(MEANWHILE.format(by_hand))
    project.train("-p", "no:xdist")
    assert not project.result["skills"][0]["written"]
    assert project.read("references/style.md") == STYLE


def test_a_run_killed_while_it_writes_two_files_is_finished_by_the_next(
    two_files: Project,
) -> None:
    top = two_files.folder.parent.parent
    (top / "conftest.py").write_text(MEANWHILE.format("pass"))
    environment = clean_environment(OPENAI_API_KEY="sk-test-0123456789", LEFT="1")
    done = warm_sessions.start("--skillopt-train", "-p", "no:xdist", cwd=top, env=environment)
    said, _ = done.communicate(PATIENCE)
    assert done.returncode == -signal.SIGKILL, said
    assert RULE not in two_files.read("references/style.md") or NAMED not in two_files.read(
        "SKILL.md"
    )
    two_files.train("-p", "no:xdist", "--skillopt-resume=latest")
    assert two_files.result["status"] == "accepted"
    assert RULE in two_files.read("references/style.md")
    assert NAMED in two_files.read("SKILL.md")
    assert not list(top.glob(".skillopt/writing-*"))


def test_files_that_the_setting_does_not_name_are_read_and_never_trained(project: Project) -> None:
    project.configure(files="none")
    project.edit["file"] = "SKILL.md"
    project.train()
    assert RULE in project.read("SKILL.md")
    prompts = [b for b in project.server.bodies if b["model"] == "thinker"]
    assert not any("# The file" in str(body["messages"]) for body in prompts)


def test_no_version_writes_a_program(project: Project) -> None:
    """A version may come from an untrusted cache."""
    script = project.write("run.py", "print(1)\n")
    before = Version.from_bytes(SKILL.encode()) | {"run.py": Text(b"print(1)\n")}
    after = before | {"run.py": Text(b"print(2)\n")}
    with pytest.raises(SkillError, match=r"run\.py: only text documents"):
        write_version(project.folder, "SKILL.md", before, after, Trained())
    assert script.read_text() == "print(1)\n"
    with pytest.raises(SkillError, match="only text documents"):
        Trained("scripts/*.py").check("scripts/new.py")


def test_the_reading_tool_leaves_the_project_by_no_way(
    project: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    paths = ["../../test_greeting.py", "/etc/hostname", "references/link.md", "tests/test_x.py"]
    secret = tmp_path_factory.mktemp("outside") / "secret.txt"
    secret.write_text("the secret")
    (project.folder / "references/link.md").symlink_to(secret)
    project.write("tests/test_x.py", "SECRET = 1")
    seen: list[str] = []

    def reply(body: Body) -> str | Answer:
        if body["messages"][-1]["role"] == "tool":
            seen.append(asked_in(body))
        if len(seen) == len(paths):
            return "Hello!"
        return Answer.tool("read_skill_file", path=paths[len(seen)])

    project.server.reply = reply
    assert project._pytester.runpytest_inprocess("-k", "Ada").ret == 0
    assert seen == [
        f"Error: the skill has no file {path!r}; it has references/style.md" for path in paths
    ]


def test_a_linked_file_is_trained_in_its_place(project: Project) -> None:
    """It lies elsewhere in the project, and stays a link."""
    style = project.folder / "references/style.md"
    shared = project.folder.parents[1] / "shared.md"
    style.rename(shared)
    style.symlink_to(os.path.relpath(shared, style.parent))
    before = shared.read_text()
    result = project.train()
    assert result.ret == 0, result.stdout.str()
    assert style.is_symlink()
    assert shared.read_text() != before
    assert "exclamation" in shared.read_text()
    patch = project.result["skills"][0]["patch"]
    shared.write_text(before)
    done = subprocess.run(
        ["git", "apply", "-"], input=patch.encode(), cwd=shared.parent, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    assert "exclamation" in shared.read_text()
    assert style.is_symlink()


BEFORE = Version.from_bytes(b"old skill\n") | {"references/a.md": Text(b"old a\n")}
AFTER = Version.from_bytes(b"new skill\n") | {
    "references/a.md": Text(b"new a\n"),
    "references/b.md": Text(b"b\n"),
}


def lay_out(folder: Path, version: Version) -> Path:
    for name in version:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(version[name].data)
    return folder / "SKILL.md"


def stage(folder: Path, *names: str) -> None:
    """Leave the new text of files beside them, as a run does that is killed."""
    for name in names:
        file = folder / name
        file.with_name(f".{file.name}.x.tmp").write_bytes(AFTER[name].data)


def note(root: Path, skill: str, before: str, after: str) -> tuple[Home, Path]:
    """Leave the note of a run that was killed while it wrote; return its place, too."""
    home = Home(root / ".skillopt")
    home.path.mkdir(exist_ok=True)
    left = home.path / "writing-1.json"
    left.write_text(json.dumps([skill, before, after]))
    return home, left


def on_disk(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("moves", [0, 1, 2, 3])
def test_what_a_kill_left_half_written_is_finished_by_the_next_run(
    tmp_path: Path, moves: int, monkeypatch: pytest.MonkeyPatch
) -> None:

    skill = lay_out(tmp_path / "skills", BEFORE)
    home = Home(tmp_path / ".skillopt")
    home.path.mkdir()
    replace = Path.replace
    done: list[Path] = []

    def killed(self: Path, target: Path) -> Path:
        if "skills" in str(target):
            if len(done) == moves:
                raise KeyboardInterrupt
            done.append(target)
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        patch.setattr(Path, "unlink", lambda self, missing_ok=False: None)
        if moves < 3:
            with pytest.raises(KeyboardInterrupt):
                write_skill(tmp_path, home, "skills/SKILL.md", BEFORE, AFTER, Trained())
        else:
            write_skill(tmp_path, home, "skills/SKILL.md", BEFORE, AFTER, Trained())
    said = list(finish_writing(tmp_path, home, ["skills/SKILL.md"], Trained()))
    assert [text[:40] for text in said] == ["skills/SKILL.md: a run that was killed w"] * (
        moves > 0
    )
    found = AFTER if moves else BEFORE  # A write that reached no file is made by the run.
    assert on_disk(skill.parent) == {name: found[name].data for name in found}
    assert list(finish_writing(tmp_path, home, ["skills/SKILL.md"], Trained())) == []


def test_what_somebody_changed_after_the_kill_is_left_alone(tmp_path: Path) -> None:
    skill = lay_out(tmp_path / "skills", BEFORE)
    (skill.parent / "references/a.md").write_bytes(AFTER["references/a.md"].data)
    skill.write_bytes(b"by hand\n")
    stage(skill.parent, "SKILL.md", "references/b.md")
    versions = [version.packed.decode() for version in (BEFORE, AFTER)]
    home, _ = note(tmp_path, "skills/SKILL.md", *versions)
    (said,) = finish_writing(tmp_path, home, ["skills/SKILL.md"], Trained())
    assert "stays half written" in said
    assert "changed during the run" in said
    assert on_disk(skill.parent)["SKILL.md"] == b"by hand\n"


@pytest.mark.parametrize("more", [{}, {"references/none.md": Text(b"")}], ids=["old", "none"])
def test_a_note_alone_writes_no_skill(tmp_path: Path, more: dict[str, Text]) -> None:
    """A forged one says that a file of the skill has been written already."""
    skill = lay_out(tmp_path / "skills", BEFORE)
    forged = BEFORE | {"SKILL.md": Text(b"theirs\n"), **more}
    earlier = Version.from_bytes(b"old skill\n") | {"references/a.md": Text(b"x\n")}
    versions = [version.packed.decode() for version in (earlier, forged)]
    home, _ = note(tmp_path, "skills/SKILL.md", *versions)
    (said,) = finish_writing(tmp_path, home, ["skills/SKILL.md"], Trained())
    assert "stays half written" in said
    assert skill.read_bytes() == b"old skill\n"
    assert not list(home.path.glob("writing-*"))


def test_a_note_writes_no_file_but_a_skill_of_the_suite(tmp_path: Path) -> None:
    victim = tmp_path / "conftest.py"
    victim.write_bytes(b"# mine\n")
    home, left = note(tmp_path, "conftest.py", "# mine\n", "# theirs\n")
    assert list(finish_writing(tmp_path, home, ["skills/SKILL.md"], Trained())) == []
    assert victim.read_bytes() == b"# mine\n"
    assert left.exists()


def test_a_move_that_fails_takes_those_before_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    skill = lay_out(tmp_path, BEFORE)
    replace = Path.replace

    def full(self: Path, target: Path) -> Path:
        if target == skill.resolve():
            raise OSError(28, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(SkillError, match="No space left on device"):
        write_version(skill.parent, "SKILL.md", BEFORE, AFTER, Trained())
    assert on_disk(tmp_path) == {name: BEFORE[name].data for name in BEFORE}


def test_a_reference_that_has_become_a_link_out_of_the_folder_is_not_written(
    tmp_path: Path,
) -> None:
    skill = lay_out(tmp_path / "skills", BEFORE)
    (tmp_path / "outside.md").write_bytes(b"old a\n")
    (skill.parent / "references/a.md").unlink()
    (skill.parent / "references/a.md").symlink_to(tmp_path / "outside.md")
    with pytest.raises(SkillError, match="is now outside of the project"):
        write_version(skill.parent, "SKILL.md", BEFORE, AFTER, Trained())
    assert (tmp_path / "outside.md").read_bytes() == b"old a\n"
