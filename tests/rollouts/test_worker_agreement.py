"""Workers must have collected the same tasks."""

from __future__ import annotations

import json

import pytest
import warm_sessions
from refusals import assert_refused
from tables import each_row

from pytest_skillopt.rollouts.workers import check_agreement


def said(*names: str, source: str = "s", refusal: str = "", errors: int = 0) -> dict[str, object]:
    tasks = json.dumps([{"id": name, "source": source} for name in names])
    return {"tasks": tasks, "refusal": refusal, "collection_errors": errors}


def test_workers_that_agree() -> None:
    tasks = check_agreement({"gw0": said("a", "b"), "gw1": said("a", "b")})
    assert [task["id"] for task in json.loads(tasks)] == ["a", "b"]


@each_row(
    ("other", "message"),
    [
        (said("a"), "different tasks: b$"),
        (said("a", "b", "c"), "different tasks: c$"),
        (said("a", "b", source="t"), "different tasks: a, b$"),
        (said("a", "b", *map(str, range(7))), r"0, 1, 2, 3, 4 and 2 more$"),
    ],
)
def test_workers_that_do_not(other: dict[str, object], message: str) -> None:
    with pytest.raises(pytest.UsageError, match=message):
        check_agreement({"gw0": said("a", "b"), "gw1": other})


def test_a_worker_that_refuses() -> None:
    with pytest.raises(pytest.UsageError, match="no such split"):
        check_agreement({"gw0": said("a"), "gw1": said("a", refusal="no such split")})


def test_errors_during_collection_end_the_session_as_ever() -> None:
    with pytest.raises(pytest.Session.Interrupted, match="2 errors during collection"):
        check_agreement({"gw0": said("a", errors=2)})


def test_lanes_without_xdist_are_refused(pytester: pytest.Pytester) -> None:
    assert_refused(
        pytester.runpytest("--skillopt", "--skillopt-lanes=2", "-p", "no:xdist"),
        "*skillopt_lanes needs pytest-xdist*",
    )


EARLY = """
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config):
    options = early_config.known_args_namespace
    is_dist = options.numprocesses or options.distload or options.dist != "no"
    early_config.seen = [options.numprocesses, is_dist]

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        print("seen:", *config.seen, config.option.numprocesses, config.option.tx)

@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    assert node.config.seen[1], "it has made no controller, as pytest-cov has then"
"""


@pytest.mark.parametrize(
    "lanes",
    [
        ("-o", "skillopt_lanes=2"),
        ("--skillopt-lanes=2", "-n0"),
    ],
    ids=" ".join,
)
def test_other_plugins_see_lanes_as_a_run_with_one_worker(
    pytester: pytest.Pytester, lanes: tuple[str, ...]
) -> None:
    """They look as early as pytest-cov does, and before it."""
    (pytester.path / "SKILL.md").write_text("---\nname: s\ndescription: d\n---\n\nBe kind.\n")
    pytester.makepyfile(
        early=EARLY,
        test_it="import pytest\n\n@pytest.mark.skill_task\ndef test_it(): pass\n",
    )
    ran = warm_sessions.run("-s", "-p", "early", "--skillopt", *lanes, cwd=pytester.path)
    ran.assert_outcomes(passed=1)
    ran.stdout.fnmatch_lines(["seen: 1 1 1 ['popen']"])


def test_lanes_start_a_worker_by_themselves(pytester: pytest.Pytester) -> None:
    (pytester.path / "SKILL.md").write_text("---\nname: s\ndescription: d\n---\n\nBe kind.\n")
    test = "@pytest.mark.skill_task\ndef test_it(worker_id): assert worker_id == 'gw0'\n"
    pytester.makepyfile(f"import pytest\n\n{test}")
    result = warm_sessions.run("--skillopt", "--skillopt-lanes=2", cwd=pytester.path)
    result.assert_outcomes(passed=1)


def test_rollouts_that_end_before_xdist_has_counted_the_tests(pytester: pytest.Pytester) -> None:
    """It hears of the collection too late to count it, as on a busy machine."""
    (pytester.path / "SKILL.md").write_text("---\nname: s\ndescription: d\n---\n\nBe kind.\n")
    pytester.makeconftest(
        """
        def pytest_sessionstart(session):
            controller = session.config.pluginmanager.get_plugin("dsession")
            if controller is not None:
                controller.worker_collectionfinish = lambda node, ids: None
        """
    )
    pytester.makepyfile("import pytest\n\n@pytest.mark.skill_task\ndef test_it(): pass\n")
    result = warm_sessions.run("--skillopt", "-n1", cwd=pytester.path)
    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(passed=1)
