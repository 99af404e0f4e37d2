"""Check an edited script: it parses, reaches no further than before, and keeps its help text.

None of this runs the script. ``risky.toml`` lists the usual ways to the network and to other
processes; whoever hides one from it still meets the sandbox.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import tempfile
import tomllib
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SECONDS = 30.0
_SHOWN = 200
_LISTS = tomllib.loads(Path(__file__).with_name("risky.toml").read_text(encoding="utf-8"))
_RISKY = frozenset([*_LISTS["python"].split(), *(f"os.{n}" for n in _LISTS["os"].split())])
_BUILTINS = frozenset({"eval", "exec", "compile", "__import__", "breakpoint"})
_COMMANDS = re.compile(
    rf"(?<![\w./-])(?:{'|'.join(_LISTS['shell'].split())})(?![\w.-])"
    r"|/dev/(?:tcp|udp)\b|(?m:^[^\S\n]*\.(?=\s+\S))"
)
_MODULES = "|".join(_LISTS["node"].split())
_OF_NODE = re.compile(
    rf"(?:\brequire\s*\(|\bimport\s*\(?|\bfrom)\s*[\"'`](?:node:)?({_MODULES})(?:/[^\"'`]*)?[\"'`]"
    r"|\b(fetch|eval|Function|WebSocket|XMLHttpRequest|EventSource|createRequire)\s*\("
    r"|\bprocess\s*\.\s*(binding|dlopen|kill)\b"
    r"|\b(require|import)\s*\(\s*(?:[^\"'`)\s]|`[^`]*\$\{)"
)
_LEADING = re.compile(r"(?:#!.*\n)?((?:[ \t]*(?:#|//|/?\*).*\n|[ \t]*\n)*)")
_HERE = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_PRINTED = re.compile(
    r"^[ \t#*/]*+(?:echo|printf|console\.\w+\()?[ \t\"'`]*+(?:usage\b|options?:|-{1,2}[a-z]).*$",
    re.IGNORECASE | re.MULTILINE,
)
_HELPING = frozenset({"help", "description", "epilog", "usage", "metavar", "prog"})


def faults(name: str, before: str, after: str) -> Iterator[str]:
    """Say why a script may not be changed so; the suffix of its name tells its language."""
    suffix = PurePosixPath(name).suffix.lower()
    parse, reach, helps = _LANGUAGES[suffix]
    if before and _shebang(before) != _shebang(after):
        yield "its first line, which names its interpreter, would change"
    if wrong := parse(after, suffix):
        yield f"it would not parse: {' '.join(wrong.split())[:_SHOWN]}"
        return
    if more := sorted(reach(after) - reach(before)):
        yield f"it would reach the network or other processes by {', '.join(more)}"
    if lost := sorted(helps(before) - helps(after)):
        yield f"it would lose a line of its help text: {lost[0][:_SHOWN]!r}"


def _shebang(text: str) -> str:
    first = text.partition("\n")[0].rstrip()
    return first if first.startswith("#!") else ""


def _parse_python(text: str, suffix: str) -> str:
    try:
        ast.parse(text)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return str(error) or type(error).__name__
    return ""


def _parse_node(text: str, suffix: str) -> str:
    wrong = _parse_with("node", "--check", text, suffix)
    if wrong and suffix == ".js":  # It may be a module: package.json, which decides, is unknown.
        return _parse_with("node", "--check", text, ".mjs") and wrong
    return wrong


def _parse_with(tool: str, option: str, text: str, suffix: str) -> str:
    """Have a program parse a text; return what it says against it."""
    with tempfile.TemporaryDirectory(prefix="skillopt-code-") as folder:
        path = Path(folder, f"script{suffix}")
        path.write_text(text, encoding="utf-8", newline="")
        env = {"PATH": os.environ.get("PATH", os.defpath)}
        try:
            done = subprocess.run(
                [tool, option, path.name],
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{tool} cannot check it: {error}"
    said = (done.stderr or done.stdout).decode(errors="replace").strip()
    return (said or f"{tool} {option} ended with status {done.returncode}") * bool(done.returncode)


def _reach_of_python(text: str) -> set[str]:
    """List the risky names that a text imports or calls, aliases resolved."""
    known: dict[str, str] = {}
    found: set[str] = set()
    nodes = [] if _parse_python(text, "") else list(ast.walk(ast.parse(text)))
    for node in nodes:
        if isinstance(node, ast.Import):
            for one in node.names:
                top = one.name.partition(".")[0]
                known[one.asname or top] = one.name if one.asname else top
                found.add(one.name)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for one in node.names:
                known[one.asname or one.name] = f"{node.module}.{one.name}"
                found |= {str(node.module), f"{node.module}.{one.name}"}
    for node in nodes:
        if isinstance(node, ast.Attribute) and (name := _dotted(node, known)):
            found.add(name)
        elif isinstance(node, ast.Name) and node.id in _BUILTINS:
            found.add(node.id)
    return {risky for name in found for risky in _RISKY if _is_or_holds(name, risky)}


def _is_or_holds(name: str, risky: str) -> bool:
    if name.endswith(".*"):
        return risky.startswith(name[:-1])
    return name == risky or name.startswith(f"{risky}.")


def _dotted(node: ast.expr, known: dict[str, str]) -> str:
    """Return the full name of an attribute of an imported module, empty for any other."""
    if isinstance(node, ast.Name):
        return known.get(node.id, "")
    if isinstance(node, ast.Attribute) and (above := _dotted(node.value, known)):
        return f"{above}.{node.attr}"
    return ""


def _reach_of_bash(text: str) -> set[str]:
    plain = re.sub(r"(?m)^[^\S\n]*#.*$", "", text)
    return set(_COMMANDS.findall(re.sub(r"[\"'\\]", "", plain)))


def _reach_of_node(text: str) -> set[str]:
    return {next(filter(None, match.groups())) for match in _OF_NODE.finditer(text)}


def _help_of_python(text: str) -> set[str]:
    """List the lines of the docstring, of argparse's texts and options, and of usage texts."""
    if _parse_python(text, ""):
        return set()
    tree = ast.parse(text)
    said = [ast.get_docstring(tree) or ""]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            given = [one.value for one in node.keywords if one.arg in _HELPING]
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            given += node.args if name in ("add_argument", "add_parser", "ArgumentParser") else []
            said += [text for one in given for text in _texts(one)]
        said += [text for text in _texts(node) if "usage" in text.lower()]
    return _lines(said)


def _texts(node: ast.AST) -> list[str]:
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return [p.value for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)]


def _help_of_text(text: str) -> set[str]:
    """List the lines of the comment at the top, of here documents, and of usage and options."""
    top = _LEADING.match(text)
    said = [top[1] if top else "", *_here_documents(text)]
    return _lines([*said, *_PRINTED.findall(text)])


def _here_documents(text: str) -> Iterator[str]:
    """Yield the here documents of a shell script, each read once."""
    lines = [line.strip() for line in text.split("\n")]
    last = {line: number for number, line in enumerate(lines)}
    end = -1
    for number, line in enumerate(lines):
        opened = _HERE.search(line) if number > end else None
        if opened and last.get(opened[2], -1) > number:
            end = lines.index(opened[2], number + 1)
            yield "\n".join(lines[number + 1 : end])


def _lines(texts: list[str]) -> set[str]:
    found = (line.strip(" \t\r#*/") for text in texts for line in text.split("\n"))
    return {line for line in found if line}


_Language = tuple[
    "Callable[[str, str], str]", "Callable[[str], set[str]]", "Callable[[str], set[str]]"
]
_BASH: _Language = (partial(_parse_with, "bash", "-n"), _reach_of_bash, _help_of_text)
_NODE: _Language = (_parse_node, _reach_of_node, _help_of_text)
_LANGUAGES: dict[str, _Language] = {
    ".py": (_parse_python, _reach_of_python, _help_of_python),
    **dict.fromkeys((".sh", ".bash"), _BASH),
    **dict.fromkeys((".js", ".mjs", ".cjs"), _NODE),
}
