"""``pytest --skillopt-train`` and the other modes, as a user drives them, against a real server."""

from __future__ import annotations

import itertools
import json
import re
import sqlite3
import subprocess
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
import warm_sessions
from chat_server import Answer, asked_in, system_of
from fault_project import wait_for
from greetings import proposal
from refusals import assert_refused
from run_files import all_results, latest_entries, latest_result
from tables import each_row

if TYPE_CHECKING:
    from pathlib import Path

    from chat_server import Body, ChatServer

SKILL = b"---\r\nname: greeting\r\ndescription: Greets.\r\n---\r\n# Greeting\r\n\r\nSay hello."
RULE = "End every greeting with an exclamation mark."
TESTS = """
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("name", {names})
def test_greeting(skill_agent, name):
    \"\"\"Greets a guest.\"\"\"
    reply = skill_agent(f"Greet {{name}}.")
    assert reply.endswith("!"), f"no exclamation mark: {{reply}}"

def test_something_else():
    raise AssertionError("not a task: it must not run")
"""
NAMES = ["Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hal"]


def is_optimizer(body: Body) -> bool:
    return bool(body["model"] == "thinker")


def greet(body: Body) -> str:
    """The target follows the rule where the skill states it; the optimizer proposes it."""
    if is_optimizer(body):
        return json.dumps(
            {
                "reasoning": "every reply lacks it",
                "edits": [{"op": "append", "target": "", "content": RULE}],
            }
        )
    system = system_of(body)
    user = asked_in(body)
    return f"Hello{user[5:-1]}{'!' if 'exclamation' in system else '.'}"


class Project:
    """A scratch project whose models are played by the loopback server."""

    def __init__(self, pytester: pytest.Pytester, server: ChatServer) -> None:
        self.path = pytester.path
        self.server = server
        self._pytester = pytester
        server.reply = greet
        self.skill = self.path / "SKILL.md"
        self.skill.write_bytes(SKILL)
        self.write_tests(NAMES)
        pytester.makepyprojecttoml(
            f"""
            [tool.pytest.ini_options]
            skillopt_target = "openai:worker"
            skillopt_optimizer = "openai:thinker"
            skillopt_base_url = "{server.url}"
            """
        )

    def write_tests(self, names: list[str]) -> None:
        (self.path / "test_greeting.py").write_text(TESTS.format(names=names))

    def run(self, *arguments: str) -> pytest.RunResult:
        return self._pytester.runpytest_inprocess(*arguments)

    def train(self, *arguments: str) -> pytest.RunResult:
        """A training where it does not matter on how many samples it decides."""
        few = ("--skillopt-rollouts=1", "-oskillopt_final_rollouts=1")
        return self.run("--skillopt-train", *few, *arguments)

    def start(self, *arguments: str) -> warm_sessions.Session:
        return warm_sessions.start(*arguments, cwd=self.path)

    @property
    def runs(self) -> list[Path]:
        return sorted((self.path / ".skillopt" / "runs").iterdir())

    @property
    def result(self) -> dict[str, Any]:
        return latest_result(self.path)

    @property
    def target_calls(self) -> int:
        return sum(not is_optimizer(body) for body in self.server.bodies)


@pytest.fixture
def project(pytester: pytest.Pytester, chat_server: ChatServer, api_key: str) -> Project:
    return Project(pytester, chat_server)


@pytest.mark.parametrize("arguments", [("-p", "no:xdist"), ("-n", "2")])
def test_training_writes_a_better_skill_and_leaves_the_rest_of_the_file(
    project: Project, arguments: tuple[str, ...]
) -> None:
    result = project.run("--skillopt-train", "--strict-markers", *arguments)
    assert result.ret == 0
    assert project.skill.read_bytes().startswith(SKILL)
    assert RULE.encode() in project.skill.read_bytes()
    found = project.result
    assert found["status"] == "accepted"
    assert found["skills"][0]["written"]
    assert found["skills"][0]["suite"]["before"]["rate"] == 0.0
    assert found["skills"][0]["suite"]["after"]["rate"] == 1.0
    assert not found["simulated"]
    result.stdout.fnmatch_lines(
        [
            "skillopt: training SKILL.md on 8 tasks (*), K=3; target openai:worker; *",
            f"skillopt + {RULE} (+* points, more than 99 % sure to help)",
            "skillopt: the verdict on 1 edit against the skill as it is, by at most *",
            "*= skillopt =*",
            f"+{RULE}*",
            "*1 deselected, 8 measured*",
        ]
    )
    result.stdout.no_fnmatch_line("*failed*")
    verdicts = latest_entries(project.path, "verdict")
    assert verdicts[-1]["final"]
    assert all(verdict["tasks"] for verdict in verdicts)
    assert (project.runs[0] / "summary.md").exists()
    assert (project.runs[0] / "report.html").exists()


def test_a_second_run_is_answered_from_the_cache_and_a_finished_one_is_not_continued(
    project: Project,
) -> None:
    """Continued, it would write the skill anew, and the record of the run."""
    said = project.train().stdout.str()
    assert "is the test wrong?" not in said, "a failed assertion is not an error of the test"
    paid = project.server.calls
    (run,) = project.runs
    before = [(p, p.stat().st_mtime_ns) for p in (project.skill, run / "result.json")]
    assert_refused(
        project.train(f"--skillopt-resume={run.name}"),
        f"*run {run.name} is finished (accepted), there is nothing *",
    )
    assert [(p, p.stat().st_mtime_ns) for p, _ in before] == before
    project.skill.write_bytes(SKILL)
    result = project.train("--skillopt-cache=ro")
    assert result.ret == 0
    assert project.server.calls == paid
    first, second = all_results(project.path)
    assert second["skills"][0]["after"] == first["skills"][0]["after"]
    assert [s["verdict"] for s in second["skills"][0]["steps"]] == [
        s["verdict"] for s in first["skills"][0]["steps"]
    ]


def test_rows_of_the_cache_that_are_not_ours_are_reported_and_paid_for_again(
    project: Project,
) -> None:
    project.run("--skillopt", "-k", "Ada", "--skillopt-rollouts=2")
    with closing(sqlite3.connect(project.path / ".skillopt" / "cache" / "cache.db")) as database:
        database.execute("UPDATE Cache SET mode = 4, value = x'80049a'")
        database.commit()
    project.run("--skillopt", "-k", "Ada", "--skillopt-rollouts=2")
    assert project.server.calls == 4
    assert any("rows of" in note and "were refused" in note for note in project.result["notes"])


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("Read https://rules.acme-corp.io first.", "refused: "),
        ("Mind the reader.", "1 edit proposed, none of them new"),
    ],
)
def test_an_optimizer_with_one_edit_that_is_refused_or_lost_is_soon_asked_no_more(
    project: Project, line: str, step: str
) -> None:
    edits = [{"op": "append", "target": "", "content": line}]
    answer = json.dumps({"reasoning": "", "edits": edits})
    project.server.reply = lambda body: answer if is_optimizer(body) else greet(body)
    assert project.train("-p", "no:xdist").ret == 0
    assert len(list(filter(is_optimizer, project.server.bodies))) <= 30
    assert project.skill.read_bytes() == SKILL
    (skill,) = project.result["skills"]
    assert (skill["status"], skill["written"]) == ("unchanged", False)
    assert "more replies brought no edit to try" in skill["reason"]
    assert "the optimizer is asked no more" in skill["reason"]
    lines = [row["reason"] for row in skill["steps"]]
    assert any(step in line for line in lines)
    if step == "refused: ":
        why = next(line for line in lines if step in line).partition(step)[2]
        assert why in skill["reason"]


def test_an_optimizer_with_several_lost_edits_is_asked_longer(project: Project) -> None:
    """It draws from more edits than it has shown, perhaps; one that repeats itself does not."""
    lines = itertools.cycle(
        ["Mind the reader.", "Use short words.", "Check spelling twice.", "Stay calm always."]
    )

    def answer(body: Body) -> str:
        if not is_optimizer(body):
            return greet(body)
        return proposal(next(lines))

    project.server.reply = answer
    assert project.train("-p", "no:xdist").ret == 0
    assert len(list(filter(is_optimizer, project.server.bodies))) > 30


def test_selection_is_pytests_own(project: Project) -> None:
    project.train("-k", "Ada or Ben or Cleo or Dan")
    assert len(project.result["skills"][0]["tasks"]) == 4
    assert project.result["skills"][0]["shared_train_val"]
    assert any(
        "all of them decide, and a training takes its edits from them" in note
        for note in project.result["notes"]
    )


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["serial", "workers"])
def test_evaluation_judges_each_task_by_its_pass_rate(
    project: Project, workers: tuple[str, ...]
) -> None:
    project.server.reply = lambda body: (
        f"Hello{'!' if 'Ada' in body['messages'][-1]['content'] else '.'}"
    )
    arguments = ("--skillopt-rollouts=2", "--junitxml=junit.xml", "-x", *workers)
    result = project.run("--skillopt", *arguments)
    result.assert_outcomes(passed=1, failed=7)
    result.stdout.no_fnmatch_line("*stopping after*")
    assert result.ret == 1
    assert project.target_calls == 16
    xml = (project.path / "junit.xml").read_text()
    assert xml.count("<testcase") == 8
    assert "passed 0 of 2 rollouts" in xml
    assert xml.count('name="skillopt_pass_rate" value="0.0000"') == 7
    assert project.skill.read_bytes() == SKILL


def test_an_evaluation_in_which_all_is_skipped_says_so_and_why(project: Project) -> None:
    (project.path / "test_greeting.py").write_text(
        "import pytest\n\n@pytest.mark.skill_task\ndef test_later(skill): pytest.skip('later')\n"
    )
    result = project.run("--skillopt", "-rs")
    result.assert_outcomes(skipped=1)
    assert project.result["reason"] == "SKILL.md: every task was skipped"
    result.stdout.fnmatch_lines(
        ["*1 task skipped in every rollout: later", "SKIPPED*: skipped in every rollout: later"],
        consecutive=False,
    )


def test_tasks_that_are_skipped_beside_a_measured_one_say_why(project: Project) -> None:
    (project.path / "test_greeting.py").write_text(
        "import pytest\n\n@pytest.mark.skill_task\ndef test_later(skill): pytest.skip('later')\n"
        "@pytest.mark.skill_task\n@pytest.mark.skip\ndef test_never(skill): pass\n"
        "@pytest.mark.skill_task\ndef test_now(skill): pass\n"
    )
    never = "*1 task always skipped: no reason is given"
    result = project.run("--skillopt", "-rs")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines([never, "SKIPPED*: skipped in every rollout: later"])
    project.run("--skillopt", "--collect-only").stdout.fnmatch_lines([never])


SKIPPED = """
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("number", range(9))
def test_it(skill, number): pass
"""
NEEDS_AN_OPTION = """
import pytest

def pytest_addoption(parser):
    parser.addoption("--run-llm", action="store_true")

def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.skip("needs --run-llm"))
"""


@pytest.mark.parametrize("mode", [("--skillopt", "-n1"), ("--skillopt-train", "-p", "no:xdist")])
def test_a_suite_that_is_always_skipped_says_why(project: Project, mode: tuple[str, ...]) -> None:
    """As by a hook of the project, and so only after the tests were collected."""
    (project.path / "test_greeting.py").write_text(SKIPPED)
    (project.path / "conftest.py").write_text(NEEDS_AN_OPTION)
    ran = project.run(*mode)
    assert ran.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    ran.stdout.fnmatch_lines(["skillopt: 9 tasks always skipped: needs --run-llm"])
    ran.stdout.no_fnmatch_line("*no task was found*")


@each_row("more", [(), ("--collect-only",), ("-n1",)])
def test_a_suite_without_a_task_names_the_marker(project: Project, more: tuple[str, ...]) -> None:
    (project.path / "test_greeting.py").write_text("def test_it(): pass\n")
    ran = project.run("--skillopt-train", *more)
    assert ran.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    ran.stdout.fnmatch_lines(
        ["*1 test without the marker skill_task: left out", "*@pytest.mark.skill_task*"]
    )


@pytest.mark.parametrize("cap", ["--skillopt-max-calls=10", "--skillopt-max-rollouts=10"])
def test_an_evaluation_that_met_a_cap_says_what_it_has_measured(project: Project, cap: str) -> None:
    project.server.reply = lambda body: "Hello!"
    result = project.run("--skillopt", "--skillopt-rollouts=2", cap)
    assert result.ret == 0
    rollouts = 9 if "calls" in cap else 10  # the call that looks whether the model is there
    assert project.server.calls == rollouts
    (skill,) = project.result["skills"]
    assert project.result["status"] == skill["status"] == "measured"
    assert sorted(task["before"]["n"] for task in skill["tasks"]) == [1] * (16 - rollouts) + [2] * (
        rollouts - 8
    )
    said = skill["reason"].replace("-", "_")
    assert f": {rollouts} rollouts before a cap ended it: " in said
    assert cap.partition("=")[0].replace("-", "_").strip("_") in said
    assert skill["reason"].endswith("; repeat the command to go on, after a cap with a higher one")


def test_tasks_that_a_cap_left_out_are_skipped_and_named(project: Project) -> None:
    project.server.reply = lambda body: "Hello!"
    result = project.run("--skillopt", "--skillopt-max-rollouts=5")
    result.assert_outcomes(passed=5, skipped=3)
    assert project.server.calls == 5
    result.stdout.fnmatch_lines(["caution: 3 of 8 tasks were not measured: a cap ended the run."])


def test_a_task_that_could_not_be_measured_says_what_it_met(project: Project) -> None:
    project.server.reply = lambda body: Answer.error(500, "the disk is full", retry_after="0.01")
    result = project.run("--skillopt", "-k", "Ada or Ben")
    assert result.ret == 1
    assert "2 of 2 tasks could not be measured" in project.result["reason"]
    assert "the disk is full" in project.result["reason"]
    result.stdout.fnmatch_lines(
        [
            "never measured: 3 rollouts ended in an infrastructure error",
            "*HTTP 500: the disk is full (after 7 tries)",
            "*= skillopt =*",
        ]
    )


@each_row("mode", ["--skillopt", "--skillopt-train", "--skillopt-check=HEAD"])
def test_the_plan_costs_no_call_and_leaves_no_file(project: Project, mode: str) -> None:
    result = project.run(mode, "--collect-only")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["SKILL.md: 8 tasks*", "rollouts: *"])
    assert not [*project.server.requests, *project.server.probes]
    assert not (project.path / ".skillopt").exists()


def test_a_skill_that_changes_meanwhile_is_not_overwritten(project: Project) -> None:
    def reply(body: Body) -> str:
        if is_optimizer(body):
            project.skill.write_bytes(SKILL + b" And smile.")
        return greet(body)

    project.server.reply = reply
    result = project.train()
    assert result.ret == 0
    assert project.skill.read_bytes() == SKILL + b" And smile."
    said = " ".join(result.stdout.str().split())
    assert "NOT written: " in said
    assert "/SKILL.md was changed during the run; the change is in " in said
    assert RULE in (project.runs[0] / "skill.patch").read_text()


def test_a_missing_skill_names_the_way_out(project: Project) -> None:
    project.skill.unlink()
    for options, said in (
        ((), "*no SKILL.md under *, or write one (docs/getting-started.md)"),
        (("-n2",), "*no SKILL.md under *"),
        (("-oskillopt_skill=skills/greet/SKILL.md",), "*no such file; *, or write one (docs/*"),
    ):
        assert_refused(project.train(*options), said)
    assert project.server.calls == 0
    assert not project.skill.exists()


def test_check_tells_a_worse_edit_and_names_what_broke(project: Project) -> None:
    good = SKILL + b"\r\n\r\n" + RULE.encode()
    commit(project.path, good)
    same = project.run("--skillopt-check=HEAD")
    assert same.ret == 0
    assert project.server.calls == 0
    assert not project.server.probes, "nothing was run, nothing is paid"
    project.skill.write_bytes(SKILL)
    worse = project.run("--skillopt-check=HEAD")
    assert worse.ret == 1
    assert len(project.server.probes) == 1
    assert project.result["status"] == "rejected"
    worse.stdout.fnmatch_lines(["*test_greeting*"])
    project.skill.write_bytes(good + b"\r\nBe kind.")
    assert project.run("--skillopt-check=HEAD").ret == 0


def commit(path: Path, skill: bytes) -> None:
    (path / "SKILL.md").write_bytes(skill)
    for command in (
        ["init", "-q"],
        ["add", "SKILL.md"],
        ["commit", "-q", "-m", "start"],
    ):
        subprocess.run(["git", *command], cwd=path, check=True)


BAD_OPTIONS: list[tuple[tuple[str, ...], str]] = [
    (("--skillopt-target=gpt",), "*target model 'gpt'*provider:model*"),
    (("-oskillopt_split=1:0:1",), "*'1:0:1' is not a ratio*"),
    (("-x",), "*--skillopt-train cannot be combined with -x*"),
    (("--maxfail=3",), "*cannot be combined with -x / --maxfail*"),
    (("--sw",), "*cannot be combined with --sw*"),
    (("--lf",), "*cannot be combined with --lf*"),
    (("--pdb",), "*cannot be combined with --pdb*"),
    (("-f",), "*cannot be combined with -f / --looponfail*"),
    (("--skillopt",), "*--skillopt and --skillopt-train*"),
    (("--skillopt-check-strict",), "*needs --skillopt-check*"),
    (("--skillopt-save-baseline",), "*no longer exists: *.skillopt/cache answers*"),
    (("--skillopt-resume=x",), "*there is no training 'x'*"),
    (("--skillopt-max-cost=1",), "*skillopt_prices*"),
    (("-oskillopt_published=epochs: 0",), "*skillopt_published: epochs: 0 is out*"),
]


@each_row(("arguments", "message"), BAD_OPTIONS)
def test_bad_options_are_a_usage_error_and_cost_nothing(
    project: Project, arguments: tuple[str, ...], message: str
) -> None:
    check_refusal(project, message, *arguments)
    assert project.skill.read_bytes() == SKILL


@each_row("option", ["--trace", "--setup-only"])
def test_no_mode_takes_options_under_which_no_test_runs(project: Project, option: str) -> None:
    assert_refused(project.run("--skillopt", option), f"*--skillopt cannot be*with {option}*")
    assert project.server.calls == 0


@each_row(("data", "message"), [(b"\xff\xfe", "*SKILL.md*UTF-8*"), (b"", "*SKILL.md*empty*")])
def test_a_bad_skill_is_a_usage_error_and_costs_nothing(
    project: Project, data: bytes, message: str
) -> None:
    project.skill.write_bytes(data)
    check_refusal(project, message)
    assert project.skill.read_bytes() == data


@each_row(
    ("name", "message"),
    [("a\xa0b.md", r"'a\xa0b.md': *cannot be shown"), ("prompt.txt2", "prompt.txt2: only text")],
)
def test_a_skill_that_adopt_could_not_write_is_refused_before_any_call(
    project: Project, name: str, message: str
) -> None:
    project.skill.with_name(name).write_bytes(SKILL)
    check_refusal(project, f"*{message}*", f"-oskillopt_skill={name}")


def check_refusal(project: Project, message: str, *arguments: str) -> None:
    """Check that a training ends before any call, with this message."""
    assert_refused(project.run("--skillopt-train", *arguments), f"ERROR: {message}")
    assert project.server.calls == 0


def test_frontmatter_that_does_not_parse_is_left_alone(project: Project) -> None:
    odd = SKILL.replace(b"Greets.", b"[unclosed: {")
    project.skill.write_bytes(odd)
    assert project.train().ret == 0
    assert project.skill.read_bytes().startswith(odd)
    assert any("frontmatter" in note for note in project.result["notes"])


def test_a_cap_is_kept_and_the_run_ends_cleanly(project: Project) -> None:
    result = project.run("--skillopt-train", "--skillopt-max-calls=30")
    assert result.ret in (0, 1)
    assert project.server.calls <= 30
    assert project.skill.read_bytes() == SKILL
    resume = f"--skillopt-resume={project.runs[0].name}"
    result.stdout.fnmatch_lines(["Nothing to merge yet.", f"*{resume}"])


def test_a_run_that_ended_early_is_offered_once_and_only_where_it_would_be_taken(
    project: Project,
) -> None:
    capped = ("--skillopt-train", "--skillopt-max-calls=15")
    project.run(*capped)
    (first,) = project.runs
    offer = f"*run {first.name} ended early; --skillopt-resume={first.name} continues it*"
    project.run(*capped).stdout.fnmatch_lines([offer])
    assert first.name not in json.dumps(project.result["notes"])
    project.skill.write_bytes(SKILL + b"\r\nBe kind.")
    project.run(*capped).stdout.no_fnmatch_line("*ended early; --skillopt-resume*")


def test_a_wrong_key_stops_at_once_with_the_providers_words(project: Project) -> None:
    answer = project.server.answer
    project.server.reply = lambda body: answer.error(401, "Incorrect API key provided")
    result = project.run("--skillopt-train")
    assert result.ret == 1
    assert project.server.calls <= 2
    result.stdout.fnmatch_lines(["*Incorrect API key provided*"])
    assert project.skill.read_bytes() == SKILL


def test_a_killed_run_continues_under_a_cap_without_paying_twice(project: Project) -> None:
    """Without one: ``tests/test_faults.py``."""
    train = ("--skillopt-train", "--skillopt-cache=off", "--skillopt-max-rollouts=60")
    undisturbed = project.run(*train)
    assert undisturbed.ret == 0
    reference = project.result["skills"][0]
    paid = project.server.calls
    project.skill.write_bytes(SKILL)
    project.server.requests.clear()

    project.server.hold(after=40)
    process = project.start(*train)
    assert wait_for(lambda: project.server.calls > 40, process)
    process.kill()
    process.communicate()
    project.server.release()
    assert project.skill.read_bytes() == SKILL
    hint = project.run("--skillopt", "--collect-only")
    assert hint.ret == 0
    assert project.run(*train, "--skillopt-resume=latest").ret == 0
    # What was in flight at the kill is lost, and what was answered a moment before.
    assert project.server.calls < paid + 20
    resumed = project.result["skills"][0]
    for part in ("after", "status", "suite", "val", "test", "verdict"):
        assert resumed[part] == reference[part], part
    assert sum(row["calls"] for row in project.result["usage"]) >= project.server.calls - 8
    assert not any("resume" in word for word in project.result["command"])


def test_another_candidate_is_compared_with_fresh_samples_of_the_skill_on_disk(
    project: Project,
) -> None:
    """From the cache comes nothing but what a comparison of the same two has paid for."""

    def paid() -> dict[tuple[str, str], int]:
        calls: Counter[tuple[str, str]] = Counter()
        for data in latest_entries(project.path, "rollout"):
            stage = data["request"]["stream"].partition("/")[0]
            calls[stage, data["request"]["version"]] += data["usage"]["calls"]
        return calls

    assert project.train("-p", "no:xdist").ret == 0
    start = project.result["skills"][0]["before"]
    first = paid()
    assert first["final", start] > 0
    project.skill.write_bytes(SKILL)
    words = RULE.replace("End every", "Finish each")
    project.server.reply = lambda body: greet(body).replace(RULE, words)
    asked_anew = "skillopt_preferences=Other words."
    assert project.train("-p", "no:xdist", "-o", asked_anew).ret == 0
    assert words.encode() in project.skill.read_bytes()
    assert paid()["final", start] == first["final", start]


TWO_KINDS = """
import pytest

GUESTS = [pytest.param(n, marks=pytest.mark.skill_task(split=split)) for n, split in {guests}]

@pytest.mark.parametrize("name", GUESTS)
def test_guest(skill_agent, name):
    assert skill_agent(f"Greet {{name}}.").endswith("!")

@pytest.mark.skill_task(split="train")
@pytest.mark.parametrize("name", {mourners})
def test_mourner(skill_agent, name):
    assert "!" not in skill_agent(f"Greet {{name}}.")
"""
GUESTS = [*NAMES, *(f"{name} Sr" for name in NAMES)]
"""Their model repeats its replies: only val tasks count, so there are eight of them."""


@pytest.mark.parametrize("marker", ["", ", must_pass=True"])
def test_a_task_that_the_edit_breaks_is_named_first(project: Project, marker: str) -> None:
    """It refuses the edit where it must pass."""
    guests = list(zip(GUESTS, ["train", "val"] * 8, strict=True))
    (project.path / "test_greeting.py").write_text(
        TWO_KINDS.format(guests=guests, mourners=[])
        + f"""
@pytest.mark.skill_task(split="val"{marker})
def test_a_funeral(skill_agent):
    assert "!" not in skill_agent("Greet the mourners.")
"""
    )
    project.train("-p", "no:xdist")
    assert (project.skill.read_bytes() == SKILL) == bool(marker)
    (found,) = project.result["skills"]
    assert found["status"] == ("rejected" if marker else "accepted")
    must = "must pass, but " if marker else ""
    broken = re.escape(f"{must}broken: test_greeting.py::test_a_funeral (passed ")
    assert re.match(rf"{broken}(\d+) of \1 before, 0 of \1 after\)", found["reason"])
    changes = {task["id"]: task["change"] for task in found["tasks"]}
    assert changes["test_greeting.py::test_a_funeral"] == "broken"
    assert not project.result["resume"]


@pytest.mark.parametrize(("mended", "broken", "status"), [(2, 3, "rejected"), (16, 1, "accepted")])
def test_a_train_task_that_breaks_is_counted_and_named_first(
    project: Project, mended: int, broken: int, status: str
) -> None:
    """The edit is for the tasks that failed; the final comparison sees every task."""
    guests = list(zip(GUESTS[:mended], ["train", "val"] * mended, strict=False))
    tests = TWO_KINDS.format(guests=guests, mourners=["Ash", "Bea", "Cy"][:broken])
    (project.path / "test_greeting.py").write_text(tests)
    result = project.run("--skillopt-train", "-p", "no:xdist")
    result.stdout.fnmatch_lines([f"*only {mended // 2} val task*: the gate can detect only large*"])
    (found,) = project.result["skills"]
    assert found["status"] == status
    assert (project.skill.read_bytes() == SKILL) == (status == "rejected")
    name = "test_greeting.py::test_mourner[Ash]"
    wanted = rf"broken: {re.escape(name)} \(passed (\d+) of \1 before, 0 of \1 after\)"
    assert re.match(wanted, found["reason"])
    summary = re.sub(r"[\\\u200b]", "", (project.runs[0] / "summary.md").read_text())
    for shown in (result.stdout.str().partition("= skillopt =")[2], summary):
        rates = re.search(r"pass rate\W+before", shown)
        assert rates
        assert shown.index(name) < min(rates.start(), shown.index("test_guest"))


def test_a_new_command_is_shown_in_every_report(project: Project) -> None:
    rule = f"{RULE} Check with `rg -c '!' greeting.txt`."
    project.server.reply = lambda body: greet(body).replace(RULE, rule)
    ran = project.train()
    assert ran.ret == 0
    (skill,) = project.result["skills"]
    assert [row["rule"] for row in skill["warnings"]] == ["command"]
    ran.stdout.fnmatch_lines(
        [
            "Accepted, but look closer before merging.",
            "caution: The edits add text to look at, shown below (command).",
            "caution: a shell command that stands neither in the skill nor in its train tasks",
            "  (command): \"rg -c '!' greeting.txt\"",
        ]
    )
    for name in ("report.html", "summary.md"):
        text = (project.runs[-1] / name).read_text()
        assert "a shell command that stands neither in the skill nor in its train tasks" in text
