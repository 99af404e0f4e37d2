from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_skillopt.edits.update import edit_between
from pytest_skillopt.skill.document import Document
from pytest_skillopt.skill.edits import Edit, apply

HEAD = "---\nname: x\ndescription: y\n---\n"
BODY = "# Title\n\nSay hello.\n\n- one\n- two\n"


def between(old: str, new: str) -> Edit | None:
    return edit_between(Document.from_text(HEAD + old), Document.from_text(HEAD + new))


@pytest.mark.parametrize(
    ("new", "edit"),
    [
        (BODY + "- three\n", Edit("append", content="- three")),
        (
            BODY.replace("hello.\n", "hello.\nThen wave.\n"),
            Edit("insert_after", target="Say hello.", content="Then wave."),
        ),
        (BODY.replace("- one\n", ""), Edit("delete", target="- one")),
        (BODY.replace("hello", "hi"), Edit("replace", target="Say hello.", content="Say hi.")),
        (
            BODY.replace("hello", "hi").replace("two", "2"),
            Edit("replace", "Say hello.\n\n- one\n- two", "Say hi.\n\n- one\n- 2"),
        ),
    ],
)
def test_a_change_is_one_edit(new: str, edit: Edit) -> None:
    assert between(BODY, new) == edit


def test_a_line_that_stands_twice_is_named_with_its_neighbours() -> None:
    edit = between("a\nx\nb\nx\nc\n", "a\nx\nb\ny\nc\n")
    assert edit == Edit("replace", "b\nx\nc", "b\ny\nc")


def test_what_no_edit_may_do_is_none() -> None:
    region = "<!-- skillopt:keep -->\nkept\n<!-- /skillopt:keep -->\n"
    assert between(BODY + region, BODY + region.replace("kept", "gone")) is None
    before = Document.from_text(HEAD + BODY)
    assert edit_between(before, Document.from_text("---\nname: z\n---\n" + BODY)) is None
    assert edit_between(before, before) is None


lines = st.lists(st.sampled_from(["a", "b", "- c", "", "# d", "e f"]), min_size=1, max_size=8)


@given(lines, lines)
def test_the_edit_makes_the_document(old: list[str], new: list[str]) -> None:
    before = Document.from_text(HEAD + "# T\n\n" + "\n".join(old) + "\n")
    after = Document.from_text(HEAD + "# T\n\n" + "\n".join(new) + "\n")
    edit = edit_between(before, after)
    if edit is None:
        assert [x for x in old if x] == [x for x in new if x]
        return
    made = apply(before, edit).text.split("\n")
    assert [x for x in made if x] == [x for x in after.text.split("\n") if x]
