"""Calls that a test makes by itself and reports with ``rollout.usage``: counted, capped, kept."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from greetings import proposal, write_project
from run_files import all_results, latest_entries

if TYPE_CHECKING:
    from chat_server import ChatServer

NAMES = "Ada Ben Cleo Dan Eve Finn Gus Hal"
TESTS = f"""
import os, pathlib, pytest, time

PAID = pathlib.Path(__file__).with_name("paid")

@pytest.mark.skill_task
@pytest.mark.parametrize("name", {NAMES!r}.split())
def test_greeting(skill, rollout, name):
    with PAID.open("a") as file:
        asked = rollout.request
        file.write(f"{{name}} {{skill.version}} {{asked.sample}} {{asked.stage}}\\n")
    rollout.usage(calls=2, input_tokens=30, output_tokens=5, cost=0.01)
    time.sleep(float(os.environ.get("SLOW", "0")) * (rollout.index % 2))
    assert "exclamation" in skill.text
"""
TRAIN = ("--skillopt-train", "--skillopt-rollouts=1", "-oskillopt_final_rollouts=2")
EXECUTORS = [("-p", "no:xdist"), ("-n1",)]


@pytest.fixture
def project(pytester: pytest.Pytester, chat_server: ChatServer, api_key: str) -> pytest.Pytester:
    chat_server.reply = lambda body: proposal("End with an exclamation mark.")
    write_project(pytester, chat_server, TESTS, optimizer="openai:thinker", prices="thinker=1/1")
    return pytester


def paid(project: pytest.Pytester) -> list[str]:
    """A line for each rollout in which the agent was called."""
    file = project.path / "paid"
    return file.read_text().splitlines() if file.exists() else []


def kept(project: pytest.Pytester) -> dict[str, Any]:
    """The result of the only run."""
    (found,) = all_results(project.path)
    return found


def own(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["stage"]: row for row in result["usage"] if row["role"] == "own agent"}


@pytest.mark.parametrize("arguments", EXECUTORS, ids=" ".join)
def test_they_are_in_the_usage_of_the_run(
    project: pytest.Pytester, arguments: tuple[str, ...]
) -> None:
    done = project.runpytest_inprocess(*TRAIN, *arguments)
    assert done.ret == 0
    result = kept(project)
    stages = Counter(line.split()[-1] for line in paid(project))
    found = own(result)
    assert {stage: row["calls"] for stage, row in found.items()} == {
        stage: 2 * count for stage, count in stages.items()
    }
    rollouts = stages.total()
    assert result["rollouts"] == rollouts
    assert sum(row["input_tokens"] for row in found.values()) == 30 * rollouts
    assert sum(row["cost"] for row in found.values()) == pytest.approx(0.01 * rollouts)
    said = f"({2 * rollouts:,} of them reported by tests)"
    done.stdout.fnmatch_lines([f"*calls*{said}*"])
    (directory,) = (project.path / ".skillopt" / "runs").iterdir()
    assert said in (directory / "summary.md").read_text()
    assert said in (directory / "report.html").read_text()


@pytest.mark.parametrize("arguments", EXECUTORS, ids=" ".join)
def test_an_agent_is_told_its_model_and_a_key_for_its_cache(
    project: pytest.Pytester, chat_server: ChatServer, arguments: tuple[str, ...]
) -> None:
    project.makepyfile(
        test_greeting="""
        import pathlib, pytest

        TOLD = pathlib.Path(__file__).with_name("told")

        @pytest.mark.skill_task
        @pytest.mark.parametrize("name", ["Ada", "Ben"])
        def test_greeting(skill, rollout, name):
            target = rollout.target
            with TOLD.open("a") as file:
                print(target.model, target.base_url, target.api_key_env, file=file, end=" ")
                print(target.parameters, rollout.key, file=file)
            rollout.usage(input_tokens=1_000_000, output_tokens=100_000, model="worker")
        """
    )
    given = (
        "-o",
        "skillopt_target=openai:worker",
        "-o",
        "skillopt_requests=target.temperature = 0.5",
    )
    prices = ("-o", "skillopt_prices=worker=2/30")
    assert project.runpytest("-p", "no:xdist", *given).ret == 0, "an ordinary session tells it too"
    (project.path / "told").unlink()
    assert project.runpytest_inprocess("--skillopt", *arguments, *given, *prices).ret == 0
    told = [line.rsplit(" ", 1) for line in (project.path / "told").read_text().splitlines()]
    assert {said for said, _ in told} == {
        f"worker {chat_server.url} OPENAI_API_KEY {{'temperature': 0.5}}"
    }
    assert len({key for _, key in told}) == len(told) == 6
    result = kept(project)
    assert own(result)["eval"]["cost"] == pytest.approx(6 * 5.0)


def test_a_model_without_a_price_stops_a_run_that_is_capped_in_money(
    project: pytest.Pytester,
) -> None:
    project.makepyfile(
        test_greeting="""
        import pytest

        @pytest.mark.skill_task
        def test_greeting(skill, rollout):
            rollout.usage(input_tokens=1, model="unheard-of")
        """
    )
    given = ("--skillopt", "-p", "no:xdist", "--skillopt-max-cost=1")
    assert project.runpytest_inprocess(*given).ret == 1
    result = kept(project)
    assert result["status"] == "unmeasured"
    assert "no price is known for unheard-of" in result["reason"]


CAPS = ["--skillopt-max-calls=60", "--skillopt-max-tokens=1000", "--skillopt-max-cost=0.3"]


@pytest.mark.parametrize("cap", CAPS)
def test_they_count_towards_the_caps_of_a_training(project: pytest.Pytester, cap: str) -> None:
    project.runpytest_inprocess(*TRAIN, "-p", "no:xdist", cap)
    result = kept(project)
    used = {
        "--skillopt-max-calls": sum(row["calls"] for row in result["usage"]),
        "--skillopt-max-tokens": sum(
            row["input_tokens"] + row["output_tokens"] for row in result["usage"]
        ),
        "--skillopt-max-cost": sum(row["cost"] or 0 for row in result["usage"]),
    }
    option, _, limit = cap.partition("=")
    assert 0 < used[option] <= float(limit)
    assert own(result)


@pytest.mark.parametrize(
    ("cap", "arguments", "running"),
    [
        ("--skillopt-max-calls=13", EXECUTORS[1], 2),
        ("--skillopt-max-cost=0.065", EXECUTORS[0], 1),
    ],
)
def test_no_rollout_begins_once_a_cap_is_used_up(
    project: pytest.Pytester, cap: str, arguments: tuple[str, ...], running: int
) -> None:
    done = project.runpytest_inprocess("--skillopt", *arguments, cap)
    assert done.ret == 1, "no task passes"
    result = kept(project)
    name = cap.partition("=")[0].removeprefix("--").replace("-", "_")
    assert result["status"] == "measured", "as far as it went"
    assert f" before a cap ended it: {name}" in result["reason"]
    assert 7 <= len(paid(project)) <= 7 + running - 1
    assert own(result)["eval"]["calls"] == 2 * len(paid(project))
    assert result["rollouts"] == len(paid(project))


def test_the_calls_of_all_sessions_are_counted_once(project: pytest.Pytester) -> None:
    project.runpytest_inprocess(*TRAIN, "-p", "no:xdist", "--skillopt-max-calls=50")
    first = kept(project)
    before = len(paid(project))
    assert before
    done = project.runpytest_inprocess(*TRAIN, "-p", "no:xdist", "--skillopt-resume=latest")
    assert done.ret == 0
    result = kept(project)
    assert len(set(paid(project))) == len(paid(project))
    assert sum(row["calls"] for row in own(first).values()) == 2 * before
    assert sum(row["calls"] for row in own(result).values()) == 2 * len(paid(project))
    (skill,) = result["skills"]
    assert sum(row["calls"] for row in skill["tasks"]) > 2 * before


def test_rollouts_fetched_in_advance_are_kept_when_the_run_ends(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLOW", "0.1")
    done = project.runpytest_inprocess(*TRAIN, "-n3")
    assert done.ret == 0
    result = kept(project)
    journaled = len(latest_entries(project.path, "rollout"))
    assert journaled == len(paid(project)) == result["rollouts"]
    assert sum(row["calls"] for row in own(result).values()) == 2 * journaled


def test_figures_that_no_cap_could_hold_are_refused(project: pytest.Pytester) -> None:
    refused = {
        "calls=-1": "-1 is not a finite number from 0",
        "cost=float('nan')": "nan is not a finite number from 0",
        "calls=1.5": "cannot be interpreted as an integer",
    }
    project.makepyfile(
        test_greeting=f"""
        import contextlib, pytest

        @pytest.mark.skill_task
        @pytest.mark.parametrize("figure", {list(refused)})
        def test_it(rollout, figure):
            with contextlib.suppress(TypeError, ValueError):
                eval(f"rollout.usage({{figure}})", {{"rollout": rollout}})
        """
    )
    project.runpytest_inprocess("--skillopt", "-p", "no:xdist")
    result = kept(project)
    found = {row["id"]: row["before"] for row in result["skills"][0]["tasks"]}
    for figure, said in refused.items():
        measured = found[f"test_greeting.py::test_it[{figure}]"]
        assert measured["passed"] == 0
        assert said in measured["sample"]["message"]
