"""Scripts that are trained with a skill: what an edit may do to one, and who may write it."""

from __future__ import annotations

import json
import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.addons.harness.code import faults
from pytest_skillopt.skill.document import Document, SkillError
from pytest_skillopt.skill.files import Trained, write_version
from pytest_skillopt.skill.lint import lint

if TYPE_CHECKING:
    from harness_project import Project

PYTHON = '''\
#!/usr/bin/env python3
"""Greet a guest.

Prints one line.
"""
import argparse
import os
from urllib.parse import quote

parser = argparse.ArgumentParser(description="Greets.")
parser.add_argument("--guest", help="the guest's name")
print("Hello", quote(parser.parse_args().guest))
'''
BASH = """\
#!/usr/bin/env bash
# Greets a guest.
usage() {
    cat <<END
Usage: greet.sh GUEST
  GUEST is a name
END
}
echo "  -h  help"
echo "Hello $1"
"""
NODE = """\
#!/usr/bin/env node
// Greets a guest.
const path = require("path");
console.log("usage: greet.js GUEST");
console.log("Hello " + process.argv[2]);
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('print("Hello"', 'print("Ahoy"', ""),
        ('print("Hello"', 'print("Hello', "would not parse: line 12: unterminated string"),
        ("import os\n", "import os\nimport socket\n", "other processes by socket"),
        ("import os\n", "from os import system\n", "by os.system"),
        ("import os\n", "from os import *\n", "os.popen"),
        ("import os\n", "import os as o\no.system('true')\n", "by os.system"),
        ("import os\n", "import os\nos.environ.get('x')\n", ""),
        ("import os\n", "import urllib.request as r\n", "by urllib.request"),
        ("import os\n", "from urllib import request\n", "by urllib.request"),
        ("import os\n", "import os\nexec('1')\n", "by exec"),
        ("import os\n", "import re\nre.compile('1')\n", ""),
        ("import os\n", "from .subprocess import x\n", ""),
        ("Prints one line.\n", "", "lose a line of its help text: 'Prints one line.'"),
        ('help="the guest\'s name"', 'help="a name"', 'lose a line of its help text: "the guest'),
        ('"--guest"', '"--name"', "lose a line of its help text: '--guest'"),
        ('description="Greets."', 'description="Greets.", epilog="Well."', ""),
        ("env python3", "env bash", "its first line, which names its interpreter"),
    ],
)
def test_python(old: str, new: str, said: str) -> None:
    assert old in PYTHON
    check("greet.py", PYTHON, PYTHON.replace(old, new, 1), said)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('echo "Hello', 'echo "Ahoy', ""),
        ('echo "Hello $1"', 'if true; then echo "Hello $1"', "would not parse: script.sh: line"),
        ('echo "Hello', 'curl x.test; echo "Hello', "by curl"),
        ('echo "Hello', 'c"u"rl x.test; echo "Hello', "by curl"),
        ('echo "Hello', 'cat </dev/tcp/x/1; echo "Hello', "by /dev/tcp"),
        ('echo "Hello', 'eval "$1"; echo "Hello', "by eval"),
        ('echo "Hello', 'python3 -c 1; echo "Hello', "by python3"),
        ('echo "Hello', '. ./more.sh; echo "Hello', "by ."),
        ('echo "Hello', '# curl would do it\necho "Hello', ""),
        ('echo "Hello', 'grep -c . names.txt; echo "Hello', ""),
        ("  GUEST is a name\n", "", "lose a line of its help text: 'GUEST is a name'"),
        ('echo "  -h  help"\n', "", "lose a line of its help text: 'echo"),
        ("# Greets a guest.\n", "", "lose a line of its help text: 'Greets a guest.'"),
    ],
)
def test_bash(old: str, new: str, said: str) -> None:
    assert old in BASH
    check("greet.sh", BASH, BASH.replace(old, new, 1), said)


@pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"Hello "', '"Ahoy "', ""),
        ('"Hello "', '"Hello ', "would not parse:"),
        ('const path = require("path");', 'import path from "path";', ""),
        ('require("path")', 'require("node:child_process")', "by child_process"),
        ('require("path")', 'require("fs/promises")', ""),
        ('require("path")', "require('http' + 's')", "by http"),
        ('require("path")', "require(process.argv[3])", "by require"),
        ('require("path")', "fetch('x')", "by fetch"),
        ('console.log("usage: greet.js GUEST");\n', "", "lose a line of its help text: 'console"),
    ],
)
def test_node(old: str, new: str, said: str) -> None:
    assert old in NODE
    check("greet.js", NODE, NODE.replace(old, new, 1), said)


def check(name: str, before: str, after: str, said: str) -> None:
    found = list(faults(name, before, after))
    assert len(found) == bool(said), found
    assert not said or said in found[0]


@pytest.mark.parametrize(
    "text",
    ["cat <<a\n" * 30_000, "\n" * 100_000, " " * 100_000 + "x"],
    ids=["here", "lines", "line"],
)
def test_a_hostile_script_takes_no_more_than_a_moment(text: str) -> None:
    start = time.process_time()
    assert list(faults("a.sh", text, text)) == []
    assert time.process_time() - start < 5


def test_what_a_script_reached_before_it_may_reach() -> None:
    before = "import subprocess\nsubprocess.run(['ls'])\n"
    check("a.py", before, before.replace("run", "Popen"), "")
    check("a.sh", "curl a\n", "curl b\n", "")
    check("a.sh", "", "curl b\n", "by curl")


def test_no_setting_allows_it() -> None:
    before = Document(b"# Skill\n").with_file("a.py", Document(b"x = 1\n"))
    after = before.with_file("a.py", Document(b"import socket\n"))
    (finding,) = lint(before, after, frozenset({"code"}))
    assert (finding.rule, finding.severity) == ("code", "refuse")
    assert finding.message.startswith("a.py: ")


def test_a_script_without_its_parser_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = Trained("scripts/*", code=True)
    for name in ("scripts/a.py", "scripts/a.sh", "scripts/a.md"):
        trained.check(name)
    with pytest.raises(SkillError, match=r"scripts/a\.bin: only text documents"):
        trained.check("scripts/a.bin")
    with pytest.raises(SkillError, match=r"scripts/a\.sh: .* skillopt_train_code = yes"):
        Trained("scripts/*").check("scripts/a.sh")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SkillError, match=r"scripts/a\.mjs: node, which has to parse it, is not"):
        trained.check("scripts/a.mjs")


def test_no_way_but_a_request_writes_a_script(project: Project) -> None:
    before = Document(project.skill.read_bytes()).with_file("a.py", Document(b"x = 1\n"))
    (project.skill.parent / "a.py").write_bytes(b"x = 1\n")
    after = before.with_file("a.py", Document(b"x = 2\n"))
    with pytest.raises(SkillError, match=r"a\.py: not written, it takes a request and a review"):
        write_version(project.skill, before, after)
    assert (project.skill.parent / "a.py").read_bytes() == b"x = 1\n"


AGENT = """
folder = ".agents/skills/house-greeting/"
call(open(folder + "SKILL.md").read())
script = "scripts/shout.py" if os.path.exists(folder + "scripts/shout.py") else "scripts/greet.py"
output = (os.POSIX_SPAWN_OPEN, 1, "greeting.txt", os.O_WRONLY | os.O_CREAT, 0o644)
command = [sys.executable, "-IS", folder + script]
os.waitpid(os.posix_spawn(command[0], command, os.environ, file_actions=[output]), 0)
say(text="Done.")
"""
TASKS = """
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("guest", "Ada Ben Cleo".split())
def test_greeting(skill_harness, workspace, guest):
    skill_harness(f"Greet {guest}.")
    assert (workspace / "greeting.txt").read_text() == "Ahoy\\n"
"""
GREET = '"""Prints a greeting."""\n\nprint("Hello")\n'


@pytest.fixture
def scripted(project: Project) -> Project:
    """A skill whose script greets; the tests want another greeting."""
    project.use_stub(AGENT)
    (project.path / "test_greeting.py").write_text(TASKS)
    script = project.skill.parent / "scripts" / "greet.py"
    script.parent.mkdir()
    script.write_text(GREET)
    project.skill.write_text(f"{project.skill.read_text()}\nRun [it](scripts/greet.py).\n")
    project.settings |= {
        "skillopt_optimizer": "openai:thinker",
        "skillopt_rollouts": 1,
        "skillopt_patience": 1,
        "skillopt_files": "scripts/*.py",
        "skillopt_train_code": "yes",
        # A sandbox of the user's own: only that there is one is asked.
        "skillopt_sandbox": "env",
    }
    return project


def think(project: Project, *edits: dict[str, str]) -> None:
    project.provider.thought = json.dumps({"reasoning": "the script greets so", "edits": edits})


def result_of(project: Project) -> dict[str, Any]:
    project.pytest("--skillopt-train", "-p", "no:xdist")
    (skill,) = project.result["skills"]
    found: dict[str, Any] = skill
    return found


def edit(op: str, file: str, target: str, content: str) -> dict[str, str]:
    return {"op": op, "file": file, "target": target, "content": content}


def test_an_edited_script_is_proposed_and_not_written(scripted: Project) -> None:
    before = scripted.skill.read_text()
    think(scripted, edit("replace", "scripts/greet.py", '"Hello"', '"Ahoy"'))
    skill = result_of(scripted)
    assert skill["status"] == "accepted"
    assert not skill["written"]
    assert '+print("Ahoy")' in skill["patch"]
    assert [row["file"] for row in skill["edits"]] == ["scripts/greet.py"]
    (note,) = [note for note in scripted.result["notes"] if "was not written" in note]
    assert "scripts/greet.py is code or new" in note
    assert "merge it by a pull request" in note
    assert (scripted.skill.parent / "scripts" / "greet.py").read_text() == GREET
    assert scripted.skill.read_text() == before


def test_a_new_script_comes_with_its_link(scripted: Project) -> None:
    new = edit("append", "scripts/shout.py", "", '"""Shouts."""\n\nprint("Ahoy")')
    link = edit("append", "SKILL.md", "", "To greet, run [this one](scripts/shout.py).")
    think(scripted, new, link)
    skill = result_of(scripted)
    assert skill["status"] == "accepted"
    assert "new file mode 100644\n" in skill["patch"]
    assert "+To greet, run [this one](scripts/shout.py)." in skill["patch"]
    assert not (scripted.skill.parent / "scripts" / "shout.py").exists()
    assert {hunk["edits"][0]["file"] for hunk in skill["hunks"]} == {"scripts/shout.py"}


REFUSED = [
    (edit("append", "scripts/shout.py", "", 'print("Ahoy")'), "nothing links to it"),
    (edit("append", "SKILL.md", "", "Run [it](scripts/sing.py)."), "a file that is not there"),
    (edit("replace", "scripts/greet.py", '"Hello"', '"Ahoy'), "would not parse"),
    (edit("insert_after", "scripts/greet.py", 'print("Hello")', "import socket"), "by socket"),
    (edit("replace", "scripts/greet.py", "Prints a greeting.", "Greets."), "help text"),
    (edit("append", "scripts/greet.sh", "", "echo Ahoy"), "is not trained with the skill"),
]


@pytest.mark.parametrize("refused", [REFUSED[:3], REFUSED[3:]], ids=["first", "last"])
def test_refused_edits(scripted: Project, refused: list[tuple[dict[str, str], str]]) -> None:
    think(scripted, *(change for change, _ in refused))
    skill = result_of(scripted)
    assert skill["status"] == "unchanged"
    assert {row["status"] for row in skill["edits"]} == {"refused"}
    why = {(row["file"], row["content"]): row["why"] for row in skill["edits"]}
    assert len(why) == len(refused)
    for change, words in refused:
        assert words in why[change["file"], change["content"]]


NO_SANDBOX = "*skillopt_train_code: * may run in a sandbox only; install bubblewrap*"


@pytest.mark.parametrize(
    ("arguments", "sandbox", "test", "words"),
    [
        (("-p", "no:xdist"), "none", "", NO_SANDBOX),
        (("--collect-only",), "none", "", NO_SANDBOX),
        (
            ("-n1",),
            "env",
            "import pytest\n@pytest.mark.skill_task\ndef test_own(skill_agent):\n    pass\n",
            "*skillopt_train_code: test_own.py::test_own does not use skill_harness*",
        ),
    ],
)
def test_nothing_is_paid_before_there_is_a_sandbox(
    scripted: Project, arguments: tuple[str, ...], sandbox: str, test: str, words: str
) -> None:
    scripted.settings["skillopt_sandbox"] = sandbox
    if test:
        (scripted.path / "test_own.py").write_text(test)
    done = scripted.pytest("--skillopt-train", *arguments)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([words])
    assert scripted.provider.calls == 0
    assert not (scripted.path / ".skillopt" / "runs").exists()
