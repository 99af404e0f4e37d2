"""The examples of the documents, run word for word."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import warm_sessions
from chat_server import asked_in, system_of

import pytest_skillopt
from pytest_skillopt.rollouts.rollout import IDLE
from pytest_skillopt.run.journal import EXPECTED, LOST, PROBE, RATES, UNANSWERED
from pytest_skillopt.search.final_comparison import BEGUN
from pytest_skillopt.search.history import ROUND
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.lint import rules

if TYPE_CHECKING:
    from chat_server import Answer, Body, ChatServer

DOCS = Path(__file__).parent.parent / "docs"
SKILL = "---\nname: greeting\ndescription: Greets.\n---\n# Greeting\n\nSay hello.\n"


def blocks(document: str, language: str) -> list[str]:
    """The fenced blocks of a language."""
    text = (DOCS / document).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def play(body: Body) -> str:
    """A model that greets in JSON, and a judge."""
    if "response_format" in body:
        return json.dumps({"reason": "polite", "score": 0.9})
    return '```json\n{"greeting": "Hello Ada"}\n```'


def test_the_calls_in_the_text_about_python_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    from pytest_skillopt.model.client import ChatModel
    from pytest_skillopt.model.config import model_config
    from pytest_skillopt.settings import Settings

    text = (DOCS / "python.md").read_text()
    (call,) = re.findall(r"`(ChatModel\([^`]*)`", text)
    known = {"ChatModel": ChatModel, "model_config": model_config}
    model = eval(call, {**known, "settings": Settings(model="openai:m")})
    assert model.name == "openai:m"
    model.close()


def test_no_page_installs_what_is_on_no_index() -> None:
    pages = [*DOCS.glob("**/*.md"), *DOCS.parent.glob("*.md"), *DOCS.parent.glob("example*/*.md")]
    named = re.compile(r"pip install [^\n`#]*(?<![/\w-])pytest-skillopt")
    assert [page for page in pages if named.search(page.read_text())] == []


def run_examples(
    pytester: pytest.Pytester, server: ChatServer, document: str, *, count: int
) -> None:
    """Run the examples of a document as ordinary tests and as rollouts; each has to pass."""
    (pytester.path / "SKILL.md").write_text(SKILL)
    examples = blocks(document, "python")
    assert len(examples) == count
    for number, code in enumerate(examples):
        (pytester.path / f"test_{number}.py").write_text(code)
    model = ("--skillopt-model=openai:m", f"-oskillopt_base_url={server.url}")
    for mode in ((), ("--skillopt", "--skillopt-rollouts=1")):
        pytester.runpytest_inprocess(*model, *mode).assert_outcomes(passed=count)


def test_the_examples_of_the_fixtures(pytester: pytest.Pytester, chat_server: ChatServer) -> None:
    chat_server.reply = play
    run_examples(pytester, chat_server, "reference.md", count=4)


def test_the_examples_of_conversations(pytester: pytest.Pytester, chat_server: ChatServer) -> None:
    """An agent that asks, remembers and refunds, and a user that tells what it is asked for."""

    def reply(body: Body) -> str | Answer:
        *_, last = body["messages"]
        said = str(last["content"])
        if "response_format" in body:
            move = "goal" if "refunded" in said else "say"
            return json.dumps({"asked_for": ["order number"], "next": move, "text": "A-17."})
        if last["role"] == "tool":
            return "It is refunded."
        if said == "A-17.":
            return chat_server.answer.tool("refund", order="A-17")
        return "You are Ada." if "name" in said else "Which order number?"

    chat_server.reply = reply
    run_examples(pytester, chat_server, "conversations.md", count=3)


def test_the_examples_of_commands(pytester: pytest.Pytester, chat_server: ChatServer) -> None:
    def reply(body: Body) -> Any:
        results = [m["content"] for m in body["messages"] if m["role"] == "tool"]
        if results[1:] == ["conflict\n\n[exit code 1]"]:
            return "There is a conflict."
        number = results[0][1] if results else ""
        command = f"gh pr merge {number}" if results else "gh pr list"
        return chat_server.answer.tool("run", command=command)

    chat_server.reply = reply
    run_examples(pytester, chat_server, "commands.md", count=2)


CASES = "id,prompt,total,split\na,Add 1 and 2,3,train\nb,Add 2 and 2,5,val\n"
PROMPTFOO = """
tests:
  - description: greets
    vars: {name: Ada, language: French}
    assert:
      - {type: contains, value: Bonjour}
      - {type: not-contains, value: sorry}
      - {type: regex, value: '^[A-Z]'}
      - {type: llm-rubric, value: It is polite}
  - description: says exactly
    vars: {name: Ben}
    assert: [{type: equals, value: Salut}]
"""


def test_cases_of_other_tools_are_parameters(
    pytester: pytest.Pytester, chat_server: ChatServer
) -> None:
    """The examples for those who come from there: each suite has a case that fails."""

    def reply(body: Body) -> str:
        if "response_format" in body:
            return json.dumps({"grades": [{"number": 1, "evidence": "", "holds": True}]})
        asked = asked_in(body)
        return "4" if asked == "Add 2 and 2" else "3" if "Add" in asked else "Bonjour Ada"

    chat_server.reply = reply
    (pytester.path / "SKILL.md").write_text(SKILL)
    (pytester.path / "cases.csv").write_text(CASES)
    (pytester.path / "promptfooconfig.yaml").write_text(PROMPTFOO)
    table, promptfoo = blocks("migrating.md", "python")[1:]
    (pytester.path / "test_table.py").write_text(table)
    (pytester.path / "test_promptfoo.py").write_text(promptfoo)
    model = ("--skillopt-model=openai:m", f"-oskillopt_base_url={chat_server.url}")
    result = pytester.runpytest_inprocess(*model, "-v", "-p", "no:xdist")
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines_random(
        [
            "test_table.py::test_total[[]a[]] PASSED*",
            "test_table.py::test_total[[]b[]] FAILED*",
            "test_promptfoo.py::test_promptfoo[[]greets[]] PASSED*",
            "test_promptfoo.py::test_promptfoo[[]says exactly[]] FAILED*",
        ]
    )
    assert r"name: Ada\nlanguage: French" in str(chat_server.bodies)
    plan = pytester.runpytest_inprocess(*model, "--collect-only", "-q", "--skillopt", "-ktotal")
    plan.stdout.fnmatch_lines(["*1 train, 1 val*"])


SUBJECT = "Keep the first line within 50 characters, without a full stop."


@pytest.fixture
def started(
    pytester: pytest.Pytester, chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> pytest.Pytester:
    """The project of ``getting-started.md``, with a server in the place of the provider."""

    def reply(body: Body) -> str:
        if "response_format" in body:
            edits = [{"op": "append", "target": "", "content": SUBJECT}]
            return json.dumps({"reasoning": "it is too long", "edits": edits})
        change = asked_in(body).split("\n")[-1]
        return change[:49] if SUBJECT in system_of(body) else change

    chat_server.reply = reply
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-this-test")
    monkeypatch.setenv("OPENAI_BASE_URL", chat_server.url)
    write_the_first_project(pytester)
    (pytester.path / "pyproject.toml").write_text(blocks("getting-started.md", "toml")[0])
    return pytester


def write_the_first_project(pytester: pytest.Pytester) -> Path:
    """Write the skill and the tests of ``getting-started.md``; return the path of the skill."""
    skill = pytester.path / ".claude" / "skills" / "commit-messages" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(blocks("getting-started.md", "text")[0])
    folder = pytester.mkdir("tests")
    (folder / "test_commit_messages.py").write_text(blocks("getting-started.md", "python")[0])
    return skill


def test_getting_started_is_followed_word_for_word(started: pytest.Pytester) -> None:
    lines = "".join(blocks("getting-started.md", "sh")).splitlines()
    one, measured, planned, trained = (
        started.runpytest_inprocess(*shlex.split(line, comments=True)[1:])
        for line in lines
        if line.startswith("pytest ")
    )
    one.assert_outcomes(failed=2, deselected=14)
    measured.stdout.fnmatch_lines(["*0.0 %*"])
    ((typical, most),) = re.findall(
        r"about (\d+) rollouts, at\s+most (\d+)", (DOCS / "getting-started.md").read_text()
    )
    planned.stdout.fnmatch_lines([f"rollouts: about {typical}, at most {most};*"])
    trained.stdout.fnmatch_lines(["Written. This undoes*"])
    skill = started.path / ".claude" / "skills" / "commit-messages" / "SKILL.md"
    assert SUBJECT in skill.read_text()


def test_a_training_without_a_key_is_followed_word_for_word(pytester: pytest.Pytester) -> None:
    skill = write_the_first_project(pytester)
    (pytester.path / "conftest.py").write_text(blocks("without-a-key.md", "python")[0])
    lines = "".join(blocks("without-a-key.md", "sh")).splitlines()
    measured, trained = (
        warm_sessions.run(*shlex.split(line)[1:], "-p", "no:cacheprovider", cwd=pytester.path)
        for line in lines
    )
    measured.stdout.fnmatch_lines(["*0.0 %*"])
    trained.stdout.fnmatch_lines(["*A simulated model took part*", "Written. This undoes*"])
    for rule in ("within 50 characters", "without a full stop"):
        assert rule in skill.read_text()


def test_every_link_leads_somewhere() -> None:
    for path in (*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md")):
        text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
        for target, heading in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", text):
            page = path.parent / target if target else path
            assert page.exists(), f"{path.name}: {target}"
            if heading:
                assert heading in anchors(page), f"{path.name}: {target}#{heading}"


def anchors(page: Path) -> set[str]:
    """The headings of a page as a forge names them in links."""
    titles = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_file_that_the_architecture_names_is_there() -> None:
    named = re.findall(
        r"`([a-z_]+(?:/[a-z_]+)*\.py|[a-z_]+/)`", (DOCS / "architecture.md").read_text()
    )
    places = [Path(pytest_skillopt.__file__).parent, DOCS.parent]
    assert len(named) > 15
    assert [name for name in named if not any((place / name).exists() for place in places)] == []


def test_no_link_of_the_readme_is_dead_on_the_page_of_a_package_index() -> None:
    root = DOCS.parent
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    (rule,) = project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]
    page = re.sub(rule["pattern"], rule["replacement"], (root / "README.md").read_text("utf-8"))
    assert "`docs/getting-started.md`" in page
    assert "\nThe report of the example's training (`docs/pictures/report.png`)" in page
    assert [link for link in re.findall(r"\]\(([^)]*)\)", page) if "://" not in link] == []


def test_every_kind_of_journal_entry_is_documented() -> None:
    writers = "journal.write|journal.once|history.record|observer.record".replace(".", r"\.")
    writing = re.compile(rf'(?:{writers})\(\s*"(\w+)"')
    package = Path(pytest_skillopt.__file__).parent
    written = {kind for path in package.rglob("*.py") for kind in writing.findall(path.read_text())}
    assert {"run", "rollout", "verdict"} <= written
    written |= {BEGUN, EXPECTED, IDLE, LOST, PROBE, RATES, ROUND, UNANSWERED}
    text = (DOCS / "journal.md").read_text(encoding="utf-8")
    assert written == set(re.findall(r"^\| `(\w+)` \|", text.split("| kind |")[1], re.MULTILINE))


def test_the_settings_that_may_change_are_documented() -> None:
    text = (DOCS / "journal.md").read_text(encoding="utf-8")
    listed = text.split("those that change no sample:")[1].split("because the models")[0]
    free = {field.name for field, _ in Settings().fields() if field.metadata["free"]}
    assert set(re.findall(r"`(\w+)`", listed)) == free
    assert "max_cost" in free


def test_every_public_name_is_in_the_reference() -> None:
    listed = (DOCS / "python.md").read_text().split("\n::: pytest_skillopt\n")[1]
    named = re.findall(r"\w+", listed.split("members: [")[1].split("]")[0])
    assert sorted(named) == sorted(pytest_skillopt.__all__)


def test_every_rule_of_the_lint_is_documented() -> None:
    text = (DOCS / "lint.md").read_text()
    assert {rule for rule in rules() if f"`{rule}`" not in text} == set()
