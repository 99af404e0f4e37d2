"""The example of every hook's docstring, run as a user's ``conftest.py``."""

from __future__ import annotations

import inspect
import itertools
import json
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chat_server import system_of
from greetings import greet
from refusals import assert_refused
from run_files import latest_entries, latest_result
from tables import each_row

import pytest_skillopt
from pytest_skillopt import hookspecs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chat_server import Body, ChatServer

SKILL = b"---\nname: greeting\ndescription: Greets.\n---\n# Greeting\n\nSay hello.\n"
RULE = "End every greeting with an exclamation mark."
FUSS = "Take great care over the tone of every greeting, whoever the guest may happen to be."
NAMES = ["Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hal"]
HOOKS = [name for name in vars(hookspecs) if name.startswith("pytest_skillopt_")]


PAGE = (Path(__file__).parent.parent / "docs" / "hooks.md").read_text(encoding="utf-8")


def example(hook: str) -> str:
    """The code of a hook's section on the page."""
    section = PAGE.split(f"\n### `{hook}(")[1].split("\n### ")[0]
    return section.split("```python\n")[1].split("```")[0]


def test_the_page_says_of_each_hook_its_arguments_and_which_results_count() -> None:
    found = re.findall(r"^### `(\w+)\((.*)\)`: (one|each)$", PAGE, re.MULTILINE)
    assert sorted(name for name, _, _ in found) == sorted(HOOKS)
    for name, arguments, results in found:
        spec = vars(hookspecs)[name]
        assert arguments == ", ".join(inspect.signature(spec).parameters)
        assert spec.pytest_spec["firstresult"] == (results == "one"), name


def reply_with(*contents: str) -> str:
    edits = [{"op": "append", "target": "", "content": content} for content in contents]
    return json.dumps({"reasoning": "every reply lacks it", "edits": edits})


class Project:
    """A scratch project whose models are played by the loopback server."""

    def __init__(self, pytester: pytest.Pytester, server: ChatServer) -> None:
        self.path = pytester.path
        self.server = server
        self.edits: Sequence[str] = [RULE]
        """Texts of the edits that the optimizer proposes."""
        self._pytester = pytester
        server.reply = self._play
        (self.path / "SKILL.md").write_bytes(SKILL)
        self.write_test('assert skill_agent(f"Greet {name}.").endswith("!"), "no exclamation mark"')
        pytester.makeini(
            f"""
            [pytest]
            skillopt_target = openai:worker
            skillopt_optimizer = openai:thinker
            skillopt_base_url = {server.url}
            skillopt_rollouts = 1
            skillopt_final_rollouts = 2
            skillopt_max_attempts = 1
            """
        )

    def _play(self, body: Body) -> str:
        if body["model"] == "thinker":
            return reply_with(*self.edits)
        return greet(body)

    def write_test(self, statement: str) -> None:
        (self.path / "test_greeting.py").write_text(
            textwrap.dedent(
                f"""
                import sqlite3
                import pytest

                @pytest.mark.skill_task
                @pytest.mark.parametrize("name", {NAMES})
                def test_greeting(skill_agent, name):
                    '''Greets a guest.'''
                    {statement}
                """
            )
        )

    def use(self, *hooks: str) -> None:
        (self.path / "conftest.py").write_text("\n".join(map(example, hooks)))

    def run(self, *arguments: str) -> pytest.RunResult:
        return self._pytester.runpytest_inprocess(*arguments)

    @property
    def run_directory(self) -> Path:
        return sorted((self.path / ".skillopt" / "runs").iterdir())[-1]

    @property
    def result(self) -> dict[str, Any]:
        return latest_result(self.path)

    @property
    def skill(self) -> str:
        return (self.path / "SKILL.md").read_text()

    @property
    def asked_to_merge(self) -> bool:
        return any("Several analysts" in prompt for prompt in self.prompts("thinker"))

    def prompts(self, model: str) -> list[str]:
        return [json.dumps(b["messages"]) for b in self.server.bodies if b["model"] == model]


@pytest.fixture
def project(
    pytester: pytest.Pytester, chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> Project:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    return Project(pytester, chat_server)


def test_every_example_is_run_here() -> None:
    assert len(HOOKS) == 21
    here = Path(__file__).read_text(encoding="utf-8")
    for hook in HOOKS:
        code = example(hook)
        compile(code, hook, "exec")
        assert code.startswith(("# conftest.py\n", "# greeter.py"))
        assert re.search(rf"^def {hook}\(", code, re.MULTILINE), hook
        assert f'"{hook}"' in here, hook


@each_row("hook", HOOKS)
def test_every_type_of_a_signature_is_public(hook: str) -> None:
    known = {"Sequence", "Mapping", "Callable", "Path", "BaseException", "str", "None", "type"}
    known |= {"Any", "pytest", "Config", "Item", "Session", "argparse", "_SubParsersAction"}
    for said in inspect.get_annotations(getattr(hookspecs, hook)).values():
        for name in set(re.findall(r"\w+", said)) - known:
            assert getattr(pytest_skillopt, name), name


@pytest.mark.parametrize("arguments", [(), ("-n", "1")])
def test_client(project: Project, arguments: tuple[str, ...]) -> None:
    project.use("pytest_skillopt_client")
    project.write_test('assert skill_agent(f"Greet {name}.") == "42"')
    project.run("--skillopt", *arguments).assert_outcomes(passed=len(NAMES))
    assert project.server.calls == 0
    assert project.result["models"]["target"] == "canned:1"
    assert project.result["simulated"]


def test_settings(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "1")
    project.use("pytest_skillopt_settings")
    conftest = project.path / "conftest.py"
    conftest.write_text(conftest.read_text().replace('"max_cost"', '"max_calls"'))
    project.run("--skillopt")
    kept = project.result["settings"]
    assert (kept["rollouts"], kept["max_calls"]) == (1, 5)
    project.run("--skillopt", "--skillopt-max-calls=9")
    assert project.result["settings"]["max_calls"] == 9
    conftest.write_text("def pytest_skillopt_settings(config): return {'max_call': 1}\n")
    assert_refused(
        project.run("--skillopt"), "*pytest_skillopt_settings: max_call is not a setting (*"
    )


def test_classify_error(project: Project) -> None:
    project.write_test('raise sqlite3.OperationalError("database is locked")')
    project.run("--skillopt")
    assert project.result["status"] == "measured"
    assert project.result["errors"] == 0
    project.use("pytest_skillopt_classify_error")
    result = project.run("--skillopt")
    assert result.ret == 1
    assert project.result["status"] == "unmeasured"
    errors = [row["error"] for row in latest_entries(project.path, "error")]
    assert len(errors) > 1, "the run may end before all tasks were tried"
    assert {error["kind"] for error in errors} == {"setup"}
    assert errors[0]["message"] == "the database is busy: database is locked"


RAISED = "pytest_skillopt_classify_error in {conftest}: ZeroDivisionError: division by"


@each_row(
    ("body", "said", "where"),
    [
        ("1 / 0", RAISED, ("-p", "no:xdist")),
        ("1 / 0", RAISED, ("-n1",)),
        (
            "return 'busy'",
            "pytest_skillopt_classify_error in {conftest} returned str: an InfraError",
            ("-n1", "--skillopt-lanes=2"),
        ),
    ],
)
def test_a_fault_of_a_hook_in_a_rollout_ends_the_run_by_its_name(
    project: Project, body: str, said: str, where: tuple[str, ...]
) -> None:
    project.write_test('skill_agent("Hi"); raise sqlite3.OperationalError("locked")')
    conftest = project.path / "conftest.py"
    conftest.write_text(f"def pytest_skillopt_classify_error():\n    {body}\n")
    before = len(project.prompts("worker"))
    done = project.run("--skillopt-train", "-oskillopt_max_attempts=3", *where)
    assert (done.ret, project.result["status"]) == (1, "unmeasured")
    assert said.format(conftest=conftest) in project.result["reason"]
    assert "Traceback" not in done.stdout.str()
    assert len(project.prompts("worker")) - before <= 2, "nothing is tried again"


def test_step_prompt_check_edit_and_update(project: Project) -> None:
    project.edits = [FUSS, RULE]
    project.use(
        "pytest_skillopt_step",
        "pytest_skillopt_prompt",
        "pytest_skillopt_check_edit",
        "pytest_skillopt_update",
    )
    project.run("--skillopt-train")
    told = (project.path / "steps.txt").read_text().splitlines()
    (skill,) = project.result["skills"]
    assert told == [f"{s['step']} {s['verdict']} {s['reason']}" for s in skill["steps"]]
    assert any("1 kept" in line for line in told)
    first = project.prompts("thinker")[0]
    assert re.search(r"Propose at most \d+ edits, one short sentence each, in French\.", first)
    assert "You improve a skill" not in first
    (refused,) = (edit["why"] for edit in skill["edits"] if FUSS in edit["content"])
    assert refused == "an edit must be short: at most twelve words"
    assert f"\n- {RULE}\n" in project.skill


def test_reflect(project: Project) -> None:
    project.use("pytest_skillopt_reflect")
    project.write_test('assert skill_agent(f"Greet {name} in JSON.").json() == {}')
    project.server.reply = lambda body: "{}" if "JSON only" in system_of(body) else "Hello."
    assert project.run("--skillopt-train").ret == 0
    assert project.result["status"] == "accepted"
    assert "\nAnswer with JSON only." in project.skill
    edits = project.result["skills"][0]["edits"]
    assert [e["reason"] for e in edits if e["status"] == "accepted"] == ["house rule"]
    assert not [prompt for prompt in project.prompts("thinker") if "You improve a skill" in prompt]


def test_aggregate(project: Project) -> None:
    analysts = itertools.cycle([RULE, FUSS])
    project.server.reply = lambda body: (
        reply_with(next(analysts)) if body["model"] == "thinker" else "Hello."
    )
    published = "{minibatch_size: 1, edit_budget: 1, epochs: 1}"
    batch = ("--skillopt-train", "--skillopt-search=batch", f"-oskillopt_published={published}")
    project.run(*batch, "--skillopt-cache=off")
    assert project.asked_to_merge
    project.server.requests.clear()
    project.use("pytest_skillopt_aggregate")
    project.run(*batch, "--skillopt-cache=off")
    assert project.prompts("thinker")
    assert not project.asked_to_merge


def test_select(project: Project) -> None:
    project.edits = [FUSS, RULE]
    project.use("pytest_skillopt_select")
    conftest = project.path / "conftest.py"
    conftest.write_text(conftest.read_text().replace("context.budget", "1"))
    published = "-oskillopt_published={epochs: 1}"
    project.run("--skillopt-train", "--skillopt-search=batch", published)
    assert RULE in project.skill
    assert FUSS not in project.skill


def test_opened_result_report_and_finished(project: Project) -> None:
    project.use(
        "pytest_skillopt_opened",
        "pytest_skillopt_result",
        "pytest_skillopt_report",
        "pytest_skillopt_finished",
    )
    project.run("--skillopt")
    notes = project.result["notes"]
    assert {"8 tasks on this machine", "it was a evaluate run"} <= set(notes)
    text = (project.run_directory / "status.txt").read_text()
    assert text == f"measured: {project.result['reason']}"
    assert (project.run_directory / "done.txt").read_text() == "measured"


def test_task(project: Project) -> None:
    """The agents that it names are part of the result, and of a task's identity."""
    project.write_test('assert skill_agent(f"Greet {name}.")')
    test = project.path / "test_greeting.py"
    fixture = (
        "@pytest.fixture\ndef greeter(): pass\n\npytestmark = pytest.mark.usefixtures('greeter')\n"
    )
    test.write_text(f"{test.read_text()}\n{fixture}")
    project.run("--skillopt")
    calls = project.server.calls
    project.use("pytest_skillopt_task")
    project.run("--skillopt", "--skillopt-cache=off")
    assert project.result["versions"]["greeter"] == "1.2"
    assert project.server.calls == calls + len(NAMES)


def test_an_unknown_field_of_a_task_is_refused(project: Project) -> None:
    conftest = "def pytest_skillopt_task(item): return {'agents': 'greeter 1'}\n"
    (project.path / "conftest.py").write_text(conftest)
    assert_refused(project.run("--skillopt"), "*pytest_skillopt_task: 'agents' is none of agent, *")


def test_lint_rules(project: Project) -> None:
    loud = "ALWAYS end a greeting with an exclamation mark."
    project.edits = [loud]
    project.use("pytest_skillopt_lint_rules")
    project.run("--skillopt-train")
    (edit,) = project.result["skills"][0]["edits"]
    assert edit["why"] == "a word in capitals: ALWAYS (shouting)"
    project.run("--skillopt-train", "-oskillopt_lint_allow=shouting")
    assert loud in project.skill


def test_searches_and_rules(project: Project) -> None:
    project.use("pytest_skillopt_searches", "pytest_skillopt_rules")
    told = project.run("--skillopt-train", "--skillopt-search=other")
    told.stderr.fnmatch_lines(["*skillopt_search: 'other' is not one of trials, *last*"])
    project.run("--skillopt-train", "--skillopt-search=last", "-oskillopt_gate=none-lost")
    assert project.result["status"] == "accepted"
    gates = {step["gate"] for step in project.result["skills"][0]["steps"]}
    assert gates - {""} == {"none-lost"}
    assert RULE in project.skill


def test_modes(project: Project) -> None:
    project.use("pytest_skillopt_modes")
    told = project.run("--skillopt-count")
    told.stdout.fnmatch_lines(["skillopt: counting the tasks of SKILL.md on 8 tasks*"])
    assert (project.result["mode"], project.result["reason"]) == ("count", "8 tasks")
    assert_refused(
        project.run("--skillopt-count", "--skillopt-train"),
        "*--skillopt-train and --skillopt-count cannot be combined",
    )


def test_runner(project: Project) -> None:
    project.use("pytest_skillopt_runner")
    conftest = project.path / "conftest.py"
    line = "            rollout = self.runner.run(request)\n"
    noted = line + "            print(request.task, file=open('run.txt', 'a'))\n"
    conftest.write_text(conftest.read_text().replace(line, noted))
    project.run("--skillopt", "-n1").assert_outcomes(failed=len(NAMES))
    assert project.result["rollouts"] == len(NAMES)
    assert len((project.path / "run.txt").read_text().splitlines()) == len(NAMES)


@each_row(
    ("line", "said"),
    [
        ("raise ValueError('boom')", "ValueError: boom"),
        (
            "return self.deliver('text')",
            "TypeError: deliver was given a str: a Rollout is expected",
        ),
        ("raise SystemExit(3)", "pytest_skillopt_runner: SystemExit(3)"),
    ],
)
def test_a_runner_that_fails_keeps_what_was_paid_and_is_named(
    project: Project, line: str, said: str
) -> None:
    """It and its close fail as long as there is a file."""
    project.use("pytest_skillopt_runner")
    conftest = project.path / "conftest.py"
    cause = project.path / "cause"
    text = conftest.read_text()
    for line_after, fault in (
        ("        with self.watchdog", f"        if 'Eve' in request.task and CAUSE(): {line}\n"),
        ("        return self.runner.close()", "        if CAUSE(): raise OSError('late')\n"),
    ):
        text = text.replace(line_after, fault + line_after)
    conftest.write_text(f"from pathlib import Path\nCAUSE = Path({str(cause)!r}).exists\n{text}")
    cause.touch()
    (project.path / "SKILL.md").write_bytes(SKILL)
    before = len(project.prompts("worker"))
    done = project.run("--skillopt-train", "-n1", "-oskillopt_cache=off")
    assert said in project.result["reason"]
    assert "pytest_skillopt_runner" in project.result["reason"]
    assert (str(conftest) in project.result["reason"]) == ("SystemExit" not in line)
    assert (done.ret, project.result["status"]) == (1, "unmeasured")
    assert "INTERNALERROR" not in done.stdout.str()
    assert f"gw0: pytest_skillopt_runner in {conftest}: OSError: late" in done.stdout.str()
    assert project.result["rollouts"] > 1
    if "boom" not in line:
        return
    cause.unlink()
    _, *arguments = shlex.split(project.result["resume"])
    whole = project.run(*arguments)
    assert project.result["status"] == "accepted", whole.stdout.str()
    measured = [one for one in latest_entries(project.path, "rollout") if not one.get("error")]
    asked = len(project.prompts("worker")) - before
    assert asked == len(measured), "nothing is paid twice"


def test_commands(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the group of entry points that the page names."""
    (project.path / "greeter.py").write_text(example("pytest_skillopt_commands"))
    about = project.path / "greeter-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: greeter\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[pytest_skillopt]\ngreeter = greeter\n")
    monkeypatch.setenv("PYTHONPATH", str(project.path))
    command = [sys.executable, "-m", "pytest_skillopt", "greet", "Ada"]
    assert subprocess.check_output(command, text=True) == "Hello Ada\n"


def test_the_trainer_needs_no_pytest_session(pytester: pytest.Pytester) -> None:
    """The program of ``docs/python.md``, word for word, in a process of its own."""
    document = Path(__file__).parent.parent / "docs" / "python.md"
    code = document.read_text().split("```python\n")[1].split("```")[0]
    code += "import sys; assert not {'xdist', 'openai'} & sys.modules.keys()"
    result = pytester.run(sys.executable, "-W", "error", "-c", code)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["accepted - *", "End with an exclamation mark."])


RETURNED = {
    "settings": ("7", "a dict of settings by name"),
    "client": ("object()", "a Model"),
    "prompt": ("7", "a text"),
    "reflect": ("['an edit']", "a list of Patch"),
    "aggregate": ("['an edit']", "a Patch"),
    "select": ("iter(())", "a Patch"),
    "update": ("patch", "an Update"),
    "opened": ("['a note']", "a text"),
    "task": ("7", "a dict of fields by name"),
    "lint_rules": (
        "[pytest_skillopt.LintRule('mine', 'severe', 'a word', list)]",
        "a list of LintRule that refuse or warn",
    ),
    "check_edit": ("7", "a function of an edit and the text that it adds"),
    "searches": ("{'mine': 7}", "a dict of functions by name, each of which makes a Search"),
    "rules": ("['mine']", "a dict of functions by name, each of which returns a gate"),
    "modes": ("['count']", "a list of Mode"),
}


@each_row("hook", RETURNED)
def test_a_result_of_a_wrong_type_is_refused_by_the_name_of_its_hook(
    project: Project, hook: str
) -> None:
    value, wanted = RETURNED[hook]
    arguments = ", ".join(inspect.signature(vars(hookspecs)[f"pytest_skillopt_{hook}"]).parameters)
    conftest = project.path / "conftest.py"
    source = f"def pytest_skillopt_{hook}({arguments}):\n    return {value}\n"
    conftest.write_text(f"import pytest_skillopt\n\n{source}")
    done = project.run("--skillopt-train", "-p", "no:xdist")
    assert_refused(
        done, f"*pytest_skillopt_{hook} in {conftest} returned *: {wanted} is expected *"
    )


@each_row(
    ("hook", "body", "said"),
    [
        ("result", "1 / 0", "pytest_skillopt_result in "),
        ("report", "1 / 0", "pytest_skillopt_report in "),
        ("finished", "1 / 0", "pytest_skillopt_finished in "),
        ("report", "return {'../status.txt': ''}", "pytest_skillopt_report in "),
    ],
)
def test_a_fault_of_a_plugin_after_the_last_call_loses_no_report(
    project: Project, hook: str, body: str, said: str
) -> None:
    (project.path / "conftest.py").write_text(f"def pytest_skillopt_{hook}():\n    {body}\n")
    shown = " ".join(project.run("--skillopt", "-p", "no:xdist").stdout.str().split())
    assert f"could not be written: {said}" in shown
    assert (project.run_directory / "report.html").exists()
    assert project.result["status"] == "measured"


FAILING = {
    "step": "pytest_skillopt_step(): 1 / 0",
    "prompt": "pytest_skillopt_prompt(): 1 / 0",
    "reflect": "pytest_skillopt_reflect(): 1 / 0",
    "update": "pytest_skillopt_update(): 1 / 0",
    "check_edit": "pytest_skillopt_check_edit(): return lambda edit, added: 1 / 0",
    "lint_rules": """pytest_skillopt_lint_rules():
    return [pytest_skillopt.LintRule("x", "refuse", "y", lambda change: 1 / 0)]""",
    "rules": """pytest_skillopt_rules():
    class Broken(pytest_skillopt.SequentialGate):
        def decide(self):
            yield 1 / 0
    return {"mine": lambda: Broken}""",
    "searches": """pytest_skillopt_searches():
    stages = lambda: pytest_skillopt.Stages(aggregate=lambda patches, context: 1 / 0)
    return {"mine": lambda: pytest_skillopt.Search(stages=stages)}""",
}
"""Hooks that raise, or give what raises, in a training."""
CHOSEN = {"rules": ["-oskillopt_gate=mine"], "searches": ["--skillopt-search=mine"]}


@each_row("hook", ["settings", "client", "task", "opened", "modes", "searches"])
def test_an_exception_before_a_run_is_a_usage_error_that_names_the_plugin(
    project: Project, hook: str
) -> None:
    conftest = project.path / "conftest.py"
    conftest.write_text(f"def pytest_skillopt_{hook}(): 1 / 0\n")
    said = f"*pytest_skillopt_{hook} in {conftest}: ZeroDivisionError: *{conftest}:1, in *"
    assert_refused(project.run("--skillopt-train", "-p", "no:xdist"), said)
    assert not project.server.bodies


@each_row("hook", FAILING)
def test_an_exception_in_a_training_fails_it_by_the_name_of_the_plugin(
    project: Project, hook: str
) -> None:
    conftest = project.path / "conftest.py"
    conftest.write_text(f"import pytest_skillopt\n\ndef {FAILING[hook]}\n")
    chosen = CHOSEN.get(hook, ())
    done = project.run("--skillopt-train", "-p", "no:xdist", "-v", *chosen)
    assert done.ret == 1
    said = f"pytest_skillopt_{hook} in {conftest}: ZeroDivisionError: division by zero "
    assert project.result["reason"].startswith(said)
    assert project.result["resume"]
    assert "Traceback (most recent call last):" in done.stdout.str()
    assert "INTERNALERROR" not in done.stdout.str()


@each_row("role", ["target", "optimizer"])
@each_row(
    ("body", "said"),
    [
        ("return 'text'", "mine:1: complete returned str; a Completion is expected"),
        ("yield 'text'", "mine:1: complete returned generator; a Completion is expected"),
        ("raise OSError('boom')", "OSError: boom"),
    ],
)
def test_a_fault_of_a_model_of_ones_own_is_no_wrong_answer(
    project: Project, role: str, body: str, said: str
) -> None:
    (project.path / "conftest.py").write_text(
        f"""
class Mine:
    name, fingerprint, simulated = "mine:1", "1", False

    def complete(self, messages, *, sample, **details):
        {body}

def pytest_skillopt_client(config, role):
    return Mine() if role == "{role}" else None
"""
    )
    assert project.run("--skillopt-train", "-p", "no:xdist").ret == 1
    assert project.result["status"] == "unmeasured"
    assert said in project.result["reason"]


@each_row(
    ("source", "said"),
    [
        (
            "def pytest_skillopt_prompt(name): return 'In $language.'",
            "*pytest_skillopt_prompt('reflect_failures'): 'language' cannot be filled in; *",
        ),
        (
            "def pytest_skillopt_check_edit(): return lambda edit, added: 'too long'",
            "*a check of pytest_skillopt_check_edit returned str: a Refusal or None is expected *",
        ),
    ],
)
def test_what_a_hook_gives_in_vain_ends_the_training_with_its_name(
    project: Project, source: str, said: str
) -> None:
    (project.path / "conftest.py").write_text(f"{source}\n")
    assert_refused(project.run("--skillopt-train", "-p", "no:xdist"), said)
