from __future__ import annotations

import json
import os
import re
import threading
import time
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from tables import each_row

from pytest_skillopt.untrusted import (
    bound,
    environment,
    fence,
    invisible,
    printable,
    protect,
    redact,
    secret_variables,
    secrets,
    shown,
    strip_invisible,
)

if TYPE_CHECKING:
    import pytest


@each_row(
    ("text", "stripped"),
    [
        ("a\u200bb\u2060c\ufeffd", "abcd"),
        ("\u202eabc\u202c \u2066x\u2069", "abc x"),
        ("tag\U000e0041\U000e007f", "tag"),
        ("soft\u00adhyphen bell\x07 nul\x00 del\x7f", "softhyphen bell nul del"),
        ("a\u200db", "ab"),
        ("x\ufe0f\ufe01", "x"),
        ("private\ue000 \u3164filler", "private filler"),
        ("a\u2028b", "ab"),
        ("tab\t, line\r\nbreak\n", "tab\t, line\r\nbreak\n"),
        ("\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f 1\ufe0f\u20e3", None),
        ("\U0001f9d1\U0001f3fd\u200d\U0001f4bb", None),
        ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", None),
        ("caf\u00e9 na\u00efve \u00a0 \u2026 \u4e2d\u6587 \u05e9\u05dc\u05d5\u05dd \u20ac", None),
        ("e\u0301 combining", None),
    ],
)
def test_what_cannot_be_seen_is_taken_out(text: str, stripped: str | None) -> None:
    assert strip_invisible(text) == (text if stripped is None else stripped)


@given(st.text())
def test_a_stripped_text_has_nothing_hidden_left(text: str) -> None:
    once = strip_invisible(text)
    twice = strip_invisible(once)
    assert len(twice) <= len(once) <= len(text)
    assert len(once) == len(text) - len(list(invisible(text)))


@each_row(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link", "link"),
        ("\x9b2Jcleared", "cleared"),
        ("over\rwrite\b!", "overwrite!"),
        ("a\r\nb\tc\n", "a\nb\tc\n"),
        ("\u202eabc", "abc"),
    ],
)
def test_nothing_moves_the_terminals_cursor(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.characters(max_codepoint=0xFF)))
def test_printable_text_has_no_controls(text: str) -> None:
    assert all(char in "\t\n" or char.isprintable() or char == "\xa0" for char in printable(text))


def test_a_long_text_keeps_both_ends() -> None:
    assert bound("abcdef", 2, 1) == "ab\n[... 3 characters left out ...]\nf"
    assert bound("abcdef", 3, 0) == "abc\n[... 3 characters left out ...]\n"
    assert bound("abc", 2, 1) == "abc"


@given(st.text(), st.text("0123456789abcdef", max_size=4))
def test_a_fence_is_closed_by_its_nonce_alone(text: str, nonce: str) -> None:
    fenced = fence(text, nonce)
    first = fenced.split("\n")[0]
    last = fenced.split("\n")[-1]
    used = first.removeprefix("[data ").removesuffix("]")
    assert last == f"[end of data {used}]"
    assert used.lower() not in text.lower()
    assert fenced == fence(text, nonce)


def test_a_nonce_that_the_text_knows_is_changed() -> None:
    fenced = fence("end of data abc123", "ABC123")
    assert "[data ABC123]" not in fenced
    assert fence("abc") != fence("abd")
    assert fence("lone \ud800 surrogate").endswith("]")


def test_values_of_secret_variables_are_redacted() -> None:
    environ = {
        "OPENAI_API_KEY": "abcd-efgh-ijkl",
        "DB_PASSWORD": 'pa"ss wörd',
        "MY_SECRET_LONGER": "abcd-efgh-ijkl-mnop",
        "SHORT_TOKEN": "abc",
        "HOME": "/home/somebody",
        "KEYBOARD": "qwertyuiop",
        "MONKEY_BUSINESS": "banana-bread",
    }
    text = "key abcd-efgh-ijkl, abcd-efgh-ijkl-mnop, "
    text += 'pa"ss wörd, pa\\"ss w\\u00f6rd, pa%22ss%20w%C3%B6rd'
    assert redact(text, environ) == (
        "key [redacted OPENAI_API_KEY], [redacted MY_SECRET_LONGER], [redacted DB_PASSWORD], "
        "[redacted DB_PASSWORD], [redacted DB_PASSWORD]"
    )
    other = "abc /home/somebody qwertyuiop banana-bread"
    assert redact(other, environ) == other


KEY_IN_LINES = (
    "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADAN\nhkiG9w0BAQEF\n-----END PRIVATE KEY-----\n"
)


@each_row(
    ("secret", "said"),
    [
        ('pa"ss\\wörd', repr({"a": 'pa"ss\\wörd'})),
        ('pa"ss\\wörd', json.dumps('pa"ss\\wörd', ensure_ascii=False)),
        ('pa"ss\\wörd', repr("pa\"ss\\wörd isn't")),
        ("it's\\wörd", repr({"a": 'say "it\'s\\wörd"'})),
        ("pass word/&+", "https://h/?p=pass+word%2F%26%2B"),
        ("pass word/&+", "https://h/pass%20word/%26%2B"),
        ("pass<word>&", "<b>pass&lt;word&gt;&amp;</b>"),
        ("pass word 1", "cGFzcyB3b3JkIDE="),
        ("pass word 1", "7061737320776f72642031"),
        (KEY_IN_LINES, "E   MIIEvQIBADAN\nE   hkiG9w0BAQEF"),
    ],
)
def test_a_secret_value_is_known_in_all_that_writes_it_otherwise(secret: str, said: str) -> None:
    cleaned = redact(said, {"MY_SECRET": secret})
    assert "[redacted MY_SECRET]" in cleaned
    assert not {"wörd", "word", "MIIEvQIBADAN", "hkiG9w0BAQEF", secret} & set(
        re.split(r"\W", cleaned)
    )


def test_ordinary_lines_of_a_secret_of_several_are_none() -> None:
    assert (
        redact('"type": "service_account"', {"A_SECRET": '{\n "type": "service_account"\n}'})[:6]
        == '"type"'
    )


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_ACCESS_TOKEN", "correct horse battery")
    assert redact("it is correct horse battery.") == "it is [redacted SOME_ACCESS_TOKEN]."


def test_a_configured_key_is_a_secret_whatever_its_variable_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pytest_skillopt.untrusted._PROTECTED_NAMES", set())
    monkeypatch.setattr("pytest_skillopt.untrusted._PROTECTED_VALUES", set())
    monkeypatch.setenv("MY_ENDPOINT", "correct horse battery")
    text = "correct horse battery, another one"
    assert redact(text) == text
    protect(["MY_ENDPOINT"], value="another one")
    assert redact(text) == "[redacted MY_ENDPOINT], [redacted key]"


def test_the_environment_may_change_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As pytest sets and removes a variable around every test, in every lane."""
    over = threading.Event()

    def change(name: str) -> None:
        while not over.is_set():
            os.environ[name] = "x"
            del os.environ[name]

    threads = [threading.Thread(target=change, args=(f"LANE_{n}",)) for n in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(300):
            assert redact("nothing here") == "nothing here"
            assert "PATH" in environment()
            secret_variables()
    finally:
        over.set()
        for thread in threads:
            thread.join()


@each_row(
    "secret",
    [
        "sk-proj-abcdefghij1234567890KLMNOP",
        "sk-ant-api03-abcdefghij1234567890",
        "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8",
        "github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuv",
        "glpat-abcdefghij1234567890",
        "xoxb-1234567890-abcdef",
        "AKIAIOSFODNN7EXAMPLE",
        "AIzaSyA1234567890abcdefghijklmnopqrstuvw",
        "hf_abcdefghijklmnopqrstuvwxyz012345",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijkl",
        "Bearer abcdefghijklmnop1234567890",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn\nNzaC1r\n-----END OPENSSH PRIVATE KEY-----",
        "postgres://admin:s3cr3tpw@db.internal",
        "redis://:s3cr3t-pw-0815@db.internal",
        "Authorization: Token abcdefghijklmnop1234567890",
        "rubygems_0123456789abcdef0123456789abcdef",
        "hooks.slack.com/services/T0AAAAAA/B0AAAAAA/abcdefghijklmnop",
        "ACME_prod_a8Kd03jPqL7xZ91mVb2nTy64RwQs5U",
    ],
)
def test_known_shapes_are_redacted(secret: str) -> None:
    assert "[redacted]" in redact(f"x {secret} y", {})
    assert secret[8:20] not in redact(f"x {secret} y", {})
    assert redact(f"x {secret} y", {}).endswith(" y") or "://" in secret


@each_row("said", ["password: ", "the passphrase is ", "PWD="])
def test_a_password_is_redacted_by_what_stands_before_it(said: str) -> None:
    assert redact(f"{said}Tr0ub4dor&3xQ9", {}) == f"{said}[redacted]"


def test_the_name_before_a_secret_value_stays() -> None:
    assert redact('api_key = "a1b2c3d4e5f6g7h8i9"', {}) == 'api_key = "[redacted]"'


@each_row(
    "text",
    [
        "api_key = YOUR_API_KEY_GOES_HERE",
        "The token count is 1234567890123456.",
        "sk-learn and sklearn",
        "https://example.org/a:b@c",
        "password: required",
        "password is at least 8 characters",
        "test_HttpServer2ConnectionPoolManagerKeepsAlive",
        "uuid_123e4567-e89b-12d3-a456-426614174000",
        "sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "Bearer of the invoice",
        "authorization: the clerk must confirm it with 1234567890",
        "postgres://user:{password}@host",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert list(secrets(text)) == []
    assert redact(text, {}) == text


@each_row(
    "text",
    [
        "a" * 100_000,
        "sk-" * 33_000,
        "\u200b" * 100_000,
        "x:/@" * 25_000,
        "pwd'='" * 30_000,
        "token=" * 30_000,
    ],
)
def test_long_texts_take_no_more_than_a_moment(text: str) -> None:
    start = time.process_time()
    for use in (strip_invisible, printable, fence, lambda t: redact(t, {"A_TOKEN": "12345678"})):
        use(text)
    assert time.process_time() - start < 5


@each_row(
    "text",
    [
        "::error::x",
        " \t ::set-output name=x::y",
        "fine\n::stop-commands::t",
        "text ##[error] x",
        "##vso[task.setvariable variable=a]b",
        "###[group]",
        "\x1b[31m::error::x",
        ":::warning::",
        "\u200b::error::x",
        "#\u200b#[error]",
    ],
)
def test_nothing_shown_is_a_command_of_a_ci(text: str) -> None:
    calm = shown(text)
    assert not any(line.lstrip().startswith("::") for line in calm.split("\n"))
    assert not re.search(r"##\w*\[", calm)
    assert shown(calm) == calm


def test_words_that_are_no_command_stay() -> None:
    text = "tests/test_a.py::test_b\n## Heading\n: a :\n  - x::y"
    assert shown(text) == text
