"""A training whose tasks cannot be measured ends as unmeasured, says why, and learns nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fault_project import SKILL, FaultProject, is_optimizer

if TYPE_CHECKING:
    from chat_server import ChatServer

SEARCHES = ["trials", "batch"]


@pytest.fixture
def project(pytester: pytest.Pytester, chat_server: ChatServer, api_key: str) -> FaultProject:
    return FaultProject(pytester.path, chat_server, pytester)


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize(
    ("misbehaviour", "options", "said"),
    [
        ("pytest.skip('no license')", (), "6 of 6 were skipped, such as test_greeting.py::"),
        ("pass", ("-oskillopt_max_attempts=1",), "6 of 6 ended in an infrastructure error"),
        ("pass", ("-oskillopt_max_attempts=9",), "20 infrastructure errors in a row"),
    ],
    ids=["skipped", "errors", "breaker"],
)
def test_nothing_to_learn_from_is_no_result(
    project: FaultProject, misbehaviour: str, options: tuple[str, ...], said: str, search: str
) -> None:
    project.write_tests(misbehaviour)
    if misbehaviour == "pass":
        broken = (
            "@pytest.fixture(autouse=True)\ndef database():\n    raise OSError('no database')\n"
        )
        path = project.path / "conftest.py"
        path.write_text(f"import pytest\n\n{broken}")
    output = project.run("-p", "no:xdist", f"--skillopt-search={search}", *options, expect=1)
    result = project.result
    assert result["status"] == result["skills"][0]["status"] == "unmeasured"
    assert said in result["reason"]
    assert said.split(",")[0] in " ".join(output.split())
    assert not any(is_optimizer(body) for body in project.server.bodies)
    assert project.skill.read_bytes() == SKILL
