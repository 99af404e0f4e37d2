"""Each check passes what it should and says what is there where it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt import checks
from pytest_skillopt.model.agent import Reply, ToolRun

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TEXT = "# Report\n\n## Summary\n\nRevenue rose.\n\n### Detail\n\nQ3\n\n## Risks ##\n\nNone.\n"
CALL = Reply("done", tool_calls=(ToolRun("search", '{"query": "x", "limit": 3}', "found"),))


def test_section_gives_what_stands_under_the_heading() -> None:
    assert checks.section(TEXT, "summary") == "Revenue rose.\n\n### Detail\n\nQ3"
    assert checks.section(TEXT, "Risks") == "None."
    assert checks.section(f"## a{' ' * 100_000}b\n{TEXT}", "Risks") == "None."


def test_schema_reads_json_out_of_a_reply() -> None:
    pytest.importorskip("jsonschema")
    wanted = {"type": "object", "required": ["total"]}
    assert checks.schema('It is {"total": 3}.', wanted) == {"total": 3}
    with pytest.raises(AssertionError, match="'total' is a required property"):
        checks.schema({}, wanted)
    with pytest.raises(AssertionError, match="the text contains"):
        checks.schema("none", wanted)


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        (lambda: checks.exact(" 42\n", "42"), lambda: checks.exact("4 2", "42"), "4 2"),
        (
            lambda: checks.contains("A b", "a", "b", ignore_case=True),
            lambda: checks.contains("A b", "a", "b"),
            r"missing \['a'\] in: A b",
        ),
        (
            lambda: checks.lacks("fine", "TODO"),
            lambda: checks.lacks("a TODO", "TODO"),
            r"found \['TODO'\]",
        ),
        (
            lambda: checks.matches("a1", r"\d"),
            lambda: checks.matches("a", r"\d"),
            "nothing matches",
        ),
        (
            lambda: checks.section(TEXT, "Detail"),
            lambda: checks.section(TEXT, "Costs"),
            r"the sections are \['Report', 'Summary', 'Detail', 'Risks'\]",
        ),
        (
            lambda: checks.called(CALL, "search", query="x"),
            lambda: checks.called(CALL, "search", query="y"),
            "never with",
        ),
        (
            lambda: checks.called(CALL, "search"),
            lambda: checks.called(CALL, "fetch"),
            r"the calls are \['search'\]",
        ),
    ],
)
def test_checks(good: Callable[[], Any], bad: Callable[[], Any], said: str) -> None:
    good()
    with pytest.raises(AssertionError, match=said):
        bad()


def test_an_answer_is_no_refusal() -> None:
    checks.no_refusal("The report is below. It cannot be shorter.")
    with pytest.raises(AssertionError, match="it refuses"):
        checks.no_refusal("I can\u2019t help with that.")


def test_files_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    before = checks.files_of(tmp_path)
    checks.unchanged(tmp_path, before)
    (tmp_path / "b").write_text("y")
    checks.unchanged(tmp_path, before, but=["b"])
    with pytest.raises(AssertionError, match=r"changed, added or removed: \['b'\]"):
        checks.unchanged(tmp_path, before)


def test_suite_in_a_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    test = tmp_path / "test_it.py"
    test.write_text("import os\ndef test_it(): assert 'OPENAI_API_KEY' not in os.environ\n")
    checks.suite_passes(tmp_path, "-p", "no:xdist")
    test.write_text("def test_it(): assert False, 'broken here'\n")
    with pytest.raises(AssertionError, match="broken here"):
        checks.suite_passes(tmp_path, "-p", "no:xdist")


def test_statements_of_a_judge_give_the_soft_score() -> None:
    class Judge:
        def statements(self, statements: Any, answer: str, *, question: str = "") -> Any:
            return [(text in answer, "looked") for text in statements]

    class Recorder:
        scores: list[float] = []  # noqa: RUF012

        def score(self, value: float) -> None:
            self.scores.append(value)

    judge: Any = Judge()
    recorder: Any = Recorder()
    checks.fulfils(judge, "a", "a", "b", rollout=recorder, share=0.5)
    assert recorder.scores == [0.5]
    with pytest.raises(AssertionError, match=r"- b \(looked\)"):
        checks.fulfils(judge, "a", "a", "b")
