from __future__ import annotations

import pytest
from documents import DOCUMENTS
from tables import each_row

from pytest_skillopt.skill.text import SkillError, Text, split_lines


def read(text: str) -> Text:
    return Text.from_bytes(text.encode())


@each_row("data", DOCUMENTS.values())
def test_the_bytes_survive(data: bytes) -> None:
    document = Text.from_bytes(data)
    assert document.data == data
    assert document.text.encode() == data
    assert (document.frontmatter_text + document.body).encode() == data
    assert "".join(split_lines(document.text)).encode() == data


def test_frontmatter_is_read_and_kept_raw() -> None:
    document = read(
        "\ufeff---\r\nname: my-skill\r\ndescription: 'It: reads'\r\n---\r\n\r\nBody\r\n"
    )
    assert document.frontmatter == {"name": "my-skill", "description": "It: reads"}
    assert document.name == "my-skill"
    assert document.frontmatter_text.endswith("---\r\n")
    assert document.body == "\r\nBody\r\n"
    assert document.newline == "\r\n"
    assert document.warnings == ()


@each_row(
    "yaml",
    ["name: [x", "\tname: x", "a: !!int", "a: !!timestamp x", "day: 2024-13-45", "? [a]\n: b", "x"],
)
def test_frontmatter_that_does_not_parse_is_a_warning_and_stays(yaml: str) -> None:
    document = read(f"---\n{yaml}\n---\nBody\n")
    assert document.frontmatter is None
    assert document.name == ""
    assert len(document.warnings) == 1
    assert "left as it is" in document.warnings[0]
    assert document.body == "Body\n"


@each_row("text", ["# Agents\n\ntext\n", "---\nnever closed\n", "a\n---\nb\n---\n"])
def test_without_frontmatter_the_whole_file_is_body(text: str) -> None:
    document = read(text)
    assert document.frontmatter is None
    assert document.body == text
    assert document.warnings == ()


@each_row(
    ("data", "message"),
    [
        (b"", "empty"),
        (b" \r\n\t\n", "empty"),
        (b"\xef\xbb\xbf\n", "empty"),
        (b"ab\xff", "byte 0xff at offset 2"),
        (b"ok\n\xc3", "offset 3"),
        (b"a\0b", "NUL byte at offset 1"),
        (b"---\r\n<<<<<<< a\r\n=======\r\n>>>>>>> b\r\n---\r\nB", "line 2 begins a conflict"),
        (b"```\na\n```\n<<<<<<< a\n||||||| o\n=======\n=======\n>>>>>>> b\n", "line 4 begins"),
    ],
)
def test_what_is_no_text_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(SkillError, match=message):
        Text.from_bytes(data)


@each_row(
    "data",
    [
        b"```\n<<<<<<< a\n=======\n>>>>>>> b\n```\nResolve these.\n",
        b"Title\n=======\n>>>>>>> quoted\n<<<<<<< left\n",
        b"    <<<<<<< a\n    =======\n    >>>>>>> b\n",
    ],
)
def test_what_only_looks_like_a_conflict_is_taken(data: bytes) -> None:
    assert Text.from_bytes(data).data == data


@each_row(
    ("text", "newline"),
    [("a", "\n"), ("a\nb\r\nc\r\n", "\r\n"), ("a\rb\r", "\r"), ("a\nb\r\n", "\n")],
)
def test_the_newline_is_the_commonest(text: str, newline: str) -> None:
    assert read(text).newline == newline


def regions(text: str) -> list[tuple[str, str, bool]]:
    document = read(text)
    return [(r.name, document.text[r.start : r.end], r.closed) for r in document.regions]


def test_regions_reach_from_marker_to_marker() -> None:
    text = (
        "a <!-- skillopt:keep -->b<!-- /skillopt:keep --> c\n"
        "<!--skillopt:GUIDANCE-->x<!--/skillopt:guidance-->"
    )
    assert regions(text) == [
        ("keep", "<!-- skillopt:keep -->b<!-- /skillopt:keep -->", True),
        ("guidance", "<!--skillopt:GUIDANCE-->x<!--/skillopt:guidance-->", True),
    ]


def test_an_unclosed_region_protects_the_rest() -> None:
    document = read("a\n<!-- skillopt:keep -->\nb\n\nc\n")
    assert [(r.end, r.closed) for r in document.regions] == [(len(document.text), False)]
    assert "opened on line 2 is never closed" in document.warnings[0]


@each_row(
    "text",
    [
        "```\n<!-- skillopt:keep -->\n```\nx <!-- not ours -->\n",
        "- item\n  ~~~~ md\n  <!-- skillopt:keep -->\n  ~~~\n  ~~~~\n",
        "write `<!-- skillopt:keep -->` before it\n",
    ],
)
def test_mentions_of_a_marker_protect_nothing(text: str) -> None:
    assert regions(text) == []


def test_a_fence_that_never_closes_hides_no_region() -> None:
    assert regions("```\na\n<!-- skillopt:keep -->b<!-- /skillopt:keep -->\n") == [
        ("keep", "<!-- skillopt:keep -->b<!-- /skillopt:keep -->", True)
    ]


def test_a_code_block_in_a_region_does_not_close_it() -> None:
    inner = "```\n<!-- /skillopt:keep -->\n```\nz\n"
    text = f"<!-- skillopt:keep -->\n{inner}<!-- /skillopt:keep -->\nend\n"
    assert [(t.count("\n"), closed) for _, t, closed in regions(text)] == [(5, True)]


def test_a_closing_marker_alone_is_a_warning() -> None:
    assert "line 2 closes no region" in read("a\n<!-- /skillopt:keep -->\n").warnings[0]


def test_tokens_are_about_four_characters() -> None:
    assert [read("x" * n).tokens for n in (1, 4, 5)] == [1, 1, 2]
