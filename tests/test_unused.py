"""Modules that an ordinary session imports, and the plugins that it may do without."""

from __future__ import annotations

import json

import pytest
from refusals import assert_refused
from tables import each_row

from pytest_skillopt.plugins import BUILTIN

DECLARED = {"plugins", "fixtures", "hookspecs", "options", "plugin"}
DECLARED |= {f"plugins.{name}" for name in BUILTIN}
PROBE = """
import json
import sys

def pytest_unconfigure():
    found = sorted(name for name in sys.modules if name.startswith("pytest_" + "skill" + "opt."))
    with open("modules.json", "w") as file:
        json.dump(found, file)
"""
PLAIN = "class TestIt:\n    def test_it(self): pass"


def modules(pytester: pytest.Pytester, test: str, *options: str) -> set[str]:
    """Modules of the package that a session has imported at its end."""
    pytester.makeconftest(PROBE)
    pytester.makepyfile(test)
    pytester.runpytest_subprocess("-p", "no:cacheprovider", *options).assert_outcomes(passed=1)
    found = json.loads((pytester.path / "modules.json").read_text())
    return {name.removeprefix("pytest_skillopt.") for name in found}


def test_a_session_without_tasks_imports_the_declarations(pytester: pytest.Pytester) -> None:
    assert modules(pytester, PLAIN) == DECLARED
    keys = "skillopt_target = cli:claude\nskillopt_max_cost = 3\nskillopt_lanes = 4\n"
    pytester.makeini(f"[pytest]\n{keys}")
    assert modules(pytester, PLAIN) == DECLARED


@pytest.mark.parametrize("first", [0, 1])
def test_each_plugin_can_be_switched_off_whole(pytester: pytest.Pytester, first: int) -> None:
    """Every second one, so that each is off once while its neighbours are on."""
    off = BUILTIN[first::2]
    options = [f"-pno:skillopt-{name}" for name in off]
    assert modules(pytester, PLAIN, *options) == DECLARED - {f"plugins.{name}" for name in off}
    told = pytester.runpytest_inprocess("--trace-config", "--collect-only", *options).stdout.str()
    assert [name for name in BUILTIN if f"plugins.{name}'" in told] == [*BUILTIN[1 - first :: 2]]


@each_row(
    ("name", "given", "said"),
    [
        ("lanes", "--skillopt-lanes=4", "--skillopt-lanes is not an option here"),
        ("lanes", "-oskillopt_lanes=4", "skillopt_lanes is not a setting"),
        ("formats", "--skillopt-evals", "--skillopt-evals is not an option here"),
        ("agents", "-oskillopt_harness=codex", "skillopt_harness is not a setting"),
        ("published", "--skillopt-search=batch", "'batch' is not one of trials, shorten*"),
        ("published", "-oskillopt_gate=strict", "skillopt_gate: 'strict' is not one of sequential"),
        (
            "published",
            "-oskillopt_published=schedule: linear",
            "skillopt_published is not a setting",
        ),
        (
            "shorten",
            "--skillopt-search=shorten",
            "skillopt_search: 'shorten' is not one of *",
        ),
        ("mine", "--skillopt-optimizer=handoff:me", "optimizer model 'handoff:me': *"),
        ("agents", "--skillopt-optimizer=cli:codex", "optimizer model 'cli:codex': *"),
    ],
)
def test_what_needs_a_plugin_that_is_switched_off_says_so(
    pytester: pytest.Pytester, name: str, given: str, said: str
) -> None:
    pytester.makefile(".md", SKILL="---\nname: a\ndescription: A.\n---\n\nSay ok.\n")
    pytester.makepyfile("import pytest\n\n@pytest.mark.skill_task\ndef test_it(skill): pass\n")
    run = pytester.runpytest_inprocess("-p", f"no:skillopt-{name}", "--skillopt-train", given)
    assert_refused(run, f"ERROR: *{said}*; switched off: skillopt-{name}")
    run.stderr.no_fnmatch_line("*the nearest is*")


def test_options_are_there_whatever_mentions_them(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_it(pytestconfig):
            assert pytestconfig.getoption("skillopt_train") is False
            assert pytestconfig.getini("skillopt_seed") is None
        """
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=1)
    pytester.runpytest_inprocess("-n1").assert_outcomes(passed=1)
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
    assert found - DECLARED == {
        "errors",
        "settings",
        "skill",
        "skill.find",
        "skill.text",
        "skill.version",
        "tasks",
        "tasks.recorded",
        "tasks.task",
        "untrusted",
        "words",
    }
