"""Modules of the package that an ordinary session imports."""

from __future__ import annotations

import json
from textwrap import dedent

import pytest
from sessions import WITHOUT_OTHERS

PLUGIN = {"fixtures", "hookspecs", "plugin", "registry"}
DECLARATIONS = PLUGIN | {"options", "settings"}
PROBE = """
import json
import sys

def pytest_unconfigure():
    found = sorted(name for name in sys.modules if name.startswith("pytest_" + "skill" + "opt."))
    with open("modules.json", "w") as file:
        json.dump(found, file)
"""


def modules(pytester: pytest.Pytester, test: str, *options: str, probe: str = PROBE) -> set[str]:
    """Modules of the package that a session has imported at its end."""
    pytester.makeconftest(probe)
    pytester.makepyfile(test)
    pytester.runpytest_subprocess("-p", "no:cacheprovider", *options).assert_outcomes(passed=1)
    found = json.loads((pytester.path / "modules.json").read_text())
    return {name.removeprefix("pytest_skillopt.") for name in found if not is_declaration(name)}


def is_declaration(name: str) -> bool:
    """Check if a module is a part of an add-on's declaration, or a package around it, which may
    hold an error of its own."""
    parts = name.split(".")
    inside = parts[1] == "addons"
    return parts[1] in ("addon", "errors") or (
        inside and parts[3:] in ([], ["addon"], ["fixtures"], ["settings"])
    )


def test_a_session_without_tasks_imports_fixtures_and_specifications(
    pytester: pytest.Pytester,
) -> None:
    assert modules(pytester, "class TestIt:\n    def test_it(self): pass") == PLUGIN
    found = json.loads((pytester.path / "modules.json").read_text())
    assert not [name for name in found if name.endswith((".addon", ".settings"))]


def test_a_session_that_mentions_the_plugin_imports_the_declarations(
    pytester: pytest.Pytester,
) -> None:
    test = "class TestIt:\n    def test_it(self): pass"
    assert modules(pytester, test, "-o", "skillopt_seed=1") == DECLARATIONS


def test_a_text_that_speaks_of_the_plugin_is_no_mention(pytester: pytest.Pytester) -> None:
    pytester.makepyprojecttoml(
        """
        # skillopt_seed = 1
        [project]
        name = "x"
        version = "1"
        dependencies = ["pytest-skillopt"]

        [tool.pytest.ini_options]
        markers = ["slow: skillopt"]
        """
    )
    test = "class TestIt:\n    def test_it(self): pass"
    assert modules(pytester, test, probe=f"# skillopt\n{PROBE}") == PLUGIN


@pytest.mark.parametrize(
    "source",
    [
        "def pytest_skillopt_notes(config, result): ...",
        "def pytest_configure(config): config.getoption('skillopt_train')",
        """
        import pytest

        @pytest.fixture(autouse=True)
        def asked(request): [request.config.getoption(o) for o in ('--skillopt-train',)]
        """,
    ],
    ids=["hook", "hook of pytest", "fixture"],
)
def test_options_are_there_if_a_conftest_file_needs_them(
    pytester: pytest.Pytester, source: str
) -> None:
    """In whatever folder pytest loads it at the start."""
    folder = pytester.mkdir("checks")
    (folder / "conftest.py").write_text(dedent(source))
    (folder / "test_it.py").write_text(
        "def test_it(pytestconfig):\n"
        "    assert pytestconfig.getoption('skillopt_train') is False\n"
        "    assert pytestconfig.getini('skillopt_seed') is None\n"
    )
    pytester.runpytest_inprocess("checks").assert_outcomes(passed=1)
    pytester.runpytest_inprocess("checks", "-n1").assert_outcomes(passed=1)


def test_options_are_there_if_anything_mentions_them(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(
        test_it="""
        import pytest

        @pytest.mark.skill_task
        def test_it(pytestconfig):
            assert pytestconfig.getoption("skillopt_train", "unknown") is not True
            assert pytestconfig.getoption("skillopt_setting_seed", "unknown") == "7"
        """
    )
    plain = pytester.runpytest_inprocess("-p", "no:cacheprovider", "test_it.py")
    plain.stdout.fnmatch_lines(["*assert 'unknown' == '7'*"])
    given = "--skillopt-seed=7"
    pytester.runpytest_inprocess(given).assert_outcomes(passed=1)
    pytester.runpytest_inprocess("-n1", given).assert_outcomes(passed=1)
    (pytester.path / "words.txt").write_text(given)
    pytester.runpytest_inprocess("@words.txt").assert_outcomes(passed=1)
    monkeypatch.setenv("PYTEST_ADDOPTS", f"{WITHOUT_OTHERS} {given}")
    pytester.runpytest_inprocess().assert_outcomes(passed=1)
    monkeypatch.setenv("PYTEST_ADDOPTS", WITHOUT_OTHERS)
    pytester.makeini(f"[pytest]\naddopts = {given}")
    pytester.runpytest_inprocess().assert_outcomes(passed=1)
    pytester.makeini("[pytest]\n")
    for words in (["-h"], ["-qh"], ["--help"]):
        pytester.runpytest_inprocess(*words).stdout.fnmatch_lines(["*--skillopt-train*"])
    pytester.runpytest_inprocess("--markers").stdout.fnmatch_lines(["*skill_task(*"])
    pytester.runpytest_inprocess("--fixtures").stdout.fnmatch_lines(["skill_agent*"])


def test_a_task_without_a_fixture_imports_its_marker(pytester: pytest.Pytester) -> None:
    found = modules(
        pytester,
        """
        import pytest

        @pytest.mark.skill_task
        class TestIt:
            def test_it(self): pass
        """,
    )
    assert found == PLUGIN | {"settings", "skill", "skill.document", "skill.files"} | {
        "suite",
        "suite.recorded",
        "suite.tasks",
        "untrusted",
    }
