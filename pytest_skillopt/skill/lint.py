"""Rules on the text that an edit adds to a skill.

The rules do not judge instructions: the gate measures them, and the reader of the pull request
judges them. They find text that a human reader sees differently than a model, secrets, addresses,
shell commands and damage to the document. Only added text is checked; the text before is the user's
own. A rule that does not suit a skill is switched off by name (``skillopt_lint_allow``).

An instruction that sends data away, or fetches instructions, must name an address. An address in
the skill or in the tasks is the user's own; any other is refused, whatever its sentence says. A
program cannot tell good commands from bad ones: new commands are shown to the reader.
"""

from __future__ import annotations

import base64
import binascii
import html
import ipaddress
import re
import unicodedata
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

from pytest_skillopt.addons import merged
from pytest_skillopt.skill.diff import added_blocks
from pytest_skillopt.skill.document import MANAGED, SKILL_FILE, Document, SkillError, to_lf
from pytest_skillopt.skill.edits import file_links, only_description, protected_texts
from pytest_skillopt.untrusted import invisible, printable, redact, secrets, strip_invisible

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator


_WORD = re.compile(r"[^\W\d_]+")
_FOREIGN = re.compile(r"[^\x00-\u024f]")
# Letters in circles, brackets and squares; regional indicators are flags, two by two.
_ENCLOSED = re.compile("[\u249c-\u24e9\U0001f110-\U0001f189]{3,}")
_SCRIPTS = {"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU", "FULLWIDTH"}
_UNITS = {"LATIN", "GREEK"}
_SHORT = 3
"""Maximum letters of a word that mixes Latin and Greek: units and variables (kΩ, Δx)."""
_LEAST_ENCODED = 12
"""Minimum characters of an encoded text: longer random ones rarely decode to letters."""
_LETTER_SHARE = 0.5
"""Share of letters, in (0, 1], from which decoded bytes count as text."""

_ENCODINGS: tuple[tuple[re.Pattern[str], Callable[[str], bytes]], ...] = (
    (re.compile(r"(?<![0-9A-Za-z])(?:[0-9A-Fa-f]{2}){12,}(?![0-9A-Za-z])"), bytes.fromhex),
    (
        re.compile(r"(?<![\w+/=-])[A-Za-z0-9+/_-]{16,}={0,2}(?![\w+/=])"),
        lambda run: base64.b64decode(_padded(run.replace("-", "+").replace("_", "/"), 4)),
    ),
    (
        re.compile(r"(?<![\w=])[A-Z2-7]{20,}={0,6}(?![\w=])"),
        lambda run: base64.b32decode(_padded(run, 8)),
    ),
)
_ESCAPES = re.compile(
    r"(?:\\+x[0-9a-f]{2}|\\+u00[0-9a-f]{2}|%[0-9a-f]{2}|&#x[0-9a-f]{2};){6,}", re.I
)
_ESCAPE = re.compile(r"(?:x|u00|%)([0-9a-f]{2})|#x([0-9a-f]{2});", re.IGNORECASE)
_BLOB = re.compile(
    r"(?<![\w/+.:=-])(?=[A-Za-z0-9+/]*\d)(?=[A-Za-z0-9+/]*[a-z])(?=[A-Za-z0-9+/]*[A-Z])"
    r"[A-Za-z0-9+/]{60,}={0,2}"
)
"""Encoded data; neither a hexadecimal digest nor a path matches."""
_HIDDEN = re.compile(
    r"<!(?:--|\[cdata\[|doctype\b)|<\?(?:php|xml|=)"
    r"|^[ \t]*\[[^\]\n]{0,80}\]:[ \t]*(?:#|<>|\S+[ \t]+[\"'(][^\n]{25,})[^\n]*"
    r"|<[a-z][^<>\n]{0,200}(?:display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0"
    r"|opacity\s*:\s*0|color\s*:\s*(?:white|transparent|#fff)|\shidden\b|aria-hidden)[^<>\n]{0,200}>"
    r"|<(?:script|style|template|noscript|iframe|object|embed|form|meta|link|svg|base|details)\b"
    r"|<[a-z][^<>\n]{0,200}\son[a-z]{3,20}\s*=",
    re.IGNORECASE | re.MULTILINE,
)
_TURN = re.compile(
    r"<\|[a-z_]{2,30}\|>|\[/?INST\]|<</?SYS>>"
    r"|</?(?:system|assistant|developer)(?:[ _-]?(?:prompt|message|reminder|instructions?))?\s*>",
    re.IGNORECASE,
)
"""Marks of chat templates between the turns of speakers."""
_CODE_SPAN = re.compile(r"(?<![`\\])(`+)(?!`)[^\n]+?(?<!`)\1(?!`)")
_LINK = re.compile(r"(!?)\[[^\]\n]{0,300}\]\(\s*<?([^)\s>]{1,2000})")
_SCHEME = re.compile(r"(?:javascript|data|vbscript|file)\s*:[^\s,]", re.IGNORECASE)
_HTML_LINK = re.compile(
    r"<(?:a|img|area|video|audio|source)\s[^<>\n]{0,300}|!\[[^\]\n]{0,300}\]\[[^\]\n]{0,100}\]",
    re.IGNORECASE,
)


def hidden_characters(text: str) -> Iterator[str]:
    """Describe each invisible character with the text around it."""
    for at in invisible(text):
        name = unicodedata.name(text[at], "unnamed character")
        around = text[max(0, at - 12) : at + 13].replace("\n", " ")
        yield f"U+{ord(text[at]):04X} {name} in {around!r}"


def disguised_words(text: str) -> Iterator[str]:
    """Yield words that mix scripts, or are in mathematical, enclosed or raised letters."""
    for match in _ENCLOSED.finditer(text):
        yield match[0]
    for match in _WORD.finditer(text):
        if _FOREIGN.search(match[0]) and _is_disguised(match[0]):
            yield match[0]


def _is_disguised(word: str) -> bool:
    if len(word) >= _SHORT and 2 * sum(map(_is_drawn, word)) > len(word):
        return True
    others = {_script(char) for char in word} - {"OTHER"}
    return len(others) > 1 and "LATIN" in others and (others != _UNITS or len(word) > _SHORT)


def _is_drawn(char: str) -> bool:
    """Check for a mathematical, raised or small capital letter; single ones have their use."""
    if char < "\u0250":
        return False
    return unicodedata.normalize("NFKC", char).isascii() or "LETTER SMALL CAPITAL" in (
        unicodedata.name(char, "")
    )


def _script(char: str) -> str:
    """Return the script; ``OTHER`` for scripts that may mix with Latin."""
    script = "LATIN" if char < "\u0250" else unicodedata.name(char, "UNKNOWN").split()[0]
    if script in {"MICRO", "OHM", "KELVIN", "ANGSTROM"}:
        return "LATIN"
    return script if script in _SCRIPTS else "OTHER"


def encoded_texts(text: str) -> Iterator[str]:
    """Yield parts that decode to plain text, runs of escapes that do, and large encoded blobs."""
    for pattern, decode in _ENCODINGS:
        for match in pattern.finditer(text):
            if _is_text(decode, match[0]):
                yield match[0]
    for match in _ESCAPES.finditer(text):
        codes = [int(first or second, 16) for first, second in _ESCAPE.findall(match[0])]
        if all(0x20 <= code < 0x7F for code in codes):
            yield match[0]
    for match in _BLOB.finditer(text):
        yield match[0]


def _padded(run: str, size: int) -> str:
    bare = run.rstrip("=")
    return bare + "=" * (-len(bare) % size)


def _is_text(decode: Callable[[str], bytes], run: str) -> bool:
    try:
        plain = decode(run).decode("ascii")
    except (binascii.Error, ValueError):
        return False
    if len(plain) < _LEAST_ENCODED or not all(c.isprintable() or c in "\t\n\r" for c in plain):
        return False
    return sum(char.isalpha() for char in plain) >= _LETTER_SHARE * len(plain)


def hidden_markup(text: str) -> Iterator[str]:
    """Yield comments, markup that a page does not show, and marks of chat templates.

    ``text`` is added text without its code (``without_code``), which a page shows.
    """
    for pattern in (_HIDDEN, _TURN):
        for match in pattern.finditer(text):
            yield text[match.start() : match.end() + 60]


def without_code(document: Document) -> str:
    """Return the text of a document, line for line, without closed code blocks and code spans."""
    parts, end = [], 0
    for fence in document.fences:
        if fence.closed:
            gap = "\n" * to_lf(document.text[fence.start : fence.end]).count("\n")
            parts += [document.text[end : fence.start], gap]
            end = fence.end
    return _CODE_SPAN.sub("``", "".join([*parts, document.text[end:]]))


def unsafe_links(text: str) -> Iterator[str]:
    """Yield links that run, load or embed something."""
    for match in _LINK.finditer(text):
        target = unquote(html.unescape(match[2])).strip()
        elsewhere = match[1] and (target.startswith("//") or "://" in target)
        if elsewhere or _SCHEME.match(target):
            yield match[0]
    for match in _HTML_LINK.finditer(text):
        yield match[0]


_DOT = re.compile(r"\s*[\[({]\s*(?:dot|\.)\s*[\])}]\s*|(?<=\w)\s+dot\s+(?=[a-z]{2,})")
_PLACEHOLDER = re.compile(r"\$?\{[^{}\s]{0,80}\}|\$\w+|<[^<>\s]{0,80}>")
_URL = re.compile(
    r"(?:\b[a-z][a-z0-9+.-]{1,20}:|(?<![\w:/.]))//+((?:[^\s/?#\"'()\[\]]|\[[0-9a-f:.]+\]){1,300})"
)
_MAIL = re.compile(
    r"(?<![\w.+-])[\w.+-]{1,64}@((?!v?\d+\.\d)(?:[\w-]{1,63}\.)+[a-z]{2,24})(?![\w-])"
)
_NAME = r"(?<![\w@/.:$-])((?:[a-z0-9][\w-]{0,62}\.){1,8}"
_HOSTS = (
    # Top-level domains that are neither attributes in code nor file extensions.
    re.compile(_NAME + r"(?:com|org|net|edu|gov|mil|xyz|onion|ru|cn))(?![\w(-]|\.\w)"),
    # Other domains count only with a path or port.
    re.compile(
        _NAME + r"(?:io|dev|app|ai|co|me|info|biz|cloud|site|online|top|click|link|live|eu|de|uk|fr"
        r"|nl|es|it|ch|at|be|pl|se|no|fi|dk|cz|us|ca|br|in|jp|kr|tw|au|nz|to|tv|gg|sx|cc|is|ly|sh))"
        r"(?=/[\w?~.-]|:\d{2,5}\b)"
    ),
)
_NETWORK_PROGRAM = re.compile(
    r"(?<![\w.-])(?:curl|wget|ssh|scp|sftp|ftp|nc|ncat|netcat|telnet|ping|dig|nslookup|rsync)\s+"
    r"([^\n`|;]{1,300})"
)
_ARGUMENT = re.compile(
    r"(?:^|[\s=@'\"(])((?:[a-z0-9][\w-]{0,62}\.){1,8}[a-z]{2,24})(?=$|[\s/:'\"?)])"
)
_COMPUTED = re.compile(r"\b(?:https?|ftp|wss?|ssh)://[^\s/?#\"']{0,100}?\$\([^\s]{0,100}")
"""A URL whose host a shell command computes."""
_ESCAPED = re.compile(r"\\+(?:x|u00)([0-9a-f]{2})|\\+([01][0-7]{2})", re.IGNORECASE)
"""A character as ``printf`` and ``echo -e`` read it, in hexadecimal or octal digits."""
_FILE_ENDINGS = (
    "md txt py json yaml yml toml csv tsv html htm pdf js ts sh xml ini cfg conf log zip gz tar tgz"
    " tmp bak png jpg jpeg gif svg out pem key crt deb rpm whl exe dll so sql db lock"
)
_PRODUCTS = frozenset({"asp.net", "ado.net", "vb.net", "ml.net"})
_RESERVED = re.compile(
    r"(?:.+\.)?(?:example(?:\.(?:com|org|net|edu))?|test|invalid|localhost|local)", re.IGNORECASE
)
"""Names that are never resolved (RFC 2606, RFC 6761), or only locally (RFC 6762)."""
_IPV4 = re.compile(r"(?<![\w.-])\d{1,3}(?:\.\d{1,3}){3}(?![\w-]|\.\d)")
_IPV6 = re.compile(r"(?<![\w:])(?:[0-9a-f]{1,4}:){2,7}(?::?[0-9a-f]{1,4}){1,6}(?![\w:])")
_NUMBERED = re.compile(r"(?:version|release|section|chapter|clause|paragraph|rule)s?\s+$")

_SHELLS = (
    "sh bash zsh fish shell console terminal shell-session shellsession powershell pwsh ps1 cmd"
    " bat batch"
)
_PROGRAMS = (
    "apt apt-get awk aws az base64 bash brew bun bundle bzip2 cargo cat cd chmod chown cmake conda"
    " cp crontab curl cut dd deno diff dig dnf docker dotnet du echo env eval exec export find ftp"
    " gcc gcloud gem gh git go gradle grep gunzip gzip head helm iconv iex invoke-webrequest"
    " invoke-expression java jq kill killall kubectl ln ls make mamba mkdir mkfs mount mv mvn nc"
    " ncat nmap node nohup npm npx nslookup openssl pacman perl php ping pip pip3 pipx pkill pnpm"
    " podman poetry powershell printenv pwsh pytest python python3 rclone rg rm rmdir rsync ruby"
    " rustup scp sed sftp sh shred socat source ssh ssh-keygen su sudo systemctl tail tar tee"
    " telnet terraform touch tox truncate unzip uv uvx wget xargs xxd yarn yum zip zsh"
)
_PROGRAM = rf"(?:{'|'.join(sorted(map(re.escape, _PROGRAMS.split()), reverse=True))})"
_LINE = re.compile(rf"\s*(?:[$%>#]\s+)?(?:\w+=\S*\s+)*(?:sudo\s+)?{_PROGRAM}\s+\S", re.IGNORECASE)
_PROMPT = re.compile(r"\s*[$%>]\s+")
_FENCE = re.compile(r"[\s>*+-]*(`{3,}|~{3,})\s*(?:\{?\.?([\w-]*))")
_SPAN = re.compile(r"(`+)(?!`)([^`\n]+)\1(?!`)")
_IN_PROSE = re.compile(
    rf"(?<![\w./`-]){_PROGRAM}\s+(?:-{{1,2}}\w|[\w+.-]+://|[~/]\S|(?:-\S+\s+)*install\s)[^\n`;]*",
    re.IGNORECASE,
)
_LONGEST = 300
"""Maximum characters of a command."""


def addresses(text: str) -> Iterator[str]:
    """Yield hosts of URLs, mail addresses and IP addresses, in lower case.

    Names reserved for examples and private networks are left out; disguises (``[.]``, entities,
    percent signs) are decoded. A name without a scheme counts if it cannot be a file or an
    attribute.
    """
    plain = _ESCAPED.sub(_character, strip_invisible(html.unescape(to_lf(text))))
    plain = unicodedata.normalize("NFKC", plain).lower().translate(_UNQUOTED)
    for form in dict.fromkeys((plain, _DOT.sub(".", plain), unquote(plain))):
        yield from _addresses(form)


def _character(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16) if escape[1] else int(escape[2], 8))


_UNQUOTED = str.maketrans("", "", "*\\")


def _addresses(text: str) -> Iterator[str]:
    for match in _URL.finditer(text):
        host = _PLACEHOLDER.sub("", match[1]).rpartition("@")[2]
        if not host.startswith("["):
            host = host.partition(":")[0]
            yield from _outside(host.strip(".,;:!*_`'").removeprefix("www."))
    for match in _COMPUTED.finditer(text):
        yield match[0]
    for match in _MAIL.finditer(text):
        if not _RESERVED.fullmatch(match[1]):
            yield match[0]
    for pattern in _HOSTS:
        for match in pattern.finditer(text):
            yield from _outside(match[1].removeprefix("www."))
    for match in _NETWORK_PROGRAM.finditer(text):
        for name in _ARGUMENT.findall(match[1]):
            if name.rpartition(".")[2] not in _FILE_ENDINGS.split():
                yield from _outside(name)
    for pattern in (_IPV4, _IPV6):
        for match in pattern.finditer(text):
            if not _NUMBERED.search(text, max(0, match.start() - 20), match.start()):
                yield from _outside_ip(match[0])


def _outside(host: str) -> Iterator[str]:
    """Yield the host unless it is reserved or without a dot, and so in the local network."""
    if re.fullmatch(r"0x[0-9a-f]+|\d{6,}", host):
        yield host  # an IP address in one number
    elif re.fullmatch(r"[\d.]+", host):
        yield from _outside_ip(host)
    elif "." in host and not _RESERVED.fullmatch(host) and host not in _PRODUCTS:
        yield host


def _outside_ip(text: str) -> Iterator[str]:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return
    if address.is_global or address.is_link_local:
        yield text


def shell_commands(text: str) -> Iterator[str]:
    """Yield commands in code blocks, code spans and sentences, white space collapsed."""
    fence, is_shell = "", False
    for line in to_lf(text).split("\n"):
        mark = _FENCE.match(line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence, is_shell = (
                ("", False) if fence else (mark[1], mark[2].lower() in _SHELLS.split())
            )
        elif fence:
            bare = _PROMPT.sub("", line, count=1).strip()
            is_comment = is_shell and bare.startswith(("#", "//"))
            if bare and not is_comment and (is_shell or _LINE.match(line)):
                yield collapsed(bare)
        else:
            for span in _SPAN.finditer(line):
                if _LINE.match(span[2]):
                    yield collapsed(_PROMPT.sub("", span[2], count=1))
            for prose in _IN_PROSE.finditer(_SPAN.sub(" ", line)):
                yield collapsed(prose[0])


def collapsed(text: str) -> str:
    """Return one bounded line with single spaces."""
    return " ".join(text.split())[:_LONGEST].strip()


def stands_in(*texts: str) -> Callable[[str], bool]:
    """Make a function that checks if an address or a command occurs in one of the texts."""
    known = "\n".join(" ".join(text.split()) for text in texts if text).lower()

    def stands(what: str) -> bool:
        what = what.lower()
        return what in known and bool(re.search(rf"(?<![\w.-]){re.escape(what)}(?![\w-])", known))

    return stands


Severity = Literal["refuse", "warn"]

RULES: dict[str, tuple[Severity, str]] = {
    "invisible": ("refuse", "invisible, bidirectional, tag or control characters"),
    "mixed-script": ("refuse", "words with letters of one script posing as another's"),
    "secret": ("refuse", "text in the shape of a key, token or password"),
    "encoded": ("refuse", "encoded text"),
    "contact": ("refuse", "an address that stands neither in the skill nor in its train tasks"),
    "html-comment": ("refuse", "comments and markup that a reader of the page does not see"),
    "unsafe-link": ("refuse", "links that run, load or embed something"),
    "frontmatter": ("refuse", "a change of the frontmatter"),
    "protected": ("refuse", "a change of a region between skillopt:keep markers"),
    "file-type": ("refuse", "a change of the byte order mark or the line endings"),
    "fences": ("refuse", "a code block that is never closed and was before"),
    "links": ("refuse", "a link to a file that is not there"),
    "code": ("refuse", "a script that may not be changed so"),
    "size": ("refuse", "more tokens than skillopt_max_skill_tokens"),
    "catalogue": ("refuse", "more text in the descriptions of all skills than agents load"),
    "command": ("warn", "a shell command that stands neither in the skill nor in its train tasks"),
}
"""Severity and meaning of every rule."""

CATALOGUE = 8_000
"""Characters of all names and descriptions of a project that agents load; of more they cut some.

Codex: 2 % of the model's window, or 8,000 characters; Claude Code: 1 %, 8,000 of 200,000 tokens.
"""

_EXCERPT = 120
_REDACTED = re.compile(r"\[redacted(?: \w+)?\]")
_OWN_MARKER = re.compile(r"<!--\s*/?skillopt:(?:guidance|reminders)\s*-->", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Finding:
    """A part of a change that a rule refuses, or that its reader should check."""

    rule: str
    severity: Severity
    message: str
    excerpt: str = ""
    """The text, bounded, without secrets and safe for a terminal."""

    def __str__(self) -> str:
        return f"{self.message}: {self.excerpt}" if self.excerpt else self.message


def allowed(names: str) -> frozenset[str]:
    """Read an allow-list, rule names with commas between them.

    Raises:
        SkillError: a name that is not a rule.
    """
    found = frozenset(name.strip() for name in names.split(",") if name.strip())
    if unknown := sorted(found - RULES.keys()):
        raise SkillError(
            f"skillopt_lint_allow: {', '.join(unknown)} is not a rule; "
            f"the rules are {', '.join(RULES)}"
        )
    return found


def refused(findings: list[Finding]) -> list[Finding]:
    """Return the findings that forbid the change."""
    return [finding for finding in findings if finding.severity == "refuse"]


def warned(findings: list[Finding]) -> list[Finding]:
    """Return the findings that are only shown to the reader of the change."""
    return [finding for finding in findings if finding.severity == "warn"]


def listed(documents: Iterable[Document]) -> int:
    """Count the characters of the names and descriptions, which agents load at their start."""
    return sum(len(document.name) + len(document.description) for document in documents)


def lint(
    before: Document,
    after: Document,
    allow: frozenset[str] = frozenset(),
    *,
    max_tokens: int = 0,
    known: Callable[[str], bool] | None = None,
    present: Container[str] | None = None,
    description: bool = False,
    beside: int = 0,
) -> list[Finding]:
    """Check the text that a version adds to the one before, in each of its files.

    Args:
        before: the earlier version.
        after: the later version.
        allow: names of rules that do not apply.
        max_tokens: largest skill; 0: no bound. A larger skill may keep its size.
        known: checks if an address or a command occurs in another text of the user, such as a train
            task.
        present: paths of the files in the skill's folder, if they are known.
        description: True if the description may change.
        beside: characters of the names and descriptions of the project's other skills.

    Returns:
        Findings in the order of ``RULES``, each once.
    """
    in_skill = stands_in(*(before.file(name).text for name in before.names))
    found: list[tuple[str, str, str]] = []
    for name in after.names:
        old, new = before.file(name), after.file(name)
        if old == new:
            continue
        judged = [
            *_judge_added(old, new, lambda what: in_skill(what) or bool(known and known(what))),
            *_judge_damage(old, new, max_tokens),
        ]
        trained = description and name == SKILL_FILE and only_description(old, new)
        if not (trained or new.same_frontmatter(old)):
            judged.append(("frontmatter", new.frontmatter_text))
        if present is not None:
            links = sorted(file_links(after, name) - file_links(before, name))
            judged += [("links", x) for x in links if x not in present and x not in after.names]
        if new.is_code:
            _, faults = merged("SCRIPTS").get(PurePosixPath(name).suffix.lower(), ("", _no_script))
            judged += [("code", fault) for fault in faults(name, old.text, new.text)]
        found += [(rule, "" if name == SKILL_FILE else name, excerpt) for rule, excerpt in judged]
    size = beside + listed([after])
    if size > max(CATALOGUE, beside + listed([before])):
        found.append(("catalogue", "", f"{size:,} characters, at most {CATALOGUE:,}"))
    order = list(RULES)
    allow -= {"code"}
    unique = dict.fromkeys(_finding(*entry) for entry in found if entry[0] not in allow)
    return sorted(unique, key=lambda finding: order.index(finding.rule))


def _no_script(name: str, before: str, after: str) -> Iterator[str]:
    yield "there is no check for it"


def _finding(rule: str, file: str, excerpt: str) -> Finding:
    severity, message = RULES[rule]
    shown = " ".join(redact(printable(excerpt)).split())
    if len(shown) > _EXCERPT:
        shown = shown[: _EXCERPT - 3] + "..."
    return Finding(rule, severity, f"{file}: {message}" if file else message, shown)


def _judge_added(
    before: Document, after: Document, known: Callable[[str], bool]
) -> Iterator[tuple[str, str]]:
    """Yield rule and excerpt of each fault in the added text."""
    blocks = (_OWN_MARKER.sub("", block) for block in added_blocks(before.text, after.text))
    added, was = "\n\n".join(blocks), before.text
    shown = "\n\n".join(added_blocks(without_code(before), without_code(after)))
    yield from (("invisible", described) for described in hidden_characters(added))
    yield from (("mixed-script", word) for word in disguised_words(added))
    for start, end in secrets(added):
        if added[start:end] not in was:
            yield "secret", added[max(0, start - 20) : start + 4] + "..."
    marks = (match[0] for match in _REDACTED.finditer(added))
    yield from (("secret", mark) for mark in marks if mark not in was)
    yield from (("encoded", text) for text in encoded_texts(added) if text not in was)
    yield from (("unsafe-link", link) for link in unsafe_links(added))
    yield from (("html-comment", text) for text in hidden_markup(_OWN_MARKER.sub("", shown)))
    own = {*addresses(was), *shell_commands(was)}
    yield from (("contact", x) for x in addresses(added) if x not in own and not known(x))
    commands = (x for x in shell_commands(after.text) if x not in own and not known(x))
    yield from (("command", command) for command in commands)


def _judge_damage(before: Document, after: Document, max_tokens: int) -> Iterator[tuple[str, str]]:
    """Yield rule and excerpt of each damage to the document."""
    if _kept(before) != _kept(after):
        yield "protected", ""
    if before.text.startswith("\ufeff") != after.text.startswith("\ufeff"):
        yield "file-type", "the byte order mark"
    if before.newline in before.text and before.newline != after.newline:
        yield "file-type", "the line endings"
    if _unclosed(after) and not _unclosed(before):
        start = after.fences[-1].start
        yield "fences", after.text[start : start + 80]
    if max_tokens and after.tokens > max(max_tokens, before.tokens):
        yield "size", f"{after.tokens} tokens, at most {max_tokens}"


def _kept(document: Document) -> list[Any]:
    return [entry for entry in protected_texts(document) if entry[0] not in MANAGED]


def _unclosed(document: Document) -> bool:
    return bool(document.fences) and not document.fences[-1].closed
