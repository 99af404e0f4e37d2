"""The edits behind each hunk of a change."""

from __future__ import annotations

import pytest

from pytest_skillopt.report.figures import growth
from pytest_skillopt.report.hunks import hunks_of
from pytest_skillopt.run.result import EditRow
from pytest_skillopt.skill.diff import unified
from pytest_skillopt.skill.document import Document
from pytest_skillopt.skill.edits import Edit, apply


def rows(*edits: Edit) -> list[EditRow]:
    return [EditRow.of(edit, "accepted") for edit in edits]


def test_hunks_know_their_edits() -> None:
    before = Document("".join(f"- rule {n}\n" for n in range(30)).encode())
    edits = (
        Edit("replace", "- rule 2\n", "- rule two\n", reason="spelling", tasks=("a", "b")),
        Edit("delete", "- rule 20", reason="empty", tasks=("b",)),
        Edit("insert_after", "rule 21", "- rule twenty-one and a half", tasks=("b", "c")),
        Edit("append", content="- last"),
    )
    after = before
    for edit in edits:
        after = apply(after, edit)
    replaced, moved, last = rows(edits[0]), rows(*edits[1:3]), rows(edits[3])
    found = hunks_of(before, after, [*replaced, *moved, *last])
    assert [hunk.edits for hunk in found] == [replaced, moved, last]
    assert [hunk.reasons for hunk in found] == [["spelling"], ["empty"], []]
    assert [hunk.tasks for hunk in found] == [["a", "b"], ["b", "c"], []]


def test_a_new_file_made_the_hunk_with_its_link() -> None:
    before = Document(b"- rule\n")
    link = Edit("append", content="See [the style](references/style.md).")
    new = Edit("append", content="Be brief.", file="references/style.md", also=(link,))
    (made,) = rows(new)
    found = hunks_of(before, apply(before, new), [made])
    assert len(found) == 2
    assert [hunk.edits for hunk in found] == [[made], [made]]


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (b"a\n---\nb\n-- c\n", b"a\n", "The skill gets 3 lines shorter."),
        (b"a\n", b"a\n++ b\n---\n", "The skill gets 2 lines longer."),
        (b"a\n", b"b\n", "The skill stays as long."),
    ],
)
def test_the_growth_of_a_skill_counts_lines_like_those_of_a_diff(
    before: bytes, after: bytes, sentence: str
) -> None:
    assert growth(unified(Document(before), Document(after), "SKILL.md")) == sentence
