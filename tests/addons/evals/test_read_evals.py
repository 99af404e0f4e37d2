"""The dialects of ``evals.json``, and files that are none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.addons.evals.checks import grade_by_script, statement
from pytest_skillopt.addons.evals.read import Case, EvalsError, read_evals

if TYPE_CHECKING:
    from pathlib import Path


def read(folder: Path, content: Any, warnings: list[str] | None = None) -> list[Case]:
    """The evals of a file with this content, a text or JSON."""
    path = folder / "evals" / "evals.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
    told: list[str] = [] if warnings is None else warnings
    return read_evals(path, folder, told.append)


def texts(case: Case, *, judged: bool) -> list[str]:
    return [each.text for each in case.statements if each.judged == judged]


@pytest.mark.parametrize("key", ["assertions", "expectations", "expected_behavior", "checks"])
@pytest.mark.parametrize("wrapped", [True, False])
def test_statements_under_any_name(tmp_path: Path, key: str, wrapped: bool) -> None:
    rows = [{"id": 7, "prompt": "Greet Ada", key: ["Names Ada", "Is polite"]}]
    (case,) = read(tmp_path, {"skill_name": "x", "evals": rows} if wrapped else rows)
    assert (case.id, case.prompt, case.slug) == ("7", "Greet Ada", "7-greet-ada")
    assert texts(case, judged=True) == ["Names Ada", "Is polite"]


def test_objects_say_their_statement_under_any_name(tmp_path: Path) -> None:
    elements = [
        {"name": "polite", "description": "Is polite"},
        {"text": "Names Ada"},
        {"type": "llm_judge", "name": "tone", "criterion": "Is warm"},
        {"name": "Ends well"},
    ]
    (case,) = read(tmp_path, [{"prompt": "Greet", "assertions": elements}])
    assert texts(case, judged=True) == ["Is polite", "Names Ada", "Is warm", "Ends well"]


def test_scorers_and_patterns_need_no_model(tmp_path: Path) -> None:
    row = {
        "prompt": "Convert",
        "scorers": [{"type": "regex", "name": "module", "pattern": r"^module\b"}],
        "must_have": ["always_ff"],
        "must_not_have": [r"\binitial\b"],
        "assertions": [{"type": "contains", "value": "end.", "description": "has an end"}],
    }
    (case,) = read(tmp_path, [row])
    assert texts(case, judged=True) == []
    good = "x\nmodule a\nalways_ff\nend."
    assert all(grade.passed for grade in grade_by_script(case.statements, good))
    bad = [grade.passed for grade in grade_by_script(case.statements, "initial endx")]
    assert bad == [False, False, False, False]


def test_expected_output_alone_is_a_statement(tmp_path: Path) -> None:
    rows = [
        {"prompt": "a", "expected_output": "A greeting."},
        {"prompt": "b", "expected_output": "A greeting.", "assertions": ["Is short"]},
    ]
    alone, with_others = read(tmp_path, rows)
    assert "A greeting." in alone.statements[0].text
    assert texts(with_others, judged=True) == ["Is short"]
    assert (alone.id, with_others.expected) == ("1", "A greeting.")


@pytest.mark.parametrize(
    ("text", "good", "bad"),
    [
        ("contains 'x'", "a x b", "a b"),
        ("Contains 'X' or contains 'x'", "x", "y"),
        ("does not contain 'FAILED'", "fine", "it FAILED"),
        ("contains 'a' and contains 'b' or contains 'c'", "c", "a"),
        ('output contains "it\'s"', "it's", "its"),
        ("matches /gr[ae]y/i", "GREY", "green"),
        ("does not match /\\d/", "none", "4"),
        ("starts with 'Dear'", " Dear Ada", "Hi Dear"),
        ("ends with '.'", "So.\n", "So"),
        ("equals '42'", "42\n", "4 2"),
    ],
)
def test_small_language(text: str, good: str, bad: str) -> None:
    said = statement(text)
    assert not said.judged
    assert said.holds(good)
    assert not said.holds(bad)


@pytest.mark.parametrize(
    "text", ["Contains a greeting", "contains 'x' in the title", "Names Ada", "contains 'x' or so"]
)
def test_what_is_not_wholly_of_the_language_is_judged(text: str) -> None:
    assert statement(text).judged


def test_unknown_keys_are_named_with_their_line(tmp_path: Path) -> None:
    warnings: list[str] = []
    content = {"evals": [{"prompt": "a", "assertions": ["x"], "sauce": 1}], "extra": 1}
    assert len(read(tmp_path, content, warnings)) == 1
    assert sorted(w.rpartition("evals.json")[2] for w in warnings) == [
        ": the key 'extra' is not known and was left aside",
        ":3: the key 'sauce' is not known and was left aside",
    ]


def test_an_eval_without_anything_to_grade_is_left_aside(tmp_path: Path) -> None:
    warnings: list[str] = []
    assert (
        read(tmp_path, [{"prompt": "a"}, {"prompt": "b", "checks": ["x"]}], warnings)[0].id == "2"
    )
    assert "eval 1 says nothing of what a good answer is" in warnings[0]


def test_files_are_looked_for_in_the_skill_and_beside_the_evals(tmp_path: Path) -> None:
    (tmp_path / "evals" / "files").mkdir(parents=True)
    (tmp_path / "evals" / "files" / "a.txt").write_text("x")
    rows = [{"prompt": "a", "checks": ["x"], "files": [name]} for name in
            ("evals/files/a.txt", "files/a.txt", "./evals/files")]  # fmt: skip
    assert [case.files for case in read(tmp_path, rows)] == [
        ("evals/files/a.txt",),
        ("evals/files/a.txt",),
        ("evals/files",),
    ]


BROKEN = '{\n "evals": [\n  {"prompt": "a",}\n ]\n}'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (BROKEN, "evals.json:3: this is no JSON"),
        ("", "evals.json:1: this is no JSON"),
        ("[" * 100_000, "evals.json:1: this is no JSON"),
        ("3", "evals.json:1: there is no list of evals"),
        ({"skill_name": "x"}, "evals.json:1: there is no list of evals"),
        ({"evals": {"a": 1}}, "evals.json:1: there is no list of evals"),
        ('{"skill_name": "x",\n"evals": [\n{"prompt": "a", "checks": ["x"]},\n{"id": 3}]}',
         "evals.json:4: eval 2 has no prompt"),
        ("[\n\n3]", "evals.json:3: eval 1 is 3 and no object"),
        ([{"prompt": "a", "must_have": ["("]}], "'(' is no regular expression"),
        ([{"prompt": "a", "must_have": [3]}], "something else than regular expressions"),
        ([{"prompt": "a", "checks": [3]}], "'checks' holds 3: a text is expected"),
        ([{"prompt": "a", "checks": ["x"], "files": ["gone.txt"]}], "there is no file 'gone.txt'"),
        ([{"prompt": "a", "checks": ["x"], "files": ["../../secret"]}], "outside of the skill's"),
        ([{"prompt": "a", "checks": ["x"], "files": ["/etc/passwd"]}], "outside of the skill's"),
        ([{"prompt": "a", "checks": ["x"], "files": [3]}], "'files' holds 3: a path is expected"),
        ([{"query": "a", "should_trigger": "yes"}], "neither true nor false"),
        ([{"prompt": "a", "checks": ["x"]}] * 10_000, "has 10,000 evals and at most 1,000"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_taken_names_the_line(
    tmp_path: Path, content: Any, said: str
) -> None:
    with pytest.raises(EvalsError) as caught:
        read(tmp_path, content)
    assert said in str(caught.value)


def test_a_link_out_of_the_skill_is_not_followed(tmp_path: Path) -> None:
    skill = tmp_path / "skill"
    skill.mkdir()
    (tmp_path / "secret").write_text("x")
    (skill / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(EvalsError, match="there is no file 'link'"):
        read(skill, [{"prompt": "a", "checks": ["x"], "files": ["link"]}])


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "evals.json"
    path.write_bytes(b'["\xff"]')
    with pytest.raises(EvalsError, match=r"evals\.json: .*decode"):
        read_evals(path, tmp_path, print)
