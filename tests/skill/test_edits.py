from __future__ import annotations

import time
from typing import get_args

import pytest
from documents import DOCUMENTS
from hypothesis import given
from hypothesis import strategies as st
from tables import each_row

from pytest_skillopt.skill.edits import Edit, Op, apply, file_links, protected_texts
from pytest_skillopt.skill.text import SkillError, Text
from pytest_skillopt.skill.version import Version

TEXT = st.text(st.sampled_from([*"ab -#`|<>!.\n\r\u2028é"]), max_size=12)
PIECES = (
    st.lists(
        st.sampled_from(
            [
                "one\n",
                "two\r\n",
                "three\n",
                "- item\n",
                "  more\n",
                "\n",
                "\r\n",
                "```\n",
                "# head\n",
                "| row |\n",
                "<!-- skillopt:keep -->\n",
                "<!-- /skillopt:keep -->\n",
                "tail",
                "<!-- skillopt:guidance -->\n",
                "<!-- /skillopt:guidance -->\n",
                "---\n",
                "name: x\n",
            ]
        ),
        min_size=1,
        max_size=14,
    )
    .map("".join)
    .filter(lambda text: bool(text.strip()))
)
EDITS = st.builds(
    Edit,
    op=st.sampled_from(get_args(Op)),
    target=TEXT
    | st.sampled_from(["one", "two\n", "item", "tail", "head", "more", "one\ntwo", "row"]),
    content=TEXT | st.sampled_from(["- new", "new\n\nlines", "```\ncode\n```", "| 1 |"]),
)


def read(text: str) -> Version:
    return Version.from_bytes(text.encode())


def change(text: str, *edits: Edit) -> str:
    document = read(text)
    for edit in edits:
        document = apply(document, edit)
    return document.main.text


def refusal(text: str, edit: Edit) -> str:
    with pytest.raises(SkillError) as refused:
        apply(read(text), edit)
    return str(refused.value)


@each_row(
    ("before", "content", "after"),
    [
        ("a\n", "b", "a\n\nb\n"),
        ("a", "b", "a\n\nb"),
        ("a\n\n", "b\n\n", "a\n\nb\n"),
        ("- a\n", "- b", "- a\n- b\n"),
        ("- a", "- b", "- a\n- b"),
        ("a\r\n", "b\nc", "a\r\n\r\nb\r\nc\r\n"),
        ("---\nname: x\n---", "b", "---\nname: x\n---\n\nb"),
        ("- a\n  more\n", "- b", "- a\n  more\n- b\n"),
        ("| a |\n", "| b |", "| a |\n| b |\n"),
        (
            "a\n\n<!-- skillopt:guidance -->\ng\n<!-- /skillopt:guidance -->\n",
            "b",
            "a\n\nb\n\n<!-- skillopt:guidance -->\ng\n<!-- /skillopt:guidance -->\n",
        ),
        (
            "<!-- skillopt:keep -->\nk\n<!-- /skillopt:keep -->\n",
            "b",
            "<!-- skillopt:keep -->\nk\n<!-- /skillopt:keep -->\n\nb\n",
        ),
    ],
)
def test_append_goes_to_the_end_of_the_body(before: str, content: str, after: str) -> None:
    assert change(before, Edit("append", content=content)) == after


@each_row(
    ("before", "target", "content", "after"),
    [
        ("a\nb\n\nc\n", "a", "x", "a\nb\n\nx\n\nc\n"),
        ("- a\n- b\n", "a", "- x", "- a\n- x\n- b\n"),
        ("- a\n  long\n- b\n", "- a", "- x", "- a\n  long\n- x\n- b\n"),
        ("# h\ntext\n", "# h", "x", "# h\n\nx\n\ntext\n"),
        ("# h\n\n- a\n", "# h", "- x", "# h\n\n- x\n\n- a\n"),
        ("# h\n\n1. a\n", "# h", "- x", "# h\n\n- x\n\n1. a\n"),
        ("# h\n\n- a\n", "# h", "x", "# h\n\nx\n\n- a\n"),
        ("```\na\nb\n```\n", "a", "x", "```\na\nx\nb\n```\n"),
        ("```\na\n```\nb\n", "a\n```", "x", "```\na\n```\n\nx\n\nb\n"),
        ("a\nb", "b", "x", "a\nb\n\nx"),
        ("a\r\nb\r\n\r\nc\r\n", "a\nb\n", "x\ny", "a\r\nb\r\n\r\nx\r\ny\r\n\r\nc\r\n"),
        ("| a |\n| b |\n", "| a |", "| x |", "| a |\n| x |\n| b |\n"),
        ("Head\n====\ntext", "Head\n====", "x", "Head\n====\ntext\n\nx"),
    ],
)
def test_insert_after_the_paragraph(before: str, target: str, content: str, after: str) -> None:
    assert change(before, Edit("insert_after", target, content)) == after


@each_row(
    ("before", "target", "content", "after"),
    [
        ("one two three\n", "two", "2", "one 2 three\n"),
        ("a\r\nb\r\n", "a\nb", "c\nd\ne", "c\r\nd\r\ne\r\n"),
        ("---\nname: a\n---\na\n", "a", "b", "---\nname: a\n---\nb\n"),
        ("x <!-- skillopt:keep -->x<!-- /skillopt:keep -->\n", "x ", "y ", None),
    ],
)
def test_replace(before: str, target: str, content: str, after: str | None) -> None:
    expected = before.replace(target, content, 1) if after is None else after
    assert change(before, Edit("replace", target, content)) == expected


@each_row(
    ("before", "target", "after"),
    [
        ("a\nb\nc\n", "b", "a\nc\n"),
        ("a\r\nb\r\n", "b", "a\r\n"),
        ("one two\n", " two", "one\n"),
        ("one two\n", "one ", "two\n"),
        ("a\nb", "b", "a\n"),
        ("a\nb\nc\n", "b\n", "a\nc\n"),
    ],
)
def test_delete_takes_whole_lines_with_their_end(before: str, target: str, after: str) -> None:
    assert change(before, Edit("delete", target)) == after


KEEP = "a\n\n<!-- skillopt:keep -->\nb\n<!-- /skillopt:keep -->\n\nc\n"


@each_row(
    ("text", "edit", "why"),
    [
        ("a\n", Edit("replace", "z", "y"), "not found"),
        ("a a\n", Edit("replace", "a", "y"), "found 2 times"),
        ("xaaa\n", Edit("delete", "aa"), "found 2 times"),
        ("a\n", Edit("replace", "", "y"), "empty target"),
        ("a\n", Edit("delete", " \n"), "empty target"),
        ("a\n", Edit("append", content=" \n"), "empty content"),
        ("a\n", Edit("replace", "a", ""), "use delete"),
        ("a\n", Edit("replace", "a", "a"), "no-op"),
        ("a\n", Edit("delete", "a"), "empty"),
        ("---\nname: x\n---\na\n", Edit("delete", "a"), "the body would be empty"),
        ("---\nname: x\n---\na\n", Edit("replace", "name: x", "name: y"), "frontmatter"),
        ("---\nname: x\n---\na\n", Edit("delete", "---\na"), "frontmatter"),
        ("a\n", Edit("replace", "a", "---\nname: x\n---\na"), "frontmatter"),
        (KEEP, Edit("replace", "b", "y"), "protected region keep"),
        (KEEP, Edit("delete", "<!-- skillopt:keep -->"), "protected region"),
        (KEEP, Edit("replace", "a\n\n<!--", "y"), "protected region"),
        (KEEP, Edit("append", content="<!-- skillopt:keep -->x"), "skillopt marker"),
        (KEEP + "```\nx\n```\n", Edit("replace", "a", "```"), "protected region"),
        ("a\n<!-- skillopt:keep -->\nb\n", Edit("append", content="y"), "never closed"),
        ("a\n```\nb\n", Edit("append", content="y"), "never closed"),
        ("a\n", Edit("append", content="x\ud800"), "surrogate"),
        ("a\n", Edit("append", content="x\0"), "NUL"),
    ],
)
def test_what_does_not_fit_is_refused(text: str, edit: Edit, why: str) -> None:
    assert why in refusal(text, edit)


def changed(document: Version, edit: Edit) -> Version:
    try:
        return apply(document, edit)
    except SkillError:
        return document


@given(PIECES, st.lists(EDITS, max_size=4))
def test_frontmatter_and_regions_never_change(text: str, edits: list[Edit]) -> None:
    result = document = read(text)
    for edit in edits:
        result = changed(result, edit)
    assert result.main.same_frontmatter(document.main)
    assert protected_texts(result.main) == protected_texts(document.main)


@given(PIECES, EDITS)
def test_nothing_outside_of_the_edit_changes(text: str, edit: Edit) -> None:
    before = read(text)
    after = changed(before, edit).main.data
    old = before.main.data
    if after == old:
        return
    head = next(
        (i for i in range(min(len(old), len(after))) if old[i] != after[i]),
        min(len(old), len(after)),
    )
    if edit.op in ("append", "insert_after"):
        grown = len(after) - len(old)
        assert grown > 0
        assert any(old == after[:at] + after[at + grown :] for at in range(head + 1))
        assert edit.content.strip("\r\n").replace("\r\n", "\n").replace("\r", "\n") in (
            after.decode().replace("\r\n", "\n").replace("\r", "\n")
        )
    else:
        stripped = old.decode().replace("\r\n", "\n").replace("\r", "\n")
        assert edit.target.replace("\r\n", "\n").replace("\r", "\n") in stripped


@each_row("data", DOCUMENTS.values())
def test_every_kind_of_document_takes_an_append(data: bytes) -> None:
    document = Version.from_bytes(data)
    result = changed(document, Edit("append", content="A new line.\nAnd one more."))
    if result != document:
        added = f"A new line.{document.main.newline}And one more.".encode()
        assert added in result.main.data
        # Taking the added text out again leaves the old bytes and blank lines.
        head, _, tail = result.main.data.partition(added)
        assert (head.rstrip(b"\r\n") + tail.lstrip(b"\r\n")).strip(b"\r\n").replace(
            b"\r", b""
        ).replace(b"\n", b"") == data.replace(b"\r", b"").replace(b"\n", b"")
    else:
        assert "never closed" in refusal(data.decode(), Edit("append", content="A new line."))


def test_links_without_an_end_take_no_more_than_a_moment() -> None:
    text = "[a](b/c.md#d) [e](https://f.g/h) " + "[i](" * 10_000
    start = time.process_time()
    assert file_links(Text(text.encode()), "SKILL.md") == {"b/c.md"}
    assert time.process_time() - start < 5
