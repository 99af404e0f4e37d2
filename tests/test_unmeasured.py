"""A run whose tasks cannot be measured ends as unmeasured, says why, and learns nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fault_project import SKILL, FaultProject, is_optimizer
from run_files import latest_result

if TYPE_CHECKING:
    from chat_server import ChatServer

REFUSED = "raise ConnectionError('connection refused')"
"""An infrastructure error of each test that does not say that no test can be set up."""


@pytest.fixture
def project(pytester: pytest.Pytester, chat_server: ChatServer, api_key: str) -> FaultProject:
    return FaultProject(pytester.path, chat_server, pytester, guests=12)


SKIPPED = "6 of 6 were skipped, such as test_greeting.py::"


@pytest.mark.parametrize(
    ("misbehaviour", "options", "said"),
    [
        ("pytest.skip('no license')", (), SKIPPED),
        ("pytest.skip('no license')", ("--skillopt-search=batch",), SKIPPED),
        (REFUSED, ("-oskillopt_max_attempts=1",), "6 of 6 ended in an infrastructure error"),
        (REFUSED, ("-oskillopt_max_attempts=9",), "20 attempts in a row ended in infra"),
        ("pass", ("-oskillopt_max_attempts=1",), "no task can be set up, test_greeting.py::"),
    ],
    ids=["skipped", "batch", "errors", "breaker", "set-up"],
)
def test_nothing_to_learn_from_is_no_result(
    project: FaultProject, misbehaviour: str, options: tuple[str, ...], said: str
) -> None:
    project.write_tests(misbehaviour)
    if misbehaviour == "pass":
        broken = (
            "@pytest.fixture(autouse=True)\ndef database():\n    raise OSError('no database')\n"
        )
        path = project.path / "conftest.py"
        path.write_text(f"import pytest\n\n{broken}")
    output = project.run("-p", "no:xdist", *options, expect=1)
    result = project.result
    assert result["status"] == result["skills"][0]["status"] == "unmeasured"
    assert said in result["reason"]
    assert said.split(",")[0] in " ".join(output.split())
    assert not any(is_optimizer(body) for body in project.server.bodies)
    assert project.skill.read_bytes() == SKILL


def test_a_teardown_that_hides_every_pass_ends_the_training(project: FaultProject) -> None:
    """A task that fails is measured before it."""
    (project.path / "conftest.py").write_text(
        "import pytest\n\n@pytest.fixture(autouse=True)\ndef database():\n    yield\n"
        "    raise OSError('cannot be removed')\n"
    )
    project.run("-p", "no:xdist", expect=1)
    said = "no task that passes can be torn down, test_greeting.py::"
    assert said in project.result["reason"]


@pytest.mark.parametrize("workers", [("-p", "no:xdist"), ("-n1",)], ids=["serial", "worker"])
def test_errors_of_one_skill_leave_another_measured(
    pytester: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    for name in "ab":
        (pytester.mkdir(name) / "SKILL.md").write_text(f"---\nname: {name}\ndescription: A.\n---\n")
        (pytester.path / name / f"test_{name}.py").write_text(
            "import pytest\n\n@pytest.fixture\ndef database():\n"
            f"    if '{name}' == 'a':\n        raise OSError('no database')\n\n"
            "@pytest.mark.skill_task\n@pytest.mark.parametrize('n', range(4))\n"
            "def test_it(database, skill, n):\n    assert n\n"
        )
    done = pytester.runpytest_inprocess("--skillopt", "-oskillopt_max_attempts=9", *workers)
    assert done.ret == 1
    broken, sound = latest_result(pytester.path)["skills"]
    assert (broken["status"], sound["status"]) == ("unmeasured", "measured")
    assert "attempts in a row ended in infrastructure errors" in broken["reason"]
    assert "0 of 0" not in done.stdout.str()
    assert sound["suite"]["before"]["rate"] == pytest.approx(0.75)
    assert [row["before"]["n"] for row in sound["tasks"]] == [3, 3, 3, 3]
