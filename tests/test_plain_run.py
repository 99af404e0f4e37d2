"""Installed, and either not used or used in ordinary pytest runs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import warm_sessions
from chat_server import system_of
from refusals import assert_refused

if TYPE_CHECKING:
    from pathlib import Path

    from chat_server import ChatServer

SKILL = "---\nname: greeting\ndescription: Greets.\n---\n# Greeting\n\nSay hello.\n"


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with one skill, and no model configured."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    (pytester.path / "SKILL.md").write_text(SKILL)
    pytester.makeini("[pytest]\n")
    return pytester


def new_files(pytester: pytest.Pytester, before: set[Path]) -> set[str]:
    """Files that a run has left behind, besides those that pytest and pytester make."""
    names = {path.name for path in set(pytester.path.iterdir()) - before}
    pytesters = ("__pycache__", "stdout", "stderr")
    return {name for name in names if name not in pytesters and "runpytest" not in name}


def test_a_suite_without_tasks_sees_nothing_of_the_plugin(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_it():
            heavy = {"openai", "pydantic", "diskcache", "jinja2", "yaml"}
            assert not heavy & sys.modules.keys()
        """
    )
    before = set(pytester.path.iterdir())
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*skillopt:*")
    assert new_files(pytester, before) == set()


@pytest.mark.parametrize("arguments", [(), ("-p", "no:xdist"), ("-n", "1"), ("-W", "error")])
def test_a_task_is_an_ordinary_test_against_the_skill_on_disk(
    project: pytest.Pytester, arguments: tuple[str, ...]
) -> None:
    project.makepyfile(
        """
        import pytest

        pytestmark = pytest.mark.skill_task(split="train")

        def test_sync(skill, rollout):
            assert skill.name == "greeting"
            assert skill.body == "# Greeting\\n\\nSay hello.\\n"
            assert skill.text.endswith(skill.body)
            assert (skill.path / "SKILL.md").read_text() == skill.text
            assert len(skill.version) == 64
            assert rollout.index == 0
            rollout.score(0.5)
            rollout.feedback("fine")
            rollout.record("assistant", {"a": 1})
            rollout.usage(input_tokens=3)

        @pytest.mark.skill_task(rollouts=2)
        async def test_async(skill):
            assert "hello" in skill.text

        class TestClass:
            @pytest.mark.parametrize("word", ["Say", "hello"])
            def test_parametrised(self, skill, word):
                assert word in skill.body

            def test_fails(self, skill):
                assert "goodbye" in skill.body
        """
    )
    before = set(project.path.iterdir())
    result = project.runpytest_inprocess("--strict-markers", "-p", "no:cacheprovider", *arguments)
    result.assert_outcomes(passed=4, failed=1)
    assert new_files(project, before) == set()


def test_a_model_fails_a_test_at_its_own_line(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    chat_server.reply = lambda body: chat_server.answer.error(401, "no such key")
    project.makepyfile(
        """
        import pytest

        @pytest.mark.skill_task
        def test_agent(skill_agent):
            assert skill_agent("Greet Ada.")

        @pytest.mark.skill_task
        def test_judge(skill_judge):
            assert skill_judge("It is polite.", "Hello")

        @pytest.mark.skill_task
        def test_statements(skill_judge):
            assert skill_judge.statements(["It is polite."], "Hello")
        """
    )
    given = ("--skillopt-model=openai:m", f"-oskillopt_base_url={chat_server.url}")
    result = warm_sessions.run("-p", "no:cacheprovider", *given, cwd=project.path)
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(
        ["E *ModelFault: openai:m: HTTP 401: no such key (is the key right[?])"] * 3
    )
    result.stdout.no_fnmatch_line("*pytest_skillopt/*.py*")
    whole = warm_sessions.run(
        "-p", "no:cacheprovider", *given, "--full-trace", "-k", "agent", cwd=project.path
    )
    whole.stdout.fnmatch_lines(["*pytest_skillopt/model/client.py*"])


def test_the_plugin_can_be_switched_off(project: pytest.Pytester) -> None:
    project.makepyfile("def test_it(): pass")
    result = warm_sessions.run("-p", "no:skillopt", "--skillopt", cwd=project.path)
    result.stdout.fnmatch_lines(["*unrecognized arguments: --skillopt"])


def test_the_marker_is_listed(project: pytest.Pytester) -> None:
    result = project.runpytest("--markers")
    (listed,) = re.findall(r"@pytest.mark.skill_task\(\*, (.*)\):", result.stdout.str())
    project.makepyfile("import pytest\n@pytest.mark.skill_task(foo=1)\ndef test_it(): pass\n")
    refused = project.runpytest("-p", "no:cacheprovider").stdout.str()
    (valid,) = re.findall(r"\(valid: (.*?)\)", refused)[:1]
    assert [argument.partition("=")[0] for argument in listed.split(", ")] == valid.split(", ")


WRONG_MARKERS = {
    "foo=1": "*skill_task has no argument 'foo' (valid: skill, split, rollouts, *)",
    "'x'": "*skill_task takes keyword arguments only *, got 'x'*",
    "rollouts=0": "*rollouts must be a whole number of at least 1",
    "rollouts=True": "*rollouts must be a whole number of at least 1",
    "min_pass_rate=2": "*min_pass_rate must be a number from 0 to 1",
    "split='dev'": "*split must be 'train', 'val' or 'test'",
    "must_pass='yes'": "*must_pass must be True or False",
}


def test_a_wrong_marker_is_an_error_of_the_test_and_stops_a_mode(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-this-test")
    tests = [
        f"@pytest.mark.skill_task({arguments})\ndef test_{number}(): pass\n"
        for number, arguments in enumerate(WRONG_MARKERS)
    ]
    project.makepyfile("import pytest\n\n" + "\n".join(tests))
    plain = project.runpytest()
    plain.assert_outcomes(errors=len(tests))
    for number, message in enumerate(WRONG_MARKERS.values()):
        plain.stdout.fnmatch_lines([f"test_*.py::test_{number}: {message}"])
    assert_refused(
        project.runpytest("--skillopt-train", "--skillopt-optimizer=openai:m"),
        f"ERROR: test_*.py::test_0: {WRONG_MARKERS['foo=1']}",
    )


def test_a_wrong_marker_is_seen_on_workers_too(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest

        @pytest.mark.skill_task(splt="val")
        def test_it(): pass

        def test_other(): pass
        """
    )
    plain = project.runpytest_inprocess("-n", "1")
    plain.assert_outcomes(passed=1, errors=1)
    plain.stdout.fnmatch_lines(["*skill_task has no argument 'splt'*"])
    assert_refused(
        project.runpytest_inprocess("-n", "1", "--skillopt"),
        "ERROR: *skill_task has no argument 'splt'*",
    )


def test_a_wrong_record_shows_in_an_ordinary_run(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        def test_high(rollout): rollout.score(1.5)
        def test_low(rollout): rollout.score(-0.1)
        def test_nan(rollout): rollout.score(float("nan"))
        def test_object(rollout): rollout.record("user", object())
        """
    )
    project.runpytest().stdout.fnmatch_lines(
        [
            "E * ValueError: 1.5 is not a finite number *",
            "E * ValueError: -0.1 is not a finite number *",
            "E * ValueError: nan is not a finite number*",
            "E * TypeError: Object of type object is not JSON serializable*",
        ]
    )


def test_no_model_is_an_error_of_the_test_that_needs_one(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest

        @pytest.mark.skill_task
        def test_agent(skill_agent): pass

        def test_other(): pass
        """
    )
    result = project.runpytest()
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*no target model is configured. Set skillopt_target*"])


def test_two_skills_in_one_session(project: pytest.Pytester) -> None:
    other = project.mkdir("other") / "SKILL.md"
    other.write_text(SKILL.replace("hello", "goodbye"))
    project.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="session")
        def words(skill):
            return skill.body.split()

        @pytest.mark.skill_task(skill="SKILL.md")
        def test_first(words): assert "hello." in words

        @pytest.mark.skill_task(skill="other/SKILL.md")
        def test_second(words, skill):
            assert "goodbye." in words
            assert skill.path.name == "other"

        @pytest.mark.skill_task(skill="SKILL.md")
        def test_third(words): assert "hello." in words

        @pytest.mark.skill_task
        def test_fourth(words): assert "hello." in words
        """
    )
    project.runpytest().assert_outcomes(passed=4)


def test_the_agent_talks_to_any_compatible_server(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    def reply(body: dict[str, object]) -> str:
        return 'Here it is:\n```json\n{"n": 3}\n```'

    chat_server.reply = reply
    project.makepyfile(
        """
        import pytest

        def ask(agent):
            return agent("how many?").json()

        @pytest.mark.skill_task
        def test_helper(skill_agent):
            assert ask(skill_agent) == {"n": 3}

        @pytest.mark.skill_task
        async def test_awaited(skill_agent):
            reply = await skill_agent("how many?")
            assert reply.json()["n"] == 3
            assert (await skill_agent.aio("and now?")).json()["n"] == 3
        """
    )
    result = project.runpytest_inprocess(
        "--skillopt-model=openai:some-model", f"-oskillopt_base_url={chat_server.url}"
    )
    result.assert_outcomes(passed=2)
    assert (chat_server.calls, chat_server.probes) == (3, [])
    first = chat_server.bodies[0]
    assert first["model"] == "some-model"
    assert first["messages"][0]["role"] == "system"
    assert "Say hello." in system_of(first)
    assert not (project.path / ".skillopt").exists()


def test_the_public_names_are_importable() -> None:
    import pytest_skillopt

    for name in pytest_skillopt.__all__:
        assert getattr(pytest_skillopt, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        pytest_skillopt.nothing  # noqa: B018


def test_windows_is_told_of_wsl(project: pytest.Pytester) -> None:
    project.makeconftest(
        """
        import os, types
        from pytest_skillopt import fixtures

        fixtures.os = types.SimpleNamespace(name="nt", path=os.path)
        """
    )
    project.makepyfile("import pytest\n\n@pytest.mark.skill_task\ndef test_it(skill): pass")
    words = "skillopt runs on Linux and macOS; on Windows run it in WSL"
    plain = project.runpytest_subprocess()
    plain.assert_outcomes(errors=1)
    plain.stdout.fnmatch_lines([words])
    assert_refused(project.runpytest_subprocess("--skillopt"), f"*{words}")
