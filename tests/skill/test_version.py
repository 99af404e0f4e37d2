from __future__ import annotations

import pytest
from tables import each_row

from pytest_skillopt.skill.text import Text
from pytest_skillopt.skill.version import Version, changes

SKILL = "---\nname: a\ndescription: A.\n---\n# A\r\n\nSay é.\n".encode()


@each_row(
    ("texts", "digest"),
    [
        ({}, "edffc2209575e06a78410f36ffbc028f17fd3bd01c51c45250e3303b7d549a87"),
        (
            {"references/b.md": "ü\n", "references/a.md": "a\n"},
            "a281d6fc66b0a92cafc4860794ed35fa939842aa71cc2326589129dbbb9a8168",
        ),
        (
            {"../AGENTS.md": "Be brief.\n"},
            "9f036303662c5cdd433563cd4ecbf6af3556d0580f58e49022fa2500cbdbdb86",
        ),
        (
            {"/skills/b/SKILL.md": "---\nname: b\n---\nb\n"},
            "6bfa5511b000b83e54d4e09071c24622d4e7d68408a02cabe5a4215f409eb5eb",
        ),
        (
            {
                "/skills/b/SKILL.md": "b\n",
                "references/a.md": "a\n",
                "/.claude/skills/c/SKILL.md": "c\n",
                "0.md": "0\n",
                "../AGENTS.md": "Be brief.\n",
            },
            "755e7f41bafe664823133cedf4059ee0522cfdd89cb6e620a7ed184233691d05",
        ),
    ],
)
def test_the_digest_of_a_version_never_changes(texts: dict[str, str], digest: str) -> None:
    """Rollouts that users have paid for are kept under it."""
    version = Version.from_bytes(SKILL) | {n: Text(text.encode()) for n, text in texts.items()}
    assert version.digest == digest
    assert Version.unpack(version.packed) == version


def test_a_single_skill_is_packed_as_its_own_bytes() -> None:
    assert Version.from_bytes(SKILL).packed == SKILL
    assert Version.unpack(b"alone\r\n") == Version.from_bytes(b"alone\r\n")


def test_the_texts_of_other_skills_are_not_among_the_trained_files() -> None:
    version = Version.from_text("a") | {"../AGENTS.md": Text(b"b")}
    seen = version.beside({"skills/b/SKILL.md": Text(b"c")})
    assert seen.files == version.files == {"../AGENTS.md": Text(b"b")}
    assert seen.others == {"skills/b/SKILL.md": Text(b"c")}
    assert not version.others


def test_a_new_file_was_empty_before() -> None:
    before = Version.from_text("a") | {"b.md": Text(b"b")}
    after = before | {"c.md": Text(b"c")}
    assert changes(before, after) == {"c.md": (Text(b""), Text(b"c"))}


@each_row("packed", [b"{}", b'{"a.md": "a"}'])
def test_a_version_without_a_skill_is_an_error(packed: bytes) -> None:
    with pytest.raises(ValueError, match=r"needs a SKILL\.md"):
        Version.unpack(b"\0skillopt-files/1\n" + packed)
