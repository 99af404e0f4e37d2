"""Documents of many kinds, as bytes."""

from __future__ import annotations

FRONTMATTER = b"---\nname: invoices\ndescription: Reads invoices.\nallowed-tools: Read\n---\n"
BODY = b"# Invoices\n\nRead the total.\n\n- Use ISO dates.\n- Quote nothing.\n"
KEEP = b"<!-- skillopt:keep -->\nNever invent a number.\n<!-- /skillopt:keep -->\n"

DOCUMENTS: dict[str, bytes] = {
    "plain": FRONTMATTER + b"\n" + BODY,
    "crlf": (FRONTMATTER + BODY).replace(b"\n", b"\r\n"),
    "cr": (FRONTMATTER + BODY).replace(b"\n", b"\r"),
    "mixed": FRONTMATTER.replace(b"\n", b"\r\n") + BODY,
    "mixed-body": FRONTMATTER + b"one\r\ntwo\nthree\rfour\r\n",
    "bom": b"\xef\xbb\xbf" + FRONTMATTER + BODY,
    "bom-crlf": b"\xef\xbb\xbf" + (FRONTMATTER + BODY).replace(b"\n", b"\r\n"),
    "bom-only-body": b"\xef\xbb\xbf" + BODY,
    "no-final-newline": FRONTMATTER + BODY.rstrip(b"\n"),
    "crlf-no-final-newline": (FRONTMATTER + BODY).replace(b"\n", b"\r\n").rstrip(b"\r\n"),
    "many-final-newlines": FRONTMATTER + BODY + b"\n\n\n",
    "no-frontmatter": BODY,
    "frontmatter-only": FRONTMATTER,
    "frontmatter-unended": FRONTMATTER.rstrip(b"\n"),
    "empty-frontmatter": b"---\n---\n" + BODY,
    "unclosed-frontmatter": b"---\nname: x\n\n# Body\n",
    "bad-yaml": b"---\nname: [x\n\tdescription: : :\n---\n" + BODY,
    "yaml-comments": b"---\n# a comment\nname:   spaced\n\n'quoted': \"yes\"\n---\n" + BODY,
    "folded-yaml": b"---\nname: x\ndescription: >\n  folded\n  text\n---\n\n" + BODY,
    "thematic-break": b"---\nJust text between two rules.\n---\n" + BODY,
    "trailing-spaces": b"---  \nname: x\n--- \t\n# Title  \n\ntext  \n   \n",
    "line-separators": FRONTMATTER + "one\u2028two\u0085three\x0bfour\x0cfive\x1csix\n".encode(),
    "non-latin": FRONTMATTER + "# Счета\n\n請求書を読む。\n\nعدد\n".encode(),
    "emoji": FRONTMATTER + "# Done \U0001f468\u200d\U0001f469\u200d\U0001f467\n\ntext\n".encode(),
    "fences": FRONTMATTER + b"```md\n<!-- skillopt:keep -->\n---\n```\n\n~~~\n```\n~~~\nend\n",
    "unclosed-fence": FRONTMATTER + b"text\n\n```python\nprint(1)\n",
    "keep": FRONTMATTER + BODY + b"\n" + KEEP + b"\nAfter.\n",
    "keep-inline": FRONTMATTER + b"a <!-- skillopt:keep -->b<!-- /skillopt:keep --> c\n",
    "keep-unclosed": FRONTMATTER + BODY + b"<!-- skillopt:keep -->\nprotected\n",
    "keep-crlf": (FRONTMATTER + BODY + KEEP).replace(b"\n", b"\r\n"),
    "guidance": FRONTMATTER
    + BODY
    + b"\n<!-- skillopt:guidance -->\nGo slow.\n<!-- /skillopt:guidance -->\n",
    "tables": FRONTMATTER + b"| a | b |\n|---|---|\n| 1 | 2 |\n\n[ref]: https://example.org\n",
    "tabs": FRONTMATTER + b"-\tone\n\t- two\n\n\tindented code\n",
    "one-character": b"x",
}
