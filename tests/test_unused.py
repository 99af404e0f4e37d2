"""What an ordinary session imports of the package: the declarations, and no more."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

DECLARATIONS = {"addons", "fixtures", "hookspecs", "options", "plugin", "settings"}
PROBE = """
import json
import sys

def pytest_unconfigure():
    found = sorted(name for name in sys.modules if name.startswith("pytest_skillopt."))
    with open("modules.json", "w") as file:
        json.dump(found, file)
"""


def modules(pytester: pytest.Pytester, test: str) -> set[str]:
    """Modules of the package that a session has imported at its end."""
    pytester.makeconftest(PROBE)
    pytester.makepyfile(test)
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
    found = json.loads((pytester.path / "modules.json").read_text())
    return {name.removeprefix("pytest_skillopt.") for name in found if not is_declaration(name)}


def is_declaration(name: str) -> bool:
    """Whether a module is an add-on's declaration, its settings, or the package around them, which
    may hold an error of its own."""
    parts = name.split(".")
    inside = parts[1] == "addons" and len(parts) > 2
    return parts[1] == "errors" or (inside and parts[3:] in ([], ["addon"], ["settings"]))


def test_a_session_without_tasks_imports_the_declarations_alone(pytester: pytest.Pytester) -> None:
    assert modules(pytester, "class TestIt:\n    def test_it(self): pass") == DECLARATIONS


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
    assert found == DECLARATIONS | {"suite", "suite.tasks"}
