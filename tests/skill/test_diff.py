from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from documents import DOCUMENTS
from tables import each_row

from pytest_skillopt.skill.diff import added_blocks, unified
from pytest_skillopt.skill.version import Version

if TYPE_CHECKING:
    from pathlib import Path


def read(text: str) -> Version:
    return Version.from_bytes(text.encode())


def git_apply(folder: Path, before: dict[str, bytes], patch: str) -> dict[str, bytes]:
    """The files after ``git apply``, by path."""
    for path, data in before.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "-"], input=patch.encode(), cwd=folder, check=True
    )
    return {path: (folder / path).read_bytes() for path in before}


@each_row("data", DOCUMENTS.values())
def test_git_takes_the_patch_of_every_kind_of_document(data: bytes, tmp_path: Path) -> None:
    before = Version.from_bytes(data)
    changed = [
        Version.from_bytes(data + b"more"),
        Version.from_bytes(b"\nfirst\r\n" + data),
        Version.from_bytes(data.replace(b"e", b"E").replace(b"x", b"X")),
        Version.from_bytes(data.rstrip() + b" \n"),
    ]
    afters = {f"{n}/SKILL.md": after for n, after in enumerate(changed) if after != before}
    patch = "".join(unified(before, after, path) for path, after in afters.items())
    applied = git_apply(tmp_path, dict.fromkeys(afters, data), patch)
    assert applied == {path: after.main.data for path, after in afters.items()}


def test_git_finds_the_file_under_any_name(tmp_path: Path) -> None:
    before = read("a\n")
    after = read("b")
    paths = ["a b/SKILL.md", 'q"uote.md', "späße/ß.md", "back\\slash.md"]
    patch = "".join(unified(before, after, path) for path in paths)
    applied = git_apply(tmp_path, dict.fromkeys(paths, before.main.data), patch)
    assert applied == dict.fromkeys(paths, b"b")


def test_equal_documents_have_no_diff() -> None:
    assert unified(read("a"), read("a"), "x") == ""


def test_the_missing_newline_is_marked() -> None:
    assert unified(read("a"), read("b\n"), "S.md") == (
        "--- a/S.md\n+++ b/S.md\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n"
    )


def test_a_long_text_that_repeats_its_lines_is_compared_by_what_changed() -> None:
    text = "A line.\n" * 20_000
    asked = "B line.\n"
    for changed in (text + asked, asked + text, text[:80_000] + asked + text[80_000:]):
        assert added_blocks(text, changed) == [asked.rstrip()]


def test_added_blocks_are_whole_lines_without_what_stayed() -> None:
    assert added_blocks("a\r\nb c d\r\n", "a\r\nb C d\r\ne\r\n") == ["b C d\ne"]
    assert added_blocks("a\r\n", "a\n") == []


def test_what_a_long_skill_repeats_is_not_shown_as_changed() -> None:
    """Blank lines and the like are equal however many there are."""
    lines = [line for n in range(150) for line in (f"Rule {n}.", "", "- Example:", "")]
    after = [*lines[:300], "", "- Example:", "", *lines[303:]]
    patch = unified(read("\n".join(lines) + "\n"), read("\n".join(after) + "\n"), "S.md")
    rows = patch.split("\n")[2:]
    assert sum(row.startswith("@@") for row in rows) == 1
    assert [row for row in rows if row[:1] in ("+", "-")] == ["-Rule 75.", "+"]
