"""Add-on: disguised text, addresses, shell commands, and words of a task in what an edit adds.

An instruction that sends data away, or fetches instructions, must name an address. An address in
the skill or in the tasks is the user's own; any other is refused, whatever its sentence says. A
program cannot tell good commands from bad ones: new commands are shown to the reader. An edit with
words of a particular task instead of a rule is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.addon import AddOn
from pytest_skillopt.addons.later import Later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_skillopt import Document
    from pytest_skillopt.addons.added_text import task_words
    from pytest_skillopt.skill.lint import Severity
else:
    task_words = Later("added_text.task_words")

RULES: dict[str, tuple[Severity, str]] = {
    "invisible": ("refuse", "invisible, bidirectional, tag or control characters"),
    "mixed-script": ("refuse", "words with letters of one script posing as another's"),
    "encoded": ("refuse", "encoded text"),
    "contact": ("refuse", "an address that stands neither in the skill nor in its train tasks"),
    "html-comment": ("refuse", "comments and markup that a reader of the page does not see"),
    "unsafe-link": ("refuse", "links that run, load or embed something"),
    "command": ("warn", "a shell command that stands neither in the skill nor in its train tasks"),
}


def faults(
    before: Document, after: Document, known: Callable[[str], bool]
) -> Iterator[tuple[str, str]]:
    """Yield rule and excerpt of each fault in the text that a file adds."""
    from pytest_skillopt.addons.added_text import addresses, disguises
    from pytest_skillopt.skill.lint import additions

    added, was = additions(before.text, after.text), before.text
    shown = additions(disguises.without_code(before), disguises.without_code(after))
    secrets = sorted(disguises.broken_secrets(after.text) - disguises.broken_secrets(was))
    found = {
        "secret": (f"the value of {name}, whole or in pieces" for name in secrets),
        "invisible": disguises.hidden_characters(added),
        "mixed-script": disguises.disguised_words(added),
        "encoded": (text for text in disguises.encoded_texts(added) if text not in was),
        "unsafe-link": disguises.unsafe_links(added),
        "html-comment": disguises.hidden_markup(shown),
    }
    yield from ((rule, excerpt) for rule in found for excerpt in found[rule])
    own = {*addresses.addresses(was), *addresses.shell_commands(was)}
    named = {
        "contact": addresses.addresses(added),
        "command": addresses.shell_commands(after.text),
    }
    for rule, excerpts in named.items():
        yield from ((rule, text) for text in excerpts if text not in own and not known(text))


ADDON = AddOn(rules=RULES, faults=faults, edit_check=task_words.LeakIndex)
