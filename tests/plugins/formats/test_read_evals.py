"""The dialects of ``evals.json``, and files that are none."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import each_row

from pytest_skillopt.plugins.formats.read import Case, EvalsError, read_evals


def read(folder: Path, content: Any, warnings: list[str] | None = None) -> list[Case]:
    """The evals of a file with this content, a text or JSON."""
    path = folder / "evals" / "evals.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
    told: list[str] = [] if warnings is None else warnings
    return read_evals(path, folder, told.append)


def texts(case: Case, *, judged: bool) -> list[str]:
    return [each.text for each in case.statements if each.judged == judged]


def holding(case: Case, answer: str) -> list[bool]:
    return [each.holds(answer) for each in case.statements if not each.judged]


@each_row("key", ["assertions", "expectations", "expected_behavior", "checks"])
@each_row("wrapped", [True, False])
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
        "scorers": [
            {"type": "regex", "name": "module", "pattern": r"^module\b"},
            {"type": "not-regex", "value": "endx$"},
        ],
        "must_have": ["always_ff"],
        "must_not_have": [r"\binitial\b"],
        "assertions": [{"type": "contains", "value": "end.", "description": "has an end"}],
    }
    (case,) = read(tmp_path, [row])
    assert texts(case, judged=True) == []
    good = "x\nmodule a\nalways_ff\nend."
    assert holding(case, good) == [True] * 5
    assert holding(case, "initial endx") == [False] * 5
    assert "does not match /endx$/" in texts(case, judged=False)


def test_expected_output_alone_is_a_statement(tmp_path: Path) -> None:
    rows = [
        {"prompt": "a", "expected_output": "A greeting."},
        {"prompt": "b", "expected_output": "A greeting.", "assertions": ["Is short"]},
    ]
    alone, with_others = read(tmp_path, rows)
    assert "A greeting." in alone.statements[0].text
    assert texts(with_others, judged=True) == ["Is short"]
    assert (alone.id, with_others.expected) == ("1", "A greeting.")


def test_a_sentence_is_for_the_judge_whatever_it_quotes(tmp_path: Path) -> None:
    (case,) = read(tmp_path, [{"prompt": "Greet", "assertions": ["contains 'x'"]}])
    assert texts(case, judged=True) == ["contains 'x'"]


def test_one_warning_a_file_names_what_is_not_known(tmp_path: Path) -> None:
    warnings: list[str] = []
    row = {"prompt": "a", "assertions": ["x"], "sauce": 1}
    assert len(read(tmp_path, {"evals": [row, row, row], "extra": 1}, warnings)) == 3
    (said,) = warnings
    assert said.endswith(
        "evals.json: unknown and ignored: the key 'extra' of the file; the key 'sauce'"
    )


def test_numbers_are_what_is_expected_too(tmp_path: Path) -> None:
    rows = [
        {"prompt": "a", "assertions": [{"type": "contains", "value": 42}]},
        {"prompt": "b", "assertions": [{"type": "contains", "value": ["x", 0], "text": "both"}]},
        {"prompt": "c", "expected_output": 0},
        {"prompt": "d", "expected_output": False},
    ]
    first, second, third, fourth = read(tmp_path, rows)
    assert holding(first, "it is 42") == [True]
    assert holding(first, "it is 41") == [False]
    assert holding(second, "x 1") == [True, False]
    assert (third.expected, fourth.expected) == ("0", "false")
    assert "expected answer: 0" in third.statements[0].text


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


@each_row(
    ("content", "said"),
    [
        (BROKEN, "evals.json:3: this is not JSON"),
        ("", "evals.json:1: this is not JSON"),
        ("[" * 100_000, "evals.json:1: this is not JSON"),
        (f"[{'1' * 5000}]", "evals.json:1: this is not JSON: Exceeds the limit"),
        ("3", "evals.json:1: there is no list of evals"),
        ({"skill_name": "x"}, "evals.json:1: there is no list of evals"),
        ({"evals": {"a": 1}}, "evals.json:1: there is no list of evals"),
        ([{"prompt": "a", "checks": ["x"]}] * 10_000, "has 10,000 evals, and at most 1,000"),
    ],
)
def test_a_file_that_cannot_be_taken_names_the_line(
    tmp_path: Path, content: Any, said: str
) -> None:
    with pytest.raises(EvalsError) as caught:
        read(tmp_path, content)
    assert said in str(caught.value)


GOOD = {"prompt": "good", "checks": ["x"]}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"id": 3}, "it has no prompt"),
        (3, "3 is not an object"),
        ({"prompt": "a"}, "it has no statement about a good answer"),
        ({**GOOD, "must_have": ["("]}, "'(' is not a regular expression"),
        ({**GOOD, "must_have": ["a{99999999999}"]}, "is not a regular expression: the repetition"),
        ({**GOOD, "must_have": ["(" * 2000 + ")" * 2000]}, "is not a regular expression"),
        ({**GOOD, "must_have": [3]}, "may hold only regular expressions"),
        ({**GOOD, "checks": [3]}, "'checks' holds 3: a text is expected"),
        ({**GOOD, "files": ["gone.txt"]}, "there is no file 'gone.txt'"),
        ({**GOOD, "files": ["../../secret"]}, "outside of the skill's"),
        ({**GOOD, "files": ["/etc/passwd"]}, "outside of the skill's"),
        ({**GOOD, "files": ["a" * 5000]}, "File name too long"),
        ({**GOOD, "files": ["a\0b"]}, "null"),
        ({**GOOD, "files": ["loop"]}, "loop"),
        ({**GOOD, "files": ["link"]}, "there is no file 'link'"),
        ({**GOOD, "files": [3]}, "'files' holds 3: a path is expected"),
        ({**GOOD, "prompt": "\ud800"}, "it holds half of a character"),
        ({"query": "a", "should_trigger": "yes"}, "neither true nor false"),
    ],
)
def test_an_eval_that_cannot_be_taken_is_left_out_with_its_number(
    tmp_path: Path, row: Any, said: str
) -> None:
    """The others are read, whatever else is wrong with it."""
    skill = tmp_path / "skill"
    skill.mkdir()
    (tmp_path / "secret").write_text("x")
    (skill / "link").symlink_to(tmp_path / "secret")
    (skill / "loop").symlink_to(skill / "loop")
    warnings: list[str] = []
    content = "[\n" + ",\n".join(map(json.dumps, [GOOD, row, GOOD])) + "]"
    assert [case.id for case in read(skill, content, warnings)] == ["1", "3"]
    assert "evals.json: 1 of 3 evals are skipped: eval 2: " in warnings[0]
    assert said in warnings[0]


def test_a_key_that_stands_twice_is_read_as_json_reads_it(tmp_path: Path) -> None:
    assert len(read(tmp_path, '{"evals": 3, "evals": [{"prompt": "a", "checks": ["x"]}]}')) == 1
    assert len(read(tmp_path, '{"tests": [], "evals": [{"prompt": "a", "checks": ["x"]}]}')) == 1


def test_a_pattern_that_python_warns_of_is_no_error_of_a_strict_session(tmp_path: Path) -> None:
    (case,) = read(tmp_path, [{"prompt": "a", "must_have": ["[[a]"]}])
    assert holding(case, "a") == [True]


SCALARS = st.sampled_from([None, True, 0, -1, 1.5, float("nan"), "", " ", "a", "(", "\0", "\ud800"])
JSON_VALUES = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(SCALARS.map(str), SCALARS)
KEYS = [
    "id",
    "prompt",
    "query",
    "input",
    "checks",
    "assertions",
    "scorers",
    "must_have",
    "must_not_have",
    "files",
    "should_trigger",
    "expected_output",
    "evals",
    "cases",
    "name",
    "type",
    "value",
    "pattern",
    "text",
    "description",
    "criterion",
]
OBJECTS = st.dictionaries(st.sampled_from(KEYS), JSON_VALUES)
SPOILT = st.dictionaries(
    st.sampled_from(KEYS), JSON_VALUES | st.lists(OBJECTS, max_size=2), max_size=2
).map(lambda row: GOOD | row)


@settings(max_examples=120)
@given(st.lists(SPOILT | JSON_VALUES, max_size=4), st.sampled_from(["", "evals", "cases"]))
def test_whatever_the_file_holds_it_is_read_or_refused(rows: Any, key: str) -> None:
    with TemporaryDirectory() as folder, contextlib.suppress(EvalsError):
        warnings: list[str] = []
        cases = read(Path(folder), {key: rows} if key else rows, warnings)
        assert all(case.slug and case.prompt.encode() for case in cases)
        left = sum(int(w.partition("json: ")[2].split()[0]) for w in warnings if "skipped" in w)
        assert len(cases) + left == len(rows)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "evals.json"
    path.write_bytes(b'["\xff"]')
    with pytest.raises(EvalsError, match=r"evals\.json: .*decode"):
        read_evals(path, tmp_path, print)
