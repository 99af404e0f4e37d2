"""Parts of the key of a sample: changed files, and only those that a test uses."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from textwrap import dedent

import pytest
from tables import each_row

from pytest_skillopt.tasks.surroundings import Surroundings
from pytest_skillopt.tasks.task import collect_task

FILES = {
    "pytest.ini": "[pytest]\npythonpath = src\n",
    "conftest.py": "pytest_plugins = ['shared']\n",
    "src/shared.py": "import of_shared",
    "src/of_shared.py": "",
    "src/helper.py": "import of_helper\ndef check(): ...",
    "src/of_helper.py": "",
    "src/prompts.py": "RUBRIC = 'polite'\nOTHER = ''",
    "src/lazy.py": "def check(): from space.inner import deep",
    "src/space/inner/deep.py": "",
    "src/sometimes.py": "",
    "src/pkg/__init__.py": "",
    "src/pkg/inner.py": "from . import beside",
    "src/pkg/beside.py": "from .deep.er import X",
    "src/pkg/deep/er.py": "X = 1",
    "src/pkg/unused.py": "",
    "src/unused.py": "",
    "cases/conftest.py": "",
    "cases/__init__.py": "",
    "cases/other/conftest.py": "",
    "cases/other/__init__.py": "",
    "cases/other/test_b.py": """
        import pytest
        import src_of_b

        @pytest.mark.skill_task
        def test_b(): import lazy
    """,
    "src/src_of_b.py": "",
    "cases/test_a.py": """
        import pytest
        from helper import check
        from prompts import RUBRIC
        from pkg import inner
        try:
            import sometimes
        except ImportError:
            pass

        CASES = ["x"]
        LIMIT = 1
        UNUSED = 1

        def used():
            return LIMIT, RUBRIC

        def unused():
            return 1

        @pytest.fixture
        def answer():
            return 1

        class Base:
            def ask(self):
                return 2

        class TestIt(Base):
            level = 1

            @pytest.mark.skill_task
            @pytest.mark.parametrize("case", CASES)
            def test_a(self, case, answer):
                import lazy
                assert used()

            @pytest.mark.skill_task
            def test_beside(self):
                assert 3
    """,
    "venv/pyvenv.cfg": "",
    "venv/lib/installed.py": "",
    "README.md": "",
}


class Sources:
    """The sources of the tasks of a session, by node id."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        tasks = (collect_task(item, lambda marked: "S") for item in items)
        self.found = {task.id: task.source for task in tasks if task is not None}


def sources(pytester: pytest.Pytester, *arguments: str) -> dict[str, str]:
    keeper = Sources()
    done = pytester.runpytest_inprocess("--collect-only", "-q", *arguments, plugins=[keeper])
    assert done.ret == 0, done.stdout.str() + done.stderr.str()
    return keeper.found


A = "cases/test_a.py::TestIt::test_a[x]"


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    for name, text in FILES.items():
        file = pytester.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text))
    return pytester


@pytest.fixture
def source(project: pytest.Pytester) -> str:
    """The source of ``A`` before anything is changed."""
    return sources(project)[A]


def source_with(project: pytest.Pytester, name: str, old: str, new: str) -> str:
    """Return the source of ``A`` while a file has another text."""
    file = project.path / name
    text = file.read_text() if file.exists() else ""
    assert old in text
    file.write_text(text.replace(old, new, 1) if old else new + text)
    changed = sources(project)[A]
    file.write_text(text)
    return changed


@each_row(
    ("name", "old", "new"),
    [
        ("conftest.py", "", "# other\n"),
        ("src/shared.py", "", "# other\n"),
        ("src/of_shared.py", "", "X = 1\n"),
        ("cases/conftest.py", "", "X = 1\n"),
        ("cases/__init__.py", "", "X = 1\n"),
        ("src/helper.py", "...", "return 1"),
        ("src/of_helper.py", "", "X = 1\n"),
        ("src/prompts.py", "polite", "short"),
        ("src/lazy.py", "", "X = 1\n"),
        ("src/space/inner/deep.py", "", "X = 1\n"),
        ("src/sometimes.py", "", "X = 1\n"),
        ("src/pkg/__init__.py", "", "X = 1\n"),
        ("src/pkg/inner.py", "", "X = 1\n"),
        ("src/pkg/beside.py", "", "X = 1\n"),
        ("src/pkg/deep/er.py", "X = 1", "X = 2"),
        ("cases/test_a.py", "LIMIT = 1", "LIMIT = 2"),
        ("cases/test_a.py", "return LIMIT", "return LIMIT + 1"),
        ("cases/test_a.py", "def answer():\n    return 1", "def answer():\n    return 2"),
        ("cases/test_a.py", "return 2", "return 3"),
        ("cases/test_a.py", "level = 1", "level = 2"),
        ("cases/test_a.py", "import RUBRIC", "import OTHER as RUBRIC"),
        ("cases/test_a.py", "CASES = ", "used = print\nCASES = "),
    ],
)
def test_a_change_of_what_a_test_uses_changes_its_source(
    project: pytest.Pytester, source: str, name: str, old: str, new: str
) -> None:
    assert source_with(project, name, old, new) != source


@each_row(
    ("name", "old", "new"),
    [
        ("README.md", "", "x"),
        ("src/unused.py", "", "X = 1\n"),
        ("src/pkg/unused.py", "", "X = 1\n"),
        ("src/src_of_b.py", "", "X = 1\n"),
        ("cases/other/conftest.py", "", "X = 1\n"),
        ("cases/other/test_b.py", "import lazy", "pass"),
        ("cases/test_a.py", "", '"""The tests."""\n# a comment\n'),
        ("cases/test_a.py", "UNUSED = 1", "UNUSED = 2"),
        ("cases/test_a.py", "return 1", "return  1"),
        ("cases/test_a.py", 'CASES = ["x"]', 'CASES = ["x", "y"]'),
        ("cases/test_a.py", "def unused():\n    return 1", "def unused():\n    return 2"),
        ("cases/test_a.py", "assert 3", "assert 4"),
        ("cases/new_helper.py", "", "X = 1\n"),
    ],
)
def test_a_change_of_anything_else_does_not(
    project: pytest.Pytester, source: str, name: str, old: str, new: str
) -> None:
    assert source_with(project, name, old, new) == source


def test_a_source_does_not_depend_on_what_else_is_collected(project: pytest.Pytester) -> None:
    whole = sources(project)
    assert sources(project, "cases/other", "cases/test_a.py") == whole
    assert sources(project, A) == {A: whole[A]}
    assert sources(project, "-p", "no:randomly", "--import-mode=importlib") == whole


def test_a_plugin_of_the_project_counts_for_all_tests(project: pytest.Pytester) -> None:
    (project.path / "src" / "plug.py").write_text("")
    before = sources(project, "-p", "plug")
    (project.path / "src" / "plug.py").write_text("X = 1\n")
    after = sources(project, "-p", "plug")
    assert before.keys() == after.keys()
    assert not before.items() & after.items()


def test_what_is_installed_below_the_root_directory_does_not_count(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(project.path / "venv" / "lib")
    (project.path / "src" / "helper.py").write_text("import installed\ndef check(): ...")
    before = sources(project)
    (project.path / "venv" / "lib" / "installed.py").write_text("X = 1\n")
    assert sources(project) == before


def test_only_files_of_the_project_have_a_name(pytester: pytest.Pytester) -> None:
    root = pytester.path
    (root / "env").mkdir()
    (root / "env" / "pyvenv.cfg").write_text("")
    name_of = Surroundings(pytester.parseconfig("--rootdir", str(root))).name_of
    assert name_of(root / "a" / "b.py") == "a/b.py"
    for path in (
        root / "env" / "lib" / "b.py",
        root.parent / "b.py",
        Path("<string>"),
        Path(ast.__file__),
    ):
        assert not name_of(path)


def test_a_file_is_the_same_by_every_link(
    project: pytest.Pytester, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A file of elsewhere counts if the project links to it."""
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "helper.py"
    helper = project.path / "src" / "helper.py"
    helper.rename(elsewhere)
    helper.symlink_to(elsewhere)
    before = sources(project)
    elsewhere.write_text("def check(): return 1\n")
    assert sources(project)[A] != before[A]

    link = tmp_path_factory.mktemp("link") / "project"
    link.symlink_to(project.path)
    changed = sources(project)
    os.chdir(link)
    assert sources(project) == changed
