"""Cases from files become parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.cases import read_cases

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_skillopt.cases import Case


def test_a_suite_over_a_file_beside_the_test(pytester: pytest.Pytester) -> None:
    pytester.makefile(
        ".jsonl",
        cases='{"id": "a", "prompt": "x", "total": 3, "split": "train"}\n\n'
        '{"id": "b", "prompt": "y", "total": 4, "split": "validation"}\n',
    )
    pytester.makefile(".md", SKILL="# Skill\n")
    pytester.makepyfile(
        """
        import pytest
        from pytest_skillopt.cases import read_cases

        @pytest.mark.skill_task
        @pytest.mark.parametrize("case", read_cases("cases.jsonl"))
        def test_total(case):
            assert case.total == case["total"] == 3
        """
    )
    plan = pytester.runpytest_inprocess("--collect-only", "-q", "--skillopt-train")
    plan.stdout.fnmatch_lines(["*::test_total[[]a[]]", "*::test_total[[]b[]]", "*1 train, 1 val*"])
    pytester.runpytest_inprocess("-p", "no:xdist").assert_outcomes(passed=1, failed=1)


def cases(path: Path) -> list[Case]:
    return [param.values[0] for param in read_cases(path)]


def test_csv(tmp_path: Path) -> None:
    file = tmp_path / "cases.csv"
    file.write_text('\ufeffprompt,total\n"a\nb",3\nc,4\n', encoding="utf-8")
    assert cases(file) == [{"prompt": "a\nb", "total": "3"}, {"prompt": "c", "total": "4"}]


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\u0085", "\x1c", "\x0b", "\x0c"])
def test_a_row_ends_only_where_rows_of_csv_end(tmp_path: Path, end: str) -> None:
    file = tmp_path / "cases.csv"
    file.write_bytes(f"prompt,total\r\none{end}two,3\r\nc,4\r\n".encode())
    assert cases(file) == [{"prompt": f"one{end}two", "total": "3"}, {"prompt": "c", "total": "4"}]


def test_folders(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "prompt.md").write_text("Read it")
    (tmp_path / "one" / "expected.json").write_text('{"total": 3}')
    (tmp_path / "two.txt").write_text("text")
    (tmp_path / ".hidden").write_text("x")
    one, two = cases(tmp_path)
    assert (one.id, one.prompt, one.expected) == ("one", "Read it", {"total": 3})
    assert (two.id, two.text) == ("two", "text")


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    file = tmp_path / "cases.json"
    file.write_text('[{"a": 1}]')
    with pytest.raises(AttributeError, match="the case has no 'b'; it has a"):
        _ = cases(file)[0].b


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("c.jsonl", b'{"a": 1}\n{"a": \n', r"c\.jsonl:2: invalid JSON"),
        ("c.jsonl", b"\n\n", "contains no case"),
        ("c.jsonl", b"[1]\n", r"c\.jsonl:1: a case is an object"),
        ("c.json", b'{"a": 1}', "a list of cases is expected"),
        ("c.json", b"[\n{,}]", r"c\.json:2: invalid JSON"),
        ("c.csv", b"a,b\n1,2\n1\n", r"c\.csv:3: the row does not have the header.s 2 columns"),
        ("c.csv", b"a,b\n1,2,3\n", r"c\.csv:2: the row does not have the header.s 2 columns"),
        ("c.csv", b'a\n"x" y\n', r"c\.csv:2: invalid CSV"),
        ("c.jsonl", b'{"split": "half"}\n', r"c\.jsonl:1: the split 'half' is not one of"),
        ("c.jsonl", b'{"a": "\xff"}\n', "decode"),
        ("c.jsonl", b'{"a": 1}\n' * 20_001, "more than 20,000 cases"),
        ("c.toml", b"a = 1", "cases are read from"),
    ],
)
def test_a_file_that_cannot_be_read_names_the_line(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(pytest.UsageError, match=said):
        read_cases(tmp_path / name)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(pytest.UsageError, match="there is no"):
        read_cases(tmp_path / "gone.jsonl")
