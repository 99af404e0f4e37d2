"""Every setting, from wherever it is written to whoever reads it."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import warm_sessions
from refusals import assert_refused
from run_files import latest_result
from tables import each_row

from pytest_skillopt.settings import FIELDS, REMOVED, Settings, in_words

if TYPE_CHECKING:
    import dataclasses

DOCS = Path(__file__).parents[1] / "docs"
REFERENCE = runpy.run_path(str(DOCS / "update_reference.py"))
DECLARED = REFERENCE["declared"]()
OWN = [field for field in FIELDS if not field.metadata["published"]]
"""Settings with an ini key; skillopt_published holds the others."""
OPTIONS = [f.name for f in OWN if "--skillopt-" + f.name.replace("_", "-") in DECLARED.options]
CANNED = """
import json
import pytest
from pytest_skillopt import Completion
from pytest_skillopt.settings import Settings

class Canned:
    name, fingerprint, simulated = "canned:1", "1", True

    def complete(self, messages, *, sample, **details):
        return Completion("ok")

def pytest_skillopt_client(config, role):
    return Canned()

def pytest_sessionfinish(session):
    found = Settings.from_config(session.config).to_json()
    with open("settings.json", "w") as file:
        json.dump(found, file)
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project with one task and a model that is always right; it leaves its settings behind."""
    (pytester.path / "SKILL.md").write_text("---\nname: a\ndescription: A.\n---\n# A\n\nSay ok.\n")
    pytester.makeconftest(CANNED)
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.skill_task
        def test_it(skill_agent):
            assert skill_agent("?") == "ok"
        """
    )
    return pytester


def read(project: pytest.Pytester, *arguments: str) -> dict[str, Any]:
    """The settings as a session sees them."""
    result = project.runpytest_inprocess("--collect-only", *arguments)
    assert result.ret == 0, result.stderr.str()
    found: dict[str, Any] = json.loads((project.path / "settings.json").read_text())
    return found


def other(field: dataclasses.Field[Any]) -> tuple[str, Any]:
    """A value that is not the default, as a user writes it and as it is read."""
    default = field.default
    if field.name in ("search", "gate"):
        chosen = {"search": "batch", "gate": "strict"}[field.name]
        return chosen, chosen
    if choices := field.metadata["choices"]:
        chosen = next(choice for choice in choices if choice != default)
        return chosen, chosen
    if isinstance(default, bool):
        return ("no", False) if default else ("yes", True)
    if isinstance(default, int):
        return str(default + 1), default + 1
    if isinstance(default, float):
        value = default / 2 if default else 0.25
        return f"{value!r}", value
    return "0.5:1:1", "0.5:1:1"


EVERYTHING = {field.name: other(field) for field in OWN}


def as_options() -> list[str]:
    flags = {name: "--skillopt-" + name.replace("_", "-") for name in OPTIONS}
    return [
        flag if name == "evals" else f"{flag}={EVERYTHING[name][0]}" for name, flag in flags.items()
    ]


def as_ini() -> str:
    return "".join(f"skillopt_{n} = {v}\n" for n, (v, _) in EVERYTHING.items())


WANTED = {name: value for name, (_, value) in EVERYTHING.items()}


def test_nothing_set_gives_the_defaults(project: pytest.Pytester) -> None:
    assert read(project) == Settings().to_json()


def test_what_a_run_is_given_by_hand_is_an_option(project: pytest.Pytester) -> None:
    found = read(project, *as_options())
    assert found == Settings().to_json() | {name: WANTED[name] for name in OPTIONS}


def test_every_setting_is_an_ini_key(project: pytest.Pytester) -> None:
    project.makeini("[pytest]\n" + as_ini())
    assert read(project, "--strict-config") == Settings().to_json() | WANTED


def test_pyproject_takes_numbers_booleans_and_lists_as_such(project: pytest.Pytester) -> None:
    project.makepyprojecttoml(
        """
        [tool.pytest.ini_options]
        skillopt_rollouts = 7
        skillopt_max_cost = 1
        skillopt_gate_alpha = 0.1
        skillopt_write = false
        skillopt_lint_allow = ["size", "urls"]
        """
    )
    found = read(project, "-W", "error")
    assert (found["rollouts"], found["max_cost"], found["gate_alpha"]) == (7, 1.0, 0.1)
    assert found["write"] is False
    assert found["lint_allow"] == "size,urls"


@pytest.mark.skipif(pytest.version_tuple < (9, 0), reason="pytest 9 reads native TOML")
def test_native_toml_has_types(project: pytest.Pytester) -> None:
    project.makepyprojecttoml(
        """
        [tool.pytest]
        skillopt_rollouts = 7
        skillopt_max_cost = 1
        skillopt_write = false
        skillopt_gate = "strict"
        skillopt_prices = ["a=1/2", "b=3/4"]
        """
    )
    found = read(project, "-W", "error")
    assert (found["rollouts"], found["max_cost"], found["write"]) == (7, 1.0, False)
    assert (found["gate"], found["prices"]) == ("strict", "a=1/2,b=3/4")


def test_the_option_wins_over_the_ini_key_and_that_over_the_default(
    project: pytest.Pytester,
) -> None:
    project.makeini("[pytest]\nskillopt_rollouts = 5\nskillopt_seed = 8\n")
    found = read(project, "--skillopt-rollouts=6", "-o", "skillopt_rollouts=7")
    assert found["rollouts"] == 6
    assert found["seed"] == 8
    assert read(project, "-o", "skillopt_rollouts=7")["rollouts"] == 7
    assert found["metric"] == Settings().metric


@each_row(
    ("line", "message"),
    [
        ("skillopt_rollouts = 0", "skillopt_rollouts: 0 is out of range; *at least 1 and finite"),
        ("skillopt_rollouts = many", "skillopt_rollouts: 'many' is not a whole number"),
        ("skillopt_timeout = long", "skillopt_timeout: 'long' is not a number"),
        ("skillopt_timeout = nan", "skillopt_timeout: nan is out of range*"),
        ("skillopt_write = maybe", "skillopt_write: *maybe*"),
        ("skillopt_gate = x", "skillopt_gate: 'x' is not one of sequential, strict, *"),
        ("skillopt_gate_alpha = 0.9", "skillopt_gate_alpha: 0.9 is out of range*at most 0.5"),
    ],
)
def test_a_value_that_cannot_be_is_a_usage_error(
    project: pytest.Pytester, line: str, message: str
) -> None:
    project.makeini(f"[pytest]\n{line}\n")
    assert_refused(project.runpytest_inprocess("--skillopt"), f"ERROR: {message}")


@each_row("option", ["--skillopt", "--skillopt-cache=off"])
def test_a_folder_of_runs_that_cannot_be_written_is_a_usage_error(
    project: pytest.Pytester, option: str
) -> None:
    """As on a disk that is read-only."""
    (project.path / "file").write_text("", encoding="utf-8")
    assert_refused(
        project.runpytest_inprocess("--skillopt", option, "-oskillopt_dir=file/below"),
        "ERROR: *file*below: cannot be written (*); set skillopt_dir *",
    )


@pytest.mark.filterwarnings("ignore::pytest.PytestWarning")
def test_a_list_where_a_text_is_wanted_is_a_usage_error(project: pytest.Pytester) -> None:
    project.makepyprojecttoml('[tool.pytest.ini_options]\nskillopt_skill = ["a", "b"]\n')
    result = warm_sessions.run("--skillopt", cwd=project.path)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(["ERROR: skillopt_skill: *list*"])


def test_the_result_holds_every_setting(project: pytest.Pytester) -> None:
    assert project.runpytest_inprocess("--skillopt", "-oskillopt_seed=5").ret == 0
    kept = latest_result(project.path)["settings"]
    assert kept == Settings(seed=5).to_json()


@each_row("where", ["before a path", "last", "addopts"])
def test_an_option_that_is_none_says_what_there_is_instead(
    project: pytest.Pytester, where: str
) -> None:
    option = "--skillopt-final-rollouts=3"
    path = "."
    arguments = {"before a path": (option, path), "last": (path, option), "addopts": (path,)}[where]
    if where == "addopts":
        project.makeini(f"[pytest]\naddopts = {option}\n")
    said = "*-o skillopt_final_rollouts=VALUE, or skillopt_final_roll*"
    assert_refused(project.runpytest_inprocess(*arguments), said)


@each_row(
    ("written", "argument", "named"),
    [
        ("[pytest]\nskillopt_gone = 1\n", "--skillopt", "skillopt_gone"),
        ("[pytest]\n", "-oskillopt_gone=yes", "skillopt_gone"),
        ("[pytest]\naddopts = --skillopt-gone=3\n", "--skillopt", "--skillopt-gone"),
        ("[pytest]\n", "--skillopt-gone", "--skillopt-gone"),
    ],
)
def test_what_is_gone_says_what_to_do_now(
    project: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    written: str,
    argument: str,
    named: str,
) -> None:
    monkeypatch.setitem(REMOVED, "gone", "write skillopt_new in its place")
    project.makeini(written)
    result = project.runpytest_inprocess("--skillopt", argument)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = [*result.errlines, *result.outlines]
    assert f"ERROR: {named} no longer exists: write skillopt_new in its place" in said
    assert not (project.path / "settings.json").exists()


def test_what_is_gone_is_refused_whatever_its_type_was(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(REMOVED, "gone", "write skillopt_new in its place")
    project.makepyprojecttoml("[tool.pytest]\nskillopt_gone = [1]\n")
    assert_refused(
        project.runpytest_inprocess("--skillopt"), "ERROR: skillopt_gone no longer exists: *"
    )


def test_a_conftest_file_may_load_the_plugin(project: pytest.Pytester) -> None:
    conftest = project.path / "conftest.py"
    conftest.write_text('pytest_plugins = ["pytest_skillopt.plugin"]\n' + conftest.read_text())
    ran = project.runpytest_inprocess("-p", "no:skillopt", "--skillopt", "-oskillopt_seed=3")
    assert ran.ret == 0
    assert json.loads((project.path / "settings.json").read_text()) == Settings(seed=3).to_json()


def test_the_help_names_every_option_and_key(pytester: pytest.Pytester) -> None:
    text = pytester.runpytest_inprocess("--help").stdout.str()
    for flag in DECLARED.options:
        assert f"  {flag}" in text
    for key in DECLARED.keys:
        assert f"  {key} (" in text


def test_every_setting_is_declared_and_every_key_is_a_setting() -> None:
    read_by_a_plugin = {"skillopt_evals", "skillopt_published", "skillopt_propose_skills"}
    assert {f"skillopt_{field.name}" for field in OWN} | read_by_a_plugin == DECLARED.keys.keys()


_NOTHING = "no cap|no limit|per decision|fits the suite|the only SKILL.md|the optimizer|the skill"


@each_row("field", OWN)
def test_the_help_tells_the_default(field: dataclasses.Field[Any]) -> None:
    option = DECLARED.options.get("--skillopt-" + field.name.replace("_", "-"))
    text = option or DECLARED.keys[f"skillopt_{field.name}"]
    told = re.search(r"\(default: (.*)\)", text)
    if told and not (field.default in ("", 0) and re.fullmatch(_NOTHING, told[1])):
        assert told[1] == in_words(field.default)


def test_the_documentation_names_every_setting() -> None:
    reference = (DOCS / "reference.md").read_text(encoding="utf-8")
    assert "\n\n" + "\n".join(REFERENCE["rows"]()) + "\n\n" in reference


@each_row(
    ("arguments", "said"),
    [
        (("--skillopt-train",), "no optimizer model is configured"),
        (("--skillopt-train", "--skillopt-optimizer=openai:m"), "OPENAI_API_KEY"),
        (("--skillopt-train", "--skillopt-resume=nothing"), "there is no training 'nothing'"),
        (("--skillopt-check=nothing",), "is not in a git repository"),
        (("--skillopt-compare", "none", "nothing"), "'nothing' is neither a file nor a version of"),
    ],
)
def test_wrong_usage_is_told_before_a_worker_starts(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(project.path.parent))
    project.makeconftest("")
    project.makepyfile("import pytest\n\n@pytest.mark.skill_task\ndef test_it(skill): pass\n")
    done = project.runpytest_inprocess("-n2", *arguments)
    assert_refused(done, f"*{said}*")
    done.stdout.no_fnmatch_line("*workers*")
    assert not (project.path / ".skillopt").exists()


@each_row(
    ("written", "nearest"),
    [
        ("skillopt_max_call", "skillopt_max_calls"),
        ("skillopt-max-calls", "skillopt_max_calls"),
        ("SKILLOPT_MAX_COST", "skillopt_max_cost"),
        ("skillopt_targets", "skillopt_target"),
        ("skillopt_lane", "skillopt_lanes"),
        ("skill_opt_max_calls", "skillopt_max_calls"),
        ("skilopt_max_cost", "skillopt_max_cost"),
        ("pytest_skillopt_max_time", "skillopt_max_time"),
    ],
)
def test_a_mistyped_key_refuses_the_run_and_names_the_nearest(
    project: pytest.Pytester, written: str, nearest: str
) -> None:
    project.makeini(f"[pytest]\n{written} = 50\n")
    assert_refused(
        project.runpytest_inprocess(), f"*{written} in tox.ini is not a setting; *{nearest} (*"
    )


@each_row("mode", [("--skillopt",), ("--skillopt-train", "--collect-only")])
def test_a_mistyped_override_refuses_every_mode(
    project: pytest.Pytester, mode: tuple[str, ...]
) -> None:
    result = project.runpytest_inprocess("-o", "skillopt_max_call=50", *mode)
    assert_refused(result, "*skillopt_max_call is not a setting;*skillopt_max_calls*")


@pytest.mark.parametrize(
    ("file", "table"),
    [
        ("pyproject.toml", "tool.skillopt"),
        ("pyproject.toml", "tool.pytest-skillopt"),
        ("pytest.toml", "skillopt"),
        ("tox.ini", "skillopt"),
    ],
)
def test_a_table_that_nothing_reads_refuses_the_run(
    project: pytest.Pytester, file: str, table: str
) -> None:
    head = {"pyproject.toml": "tool.pytest.ini_options", "tox.ini": "pytest"}.get(file, "pytest")
    (project.path / file).write_text(f"[{head}]\n[{table}]\nmax_calls = 50\n")
    assert_refused(
        project.runpytest_inprocess("--skillopt"),
        f"*[[]{table}] in {file} is not read: write its settings as*",
    )


def test_a_key_that_a_conftest_declares_and_keys_of_others_are_left_alone(
    project: pytest.Pytester,
) -> None:
    declared = "\ndef pytest_addoption(parser):\n    parser.addini('skillopt_mine', 'mine')\n"
    project.makeconftest(CANNED + declared)
    project.makeini("[pytest]\nskillopt_mine = 1\nskillset_max = 50\n")
    assert project.runpytest_inprocess().ret == 0
